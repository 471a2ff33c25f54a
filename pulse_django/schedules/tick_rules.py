"""Decide the outcome of due ticks: a pure function of the timing and the state of a schedule."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import groupby, takewhile

from pulse_django.queue.words.durations import as_timedelta

from .timings import Missed, Overlap, Timing, next_of

# The number of ticks that a schedule catches up with. Older ones never fire, and have no rows.
MOST_TICKS = 1_000
# The number of consecutive ticks that do not fire for the same reason and have a row each. More share one row.
MOST_ALIKE = 10
FIRST_LOOK_BACK = timedelta(minutes=10)
MOMENT = timedelta(microseconds=1)
# A tick that is decided within this time was not missed.
PUNCTUAL = timedelta(seconds=60)

NOT_FINISHED = "the last job of this schedule is not finished"
WAITS_ALREADY = "an earlier tick waits for the last job to finish"
REPLACED = "a later tick replaced it"


class TickOutcome(StrEnum):
    FIRED = "FIRED"  # its job was enqueued
    WAITING = "WAITING"  # until the last job ends; then it becomes FIRED
    MISSED = "MISSED"
    OVERLAP = "OVERLAP"
    PAUSED = "PAUSED"
    MANUAL = "MANUAL"  # a user ran the schedule
    REFUSED = "REFUSED"  # its job cannot be enqueued


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick of a schedule, and its outcome."""

    at: datetime
    outcome: TickOutcome
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    reason: str
    until: datetime | None = None  # None: until it is resumed


@dataclass(frozen=True, slots=True)
class Decided:
    ticks: Sequence[Tick]
    next_at: datetime | None  # None: never again
    has_more: bool = False  # ticks that are due and were left for the next decision


def decide(
    timing: Timing,
    next_at: datetime,
    now: datetime,
    *,
    pause: Pause | None = None,
    is_running: bool = False,
    is_waiting: bool = False,
    ends_at: datetime | None = None,
    most: int = MOST_TICKS,
) -> Decided:
    """Return the outcome of each tick from ``next_at`` to ``now``, the oldest ``most`` of them, and the next tick.

    ``is_running``: the last job of the schedule has not ended. ``is_waiting``: an earlier tick waits for its end.
    """
    due, has_older, following = _due(timing, next_at, now, ends_at)
    running = [at for at in due if pause is None or (pause.until is not None and at >= pause.until)]
    paused = [Tick(at, TickOutcome.PAUSED, pause.reason) for at in due if at not in running] if pause else []
    found = [*paused, *_judged(timing, running, now, is_running=is_running, is_waiting=is_waiting)]
    if has_older and found:
        first = found[0]
        found[0] = Tick(first.at, first.outcome, "; ".join(filter(None, [first.note, "older ticks have no rows"])))
    found = _joined(found)
    if len(found) > most:
        return Decided(found[:most], found[most].at, has_more=True)
    return Decided(found, following)


def without_firing(
    timing: Timing, next_at: datetime, now: datetime, outcome: TickOutcome, note: str, ends_at: datetime | None = None
) -> list[Tick]:
    """Return the ticks from ``next_at`` to ``now``, none of which fires for this reason."""
    return _joined([Tick(at, outcome, note) for at in _due(timing, next_at, now, ends_at)[0]])


def first_after(
    timing: Timing, now: datetime, *, starts_at: datetime | None = None, ends_at: datetime | None = None
) -> datetime | None:
    """Return the first tick after ``now`` within these bounds, or None. The end is excluded."""
    found = next_of(timing, now if starts_at is None else max(now, starts_at - MOMENT))
    return None if found is not None and ends_at is not None and found >= ends_at else found


def jittered(timing: Timing, name: str, at: datetime) -> datetime:
    """Return when the job of a tick is due: the same on every host, and spread over the width of the jitter."""
    if not timing.jitter:
        return at
    digest = hashlib.blake2b(f"{name}:{at.timestamp():.0f}".encode(), digest_size=8).digest()
    spread: timedelta = as_timedelta(timing.jitter)
    return at + spread * (int.from_bytes(digest) / 2**64)


