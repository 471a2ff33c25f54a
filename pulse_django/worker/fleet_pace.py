"""How often an idle worker asks the database: less often the more workers of its fleet could ask instead.

A thousand idle workers that each ask as often as a single one would send six hundred statements a second. What they ask
for is found by the first of them: a job whose notification was lost, a sweep that is due.
"""

from __future__ import annotations

# Workers of the same queues. A fleet of this size is not slowed, and a larger one asks as often as this one does.
NOT_SLOWED = 40
# How many times as long as alone, at most. Polls must come more often than ``execution.notify.SOON``: jobs that are due
# later are enqueued without a notification.
POLLS_SLOWED_BY, SWEEPS_SLOWED_BY, PRESENCE_SLOWED_BY = 5.0, 2.0, 2.0


def slowed(seconds: float, fleet_size: int, at_most: float) -> float:
    """Return for how long to wait instead of so many seconds, in a fleet of this size."""
    return seconds * min(at_most, max(1.0, fleet_size / NOT_SLOWED))
