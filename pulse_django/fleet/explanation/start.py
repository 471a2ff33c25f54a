"""When a waiting job may start: from its place in line and from what was measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from . import asking
from .facts import JobFacts, LimitFacts, LineFacts, PaceFacts
from .sentences import Reason

MINUTE = 60.0
POLL = 1.0  # seconds within which an idle worker looks, if nothing wakes it
CLOSED = ("queue-paused", "key-paused", "task-paused", "limit-closed")  # nothing starts before these end
UNKNOWN = ("limit-half-open",)  # it depends on how the one run ends
MOST = timedelta(days=366).total_seconds()


def starts_in(
    job: JobFacts, reasons: Sequence[Reason], line: LineFacts, pace: PaceFacts, limits: Sequence[LimitFacts]
) -> tuple[timedelta, timedelta] | None:
    """Return how long it takes at least and at most at the measured pace; None if that is not known.

    At least: with the fastest minute, and nobody beside it. At most: with the mean, after all jobs of its priority.
    What is enqueued later with a higher priority comes on top.
    """
    if max(line) > asking.COUNTED or any(reason.code in UNKNOWN for reason in reasons):
        return None
    ends = [one.until for one in reasons if one.until is not None and one.code in CLOSED]
    wait = max(((until - job.now).total_seconds() for until in ends), default=0.0)
    first, last = line.higher + line.own, line.higher + line.own + line.beside
    least, most = 0.0, POLL
    if last >= job.free:
        if not (fastest := max(pace.starts, default=0.0) / MINUTE):
            return None
        least = 0.0 if first < job.free else first / fastest
        most = (last + 1) * len(pace.starts) * MINUTE / sum(pace.starts) + POLL
    for limit in limits:
        if (bounds := _of_limit(limit, line.own, pace)) is None:
            return None
        least, most = max(least, bounds[0]), max(most, bounds[1])
    shortest, longest = min(wait + least, MOST), min(wait + most, MOST)
    return timedelta(seconds=shortest), timedelta(seconds=max(shortest, longest))


def _of_limit(limit: LimitFacts, before: int, pace: PaceFacts) -> tuple[float, float] | None:
    """Return what a limit adds to the jobs before it in its lane, of at least and at most."""
    least = 0.0
    for tokens, every in ((limit.tokens, limit.token_every), (limit.key_tokens, limit.key_token_every)):
        if tokens is not None and every is not None:
            least = max(least, (before + 1 - tokens) * every)
    most = least
    for number, held in ((limit.running, limit.held), (limit.per_key, limit.held_of_key)):
        if number is None or held + before < number:
            continue
        if pace.run_seconds is None:
            return None
        rounds = (held + before) // number
        most = max(most, rounds * pace.run_seconds)
    return least, most + POLL
