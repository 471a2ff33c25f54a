"""The judge of the chaos of limits finds what is above a limit, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from chaos.limit_history import Line, Verdict, judge
from pulse_django.limits.rules import Limit, Rate
from tests.faults import each_of

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TWO = Limit("api", max_running=2, max_running_per_key=1)
THREE_A_SECOND = Limit("rate", rate=Rate(3, per=SECOND), rate_per_key=Rate(2, per=SECOND))


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def begin(seconds: float, lane_key: str) -> Line:
    return Line(at(seconds), at(seconds), lane_key, 1)


def end(seconds: float, lane_key: str) -> Line:
    return Line(at(seconds), None, lane_key, -1)


def judged(*lines: Line, unsure: bool = False) -> Verdict:
    return judge(lines, (TWO, THREE_A_SECOND), lambda _: unsure)


HEAVY = begin(0, "api:a")._replace(weight=2)
STARTS = [begin(seconds, f"rate:{place}") for place, seconds in enumerate((0.0, 0.9, 1.1, 1.5, 1.8))]
JUDGED: list[tuple[list[Line], list[str]]] = [
    ([HEAVY, HEAVY._replace(step=-1, began_at=None), begin(1, "api:b")], ["api:a: 2 leases at once, 1 are allowed"]),
    ([HEAVY, begin(1, "api:b")], ["api:a: 2 leases at once, 1 are allowed", "api: 3 leases at once, 2 are allowed"]),
    ([begin(0, "api:a"), begin(1, "api:b"), begin(2, "api:c")], ["api: 3 leases at once, 2 are allowed"]),
    ([begin(0, "api:a"), begin(1, "api:a")], ["api:a: 2 leases at once, 1 are allowed"]),
    (STARTS, ["rate: 4 starts within 0:00:01, 3 are allowed"]),  # in any window
    (STARTS[:4], []),
    ([begin(at, "rate:a") for at in (0.0, 0.5, 0.999)], ["rate:a: 3 starts within 0:00:01, 2 are allowed"]),
    ([begin(0, ":a")] * 50, []),  # shares have no limit
]


@each_of(*JUDGED)
def test_what_is_above_a_limit_is_found_and_nothing_else(*, lines: Any, broken: Any) -> None:
    assert sorted(judged(*lines).broken) == sorted(broken)
    assert judged(*lines, unsure=True).broken == ([] if "rate" in lines[0].lane_key else judged(*lines).broken)


def test_as_many_as_allowed_are_right_in_the_order_of_the_lines_and_not_of_their_clock() -> None:
    verdict = judged(begin(0, "api:a"), begin(0, "api:b"), end(1, "api:a"), begin(1, "api:c"), end(2, "api:b"))
    assert verdict.broken == []
    assert (verdict.most["api at once"], verdict.used["api"]) == (2, 1.0)
    set_back = judged(begin(5, "api:a"), end(9, "api:a"), begin(6, "api:a"), end(8, "api:a"))
    assert (set_back.broken, set_back.used["api"]) == ([], 0.5)


def test_a_queue_counts_all_limited_jobs_in_it() -> None:
    def lines(*lane_keys: str) -> list[Line]:
        return [Line(at(0), at(0), lane_key, 1, "bulk") for lane_key in lane_keys]

    two = {"bulk": Limit(max_running=2)}
    assert judge(lines("queue=bulk", "api:a"), (TWO,), lambda _: False, two).broken == []
    [broken] = judge(lines("queue=bulk", "api:a", "queue=bulk"), (TWO,), lambda _: False, two).broken
    assert broken == "queue=bulk: 3 leases at once, 2 are allowed"
    assert judge(lines("", "", ""), (TWO,), lambda _: False, two).broken == []