def _due(
    timing: Timing, next_at: datetime, now: datetime, ends_at: datetime | None
) -> tuple[list[datetime], bool, datetime | None]:
    """Return the latest due ticks, whether there are older ones, and the next tick.

    ``next_at`` is one of them even if the rules of its time zone have changed since, because users have seen it.
    This goes back step by step: a schedule of every second that was not checked for a month has millions of ticks.
    """
    end = now if ends_at is None else min(now, ends_at - MOMENT)
    if next_at > end:
        return [], False, first_after(timing, now, ends_at=ends_at)
    following = _after(timing, next_at)
    if following is None or following > now:  # one tick is due, the usual case
        return [next_at], False, None if following is None or (ends_at and following >= ends_at) else following
    span, due = FIRST_LOOK_BACK, list[datetime]()
    while True:
        begin = max(next_at, end - span)
        due = [next_at] if begin == next_at else []
        due += takewhile(lambda at: at <= end, timing.ticks(begin))
        if begin == next_at or len(due) >= MOST_TICKS:
            break
        span *= 4
    has_older = begin > next_at or len(due) > MOST_TICKS
    return due[-MOST_TICKS:], has_older, first_after(timing, now, ends_at=ends_at)


@lru_cache(maxsize=1_024)
def _after(timing: Timing, tick: datetime) -> datetime | None:
    """Return the next tick. It is cached: thousands of schedules may be due at one time, with few expressions."""
    return next_of(timing, tick)


def _joined(ticks: Sequence[Tick]) -> list[Tick]:
    """Merge many consecutive ticks that do not fire into the first, with their number in its note."""
    found: list[Tick] = []
    for outcome, group in groupby(ticks, key=lambda tick: tick.outcome):
        alike = list(group)
        if len(alike) > MOST_ALIKE and outcome not in (TickOutcome.FIRED, TickOutcome.WAITING):
            first, last = alike[0], alike[-1]
            note = f"{len(alike):,} ticks until {last.at:%Y-%m-%d %H:%M:%S} UTC; {first.note}"
            alike = [Tick(first.at, outcome, note)]
        found += alike
    return found


def _judged(
    timing: Timing, due: Sequence[datetime], now: datetime, *, is_running: bool, is_waiting: bool
) -> list[Tick]:
    notes = {at: _why_missed(timing, at, now, is_latest=at == due[-1]) for at in due}
    fires = [at for at in due if not notes[at]]
    found: list[Tick] = []
    for at in due:
        if notes[at]:
            found.append(Tick(at, TickOutcome.MISSED, notes[at]))
            continue
        outcome, note = TickOutcome.FIRED, ""
        if timing.overlap == Overlap.CANCEL and at != max(fires):
            outcome, note = TickOutcome.OVERLAP, REPLACED
        elif timing.overlap == Overlap.SKIP and is_running:
            outcome, note = TickOutcome.OVERLAP, NOT_FINISHED
        elif timing.overlap == Overlap.WAIT and is_waiting:
            outcome, note = TickOutcome.OVERLAP, WAITS_ALREADY
        elif timing.overlap == Overlap.WAIT and is_running:
            outcome, note, is_waiting = TickOutcome.WAITING, NOT_FINISHED, True
        is_running = is_running or outcome is TickOutcome.FIRED
        found.append(Tick(at, outcome, note))
    return found


def _why_missed(timing: Timing, at: datetime, now: datetime, *, is_latest: bool) -> str:
    """Return why a tick does not fire; empty if it fires."""
    late = now - at
    if timing.grace is not None and late > as_timedelta(timing.grace):
        return f"{late} late, and the grace is {timing.grace}"
    if (is_latest and late <= PUNCTUAL) or timing.missed == Missed.ALL or (timing.missed == Missed.ONCE and is_latest):
        return ""
    return f"{late} late, and missed is {timing.missed!s}"
