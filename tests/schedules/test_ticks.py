"""The outcome of each tick: missed, grace, overlap, pause and bounds as one table, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from pulse_django.schedules.tick_rules import MOST_TICKS, Pause, Tick, TickOutcome, decide, first_after, jittered
from pulse_django.schedules.timings import Cron, Every, Missed, Overlap
from tests.faults import all_faults, each_of

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
F, W, M, O, P = (  # noqa: E741 - as the table writes them
    TickOutcome.FIRED,
    TickOutcome.WAITING,
    TickOutcome.MISSED,
    TickOutcome.OVERLAP,
    TickOutcome.PAUSED,
)


def outcomes(now: datetime, next_at: datetime = NOON, *, every: timedelta = HOUR, **given: Any) -> str:
    """Decide hourly ticks, and spell each outcome by its first letter."""
    known = {name: given.pop(name) for name in ("pause", "is_running", "is_waiting", "ends_at") if name in given}
    decided = decide(Every(every, **given), next_at, now, **known)
    return "".join(tick.outcome.value[0] for tick in decided.ticks)


# Each line: missed, overlap, what is known of the last job, and the outcomes of three ticks (the second decided an hour
# late, and so on) when the last of them is decided after so long.
TABLE = [
    # missed   overlap   running waiting  1 s    30 min
    ("once", "skip", False, False, "MMF", "MMF"),
    ("once", "skip", True, False, "MMO", "MMO"),
    ("once", "allow", True, False, "MMF", "MMF"),
    ("once", "wait", False, False, "MMF", "MMF"),
    ("once", "wait", True, False, "MMW", "MMW"),
    ("once", "wait", True, True, "MMO", "MMO"),
    ("once", "cancel", True, False, "MMF", "MMF"),
    ("skip", "skip", False, False, "MMF", "MMM"),
    ("skip", "skip", True, False, "MMO", "MMM"),
    ("skip", "allow", True, False, "MMF", "MMM"),
    ("skip", "wait", True, False, "MMW", "MMM"),
    ("skip", "wait", True, True, "MMO", "MMM"),
    ("skip", "cancel", True, False, "MMF", "MMM"),
    ("all", "skip", False, False, "FOO", "FOO"),
    ("all", "skip", True, False, "OOO", "OOO"),
    ("all", "allow", False, False, "FFF", "FFF"),
    ("all", "allow", True, False, "FFF", "FFF"),
    ("all", "wait", False, False, "FWO", "FWO"),
    ("all", "wait", True, False, "WOO", "WOO"),
    ("all", "wait", True, True, "OOO", "OOO"),
    ("all", "cancel", True, False, "OOF", "OOF"),
]


def test_missed_overlap_grace_and_pause() -> None:
    with all_faults() as about:
        for (missed, overlap, is_running, is_waiting, soon, late), grace, pause in product(
            TABLE, [None, 20 * MINUTE, 90 * MINUTE], [None, "on", "ended before the last"]
        ):
            with about((missed, overlap, is_running, is_waiting, soon, late, grace, pause)):
                for after, expected in ((SECOND, soon), (30 * MINUTE, late)):
                    now = NOON + 2 * HOUR + after
                    ticks = [NOON, NOON + HOUR, NOON + 2 * HOUR]
                    is_in_grace = [grace is None or now - at <= grace for at in ticks]
                    until = {None: NOON, "on": now + HOUR, "ended before the last": NOON + 90 * MINUTE}[pause]
                    judged = [at >= until for at in ticks]
                    if not all(is_in_grace) or not all(judged):
                        expected = simulated(missed, overlap, is_running, is_waiting, ticks, now, is_in_grace, judged)
                    paused = None if pause is None else Pause(reason="no", until=None if pause == "on" else until)
                    found = outcomes(
                        now,
                        missed=missed,
                        overlap=overlap,
                        grace=grace,
                        is_running=is_running,
                        is_waiting=is_waiting,
                        pause=paused,
                    )
                    assert found == expected, (missed, overlap, is_running, is_waiting, grace, pause, after)


def simulated(
    missed: str,
    overlap: str,
    is_running: bool,
    is_waiting: bool,
    ticks: list[datetime],
    now: datetime,
    is_in_grace: list[bool],
    judged: list[bool],
) -> str:
    """Say the same as the table in the words of the documentation, tick by tick."""
    said = []
    for place, at in enumerate(ticks):
        is_last = place == len(ticks) - 1
        if not judged[place]:
            said.append("P")
        elif not is_in_grace[place] or (missed != "all" and not is_last) or (missed == "skip" and now - at > MINUTE):
            said.append("M")
        elif (overlap == "cancel" and not is_last) or (overlap == "skip" and is_running):
            said.append("O")
        elif overlap == "wait" and is_running:
            said.append("O" if is_waiting else "W")
            is_waiting = True
        else:
            said.append("F")
            is_running = True
    return "".join(said)


def test_every_tick_that_does_not_fire_says_why() -> None:
    for missed in Missed:
        for overlap in Overlap:
            decided = decide(Every(HOUR, missed=missed, overlap=overlap), NOON, NOON + 3 * HOUR, is_running=True)
            assert all(tick.note for tick in decided.ticks if tick.outcome is not F)


def test_the_next_tick_is_later_than_now() -> None:
    decided = decide(Every(HOUR), NOON, NOON + 90 * MINUTE)
    assert decided.next_at == NOON + 2 * HOUR
    assert decide(Every(HOUR), NOON, NOON).next_at == NOON + HOUR


def test_a_schedule_has_no_tick_at_its_end_and_after() -> None:
    end = NOON + 2 * HOUR
    assert outcomes(NOON + 5 * HOUR, missed="all", overlap="allow", ends_at=end) == "FF"
    assert decide(Every(HOUR), NOON + HOUR, NOON + HOUR, ends_at=end).next_at is None
    assert first_after(Every(HOUR), NOON, ends_at=NOON + HOUR) is None


def test_the_first_tick_may_be_at_the_start() -> None:
    assert first_after(Every(HOUR), NOON, starts_at=NOON + 3 * HOUR) == NOON + 3 * HOUR
    assert first_after(Every(HOUR), NOON + 5 * HOUR, starts_at=NOON) == NOON + 6 * HOUR


def test_a_schedule_that_was_not_looked_at_for_a_year_is_bounded() -> None:
    decided = decide(Every(SECOND, missed="all", overlap="allow"), NOON, NOON + timedelta(days=365))
    assert len(decided.ticks) == MOST_TICKS
    assert decided.ticks[-1] == Tick(NOON + timedelta(days=365), F)
    assert decided.ticks[0].note == "older ticks have no rows"
    yearly = decide(Cron("0 12 1 6 *", missed="all", overlap="allow"), NOON, NOON.replace(year=2036))
    assert [tick.at.year for tick in yearly.ticks] == list(range(2026, 2037))


def test_the_instant_that_was_announced_is_a_tick_whatever_the_rules_say_now() -> None:
    decided = decide(Every(HOUR), NOON + MINUTE, NOON + 2 * MINUTE)
    assert decided.ticks == [Tick(NOON + MINUTE, F)]
    assert decided.next_at == NOON + HOUR


def test_jitter_is_the_same_everywhere_and_spreads() -> None:
    timing = Every(HOUR, jitter=10 * MINUTE)
    late = [jittered(timing, f"customer {number}", NOON) - NOON for number in range(1_000)]
    assert all(timedelta() <= one < 10 * MINUTE for one in late)
    assert sum(one < 5 * MINUTE for one in late) == pytest.approx(500, abs=80)
    assert jittered(timing, "warm", NOON) == jittered(timing, "warm", NOON)
    assert jittered(Every(HOUR), "warm", NOON) == NOON


@each_of(*list(Missed))
def test_a_tick_in_time_fires_whatever_happens_to_missed_ones(*, missed: Any) -> None:
    assert outcomes(NOON + MINUTE, missed=missed) == "F"
