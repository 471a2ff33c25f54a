"""How often an idle worker asks the database: less often the more workers of its fleet could ask instead.

A thousand idle workers that each ask as often as a single one would send six hundred statements a second. What they ask
for is found by the first of them: a job whose notification was lost, a sweep that is due.
"""

from __future__ import annotations

from pulse_django.execution.notify import SOON

# Workers of the same queues. A fleet of this size is not slowed. A larger one asks as often as one of this size, until
# each worker waits for so many times as long as alone.
NOT_SLOWED = 40
POLLS_SLOWED_BY, SWEEPS_SLOWED_BY, PRESENCE_SLOWED_BY = 5.0, 2.0, 2.0
# Seconds. Jobs that are due after ``SOON`` are enqueued without a notification, so each worker polls more often.
LONGEST_POLL = 0.8 * SOON.total_seconds()
# Shares of a lease. A watchdog that did not ask for half a lease does not trust leases when it fails once, and a worker
# that has not had an answer for a lease is not ready.
LONGEST_SWEEP, LONGEST_PRESENCE = 0.4, 0.7


def slowed(seconds: float, fleet_size: int, at_most: float, longest: float) -> float:
    """Return for how long to wait in a fleet of this size: as long as alone, or ``at_most`` times as long.

    What is slowed never waits for longer than ``longest``.
    """
    return max(seconds, min(longest, seconds * min(at_most, fleet_size / NOT_SLOWED)))
