"""The judge of the chaos of limits finds what is above a limit, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from chaos.limit_history import Line, Verdict, judge
from pulse_django.limits.rules import Limit, Rate

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


def test_as_many_as_allowed_are_right() -> None:
    verdict = judged(begin(0, "api:a"), begin(0, "api:b"), end(1, "api:a"), begin(1, "api:c"), end(2, "api:b"))
    assert verdict.broken == []
    assert verdict.most["api at once"] == 2
    assert verdict.used["api"] == 1.0


def test_a_heavy_lease_counts_as_much_as_it_weighs() -> None:
    heavy = begin(0, "api:a")._replace(weight=2)
    assert judged(heavy, heavy._replace(step=-1, began_at=None), begin(1, "api:b")).broken == [
        "api:a: 2 leases at once, 1 are allowed"
    ]
    assert "api: 3 leases at once, 2 are allowed" in judged(heavy, begin(1, "api:b")).broken


def test_one_more_in_all_is_found() -> None:
    assert judged(begin(0, "api:a"), begin(1, "api:b"), begin(2, "api:c")).broken == [
        "api: 3 leases at once, 2 are allowed"
    ]


def test_one_more_of_a_key_is_found() -> None:
    assert judged(begin(0, "api:a"), begin(1, "api:a")).broken == ["api:a: 2 leases at once, 1 are allowed"]


def test_the_order_of_the_lines_counts_and_not_their_clock() -> None:
    """The clock was set back: what ended before the next began stands before it."""
    verdict = judged(begin(5, "api:a"), end(9, "api:a"), begin(6, "api:a"), end(8, "api:a"))
    assert verdict.broken == []
    assert verdict.used["api"] == 0.5


def test_a_window_is_any_window() -> None:
    starts = [begin(seconds, f"rate:{place}") for place, seconds in enumerate((0.0, 0.9, 1.1, 1.5, 1.8))]
    assert judged(*starts).broken == ["rate: 4 starts within 0:00:01, 3 are allowed"]
    assert judged(*starts[:4]).broken == []
    assert judged(*starts, unsure=True).broken == []


def test_a_window_of_a_key() -> None:
    starts = [begin(seconds, "rate:a") for seconds in (0.0, 0.5, 0.999)]
    assert judged(*starts).broken == ["rate:a: 3 starts within 0:00:01, 2 are allowed"]


def test_shares_have_no_limit() -> None:
    assert judged(*(begin(0, ":a") for _ in range(50))).broken == []


def test_a_queue_counts_all_limited_jobs_in_it() -> None:
    def lines(*lane_keys: str) -> list[Line]:
        return [Line(at(0), at(0), lane_key, 1, "bulk") for lane_key in lane_keys]

    two = {"bulk": Limit(max_running=2)}
    assert judge(lines("queue=bulk", "api:a"), (TWO,), lambda _: False, two).broken == []
    [broken] = judge(lines("queue=bulk", "api:a", "queue=bulk"), (TWO,), lambda _: False, two).broken
    assert broken == "queue=bulk: 3 leases at once, 2 are allowed"
    assert judge(lines("", "", ""), (TWO,), lambda _: False, two).broken == []
