"""The judge of the chaos of graphs finds each violation, and nothing in a history without one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chaos.graph_handlers import EFFECTS
from chaos.graph_history import BatchRow, History, JobRow, Judge, Line, NeedRow
from tests.faults import each

# Job 1 is needed by job 2. Both are in batch 7, whose callbacks are jobs 3 and 4.
GOOD = History(
    lines=[
        Line(1, "PENDING", 1),
        Line(2, "WAITING", 2),
        Line(3, "NEED", 20),
        Line(4, "WAITING", 3),
        Line(5, "WAITING", 4),
        Line(6, "NEED", 30),
        Line(7, "NEED", 40),
        Line(8, "SEALED", 7),
        Line(9, "RUNNING", 1, 1),
        Line(10, "STEP", 1, 1),
        Line(11, "COMPLETED", 1, 1),
        Line(12, "PENDING", 2),
        Line(13, "RUNNING", 2, 1),
        Line(14, "COMPLETED", 2, 1),
        Line(15, "ENDED", 7),
        Line(16, "FINISHED", 7),
        Line(17, "PENDING", 3),
        Line(18, "CANCELLED", 4),
        Line(19, "RUNNING", 3, 1),
        Line(20, "COMPLETED", 3, 1),
    ],
    needs=[
        NeedRow(20, 2, 1, None, None),
        NeedRow(30, 3, None, 7, None),
        NeedRow(40, 4, None, 7, None, "cancel", "dead"),
    ],
    jobs=[
        JobRow(1, "graph.steps", batch_id=7),
        JobRow(2, batch_id=7),
        JobRow(3, "graph.callback", args=[7, "success"]),
        JobRow(4, "graph.callback", "CANCELLED", args=[7, "dead"]),
    ],
    batches=[BatchRow(7, None, 2, ["success", "dead"])],
    effects=[(1, "first"), (1, "second"), (3, "callback")],
)


def judged(history: History) -> list[str]:
    return Judge(history, EFFECTS).broken()


def changed(lines: Iterable[Line], without: Iterable[int] = ()) -> History:
    """Return the good history with these lines instead of those that have their numbers, and without some."""
    by_number = {line.n: line for line in GOOD.lines} | {line.n: line for line in lines}
    return replace(GOOD, lines=[line for n, line in by_number.items() if n not in set(without)])


def moved(n: int, to: int) -> History:
    """Return the good history with what happened to one job at another place: between two others."""
    lines = [line._replace(n=10 * (to if line.n == n else line.n) + (5 if line.n == n else 0)) for line in GOOD.lines]
    return replace(GOOD, lines=lines)


def with_job(job: JobRow) -> History:
    return replace(GOOD, jobs=[job if one.id == job.id else one for one in GOOD.jobs])


def test_nothing_is_wrong() -> None:
    assert judged(GOOD) == []
    assert judged(History()) == []


def test_a_job_that_is_freed_too_early() -> None:
    assert "job 2 was freed before what it needs was over: job 1" in judged(moved(12, 10))


def test_a_job_that_starts_while_it_waits() -> None:
    assert judged(changed([], without=[12])) == ["job 2 started while it waited"]


def test_a_need_that_was_added_after_the_release_is_none_of_it() -> None:
    """A run has added it, and was lost before it waited."""
    late = NeedRow(50, 2, 99, None, None)
    assert judged(replace(GOOD, needs=[*GOOD.needs, late], lines=[*GOOD.lines, Line(21, "NEED", 50)])) == []


def test_a_need_on_a_batch_that_was_not_closed() -> None:
    assert "job 3 was freed before what it needs was over: batch 7" in judged(moved(17, 15))


OTHER_NEEDS = [
    (NeedRow(20, 2, None, None, "go"), False),
    (NeedRow(20, 2, None, None, "came"), True),
    (NeedRow(20, 2, None, None, "go", met="timed out"), True),
    (NeedRow(20, 2, 8, None, None), False),  # a dead letter
    (NeedRow(20, 2, 8, None, None, "continue"), True),
]


@each(OTHER_NEEDS)
def test_other_needs(need: Any, is_met: Any) -> None:
    more = [Line(0, "EVENT", 0, name="came"), Line(0, "DEAD_LETTERED", 8), Line(99, "EVENT", 0, name="go")]
    history = replace(GOOD, needs=[need, *GOOD.needs[1:]], lines=[*GOOD.lines, *more])
    assert (judged(history) == []) is is_met


def test_a_job_that_waits_for_ever() -> None:
    assert "1 jobs are WAITING, as [2]" in judged(with_job(GOOD.jobs[1]._replace(status="WAITING")))


def test_a_job_that_was_cancelled_for_no_reason() -> None:
    assert judged(with_job(GOOD.jobs[1]._replace(status="CANCELLED"))) == ["job 2 was cancelled for no reason"]


def test_a_job_that_is_over_twice() -> None:
    assert judged(replace(GOOD, lines=[*GOOD.lines, Line(21, "COMPLETED", 2)])) == ["job 2 was over 2 times"]


def test_a_batch_that_is_closed_too_early() -> None:
    assert "batch 7 finished before its job 2 was over" in judged(moved(16, 12))
    assert "batch 7 ended before its job 2 was over" in judged(moved(15, 12))
    assert judged(moved(8, 16)) == ["batch 7 ended before it was sealed", "batch 7 finished before it was sealed"]
    assert "batch 7 is not finished" in judged(changed([], without=[16]))


def test_the_jobs_of_a_batch_within_count() -> None:
    batches = [*GOOD.batches, BatchRow(8, 7)]
    lines = [*GOOD.lines, Line(21, "SEALED", 8), Line(22, "ENDED", 8), Line(23, "FINISHED", 8)]
    inside = JobRow(5, batch_id=8)
    done = [Line(0, "PENDING", 5), Line(21, "COMPLETED", 5)]
    history = replace(GOOD, batches=batches, lines=[*lines, *done], jobs=[*GOOD.jobs, inside])
    assert "batch 7 finished before its job 5 was over" in judged(history)


def test_a_job_that_is_added_to_a_closed_batch() -> None:
    late = replace(GOOD, jobs=[*GOOD.jobs, JobRow(5, batch_id=7)])
    lines = [*GOOD.lines, Line(21, "PENDING", 5), Line(22, "COMPLETED", 5)]
    assert judged(replace(late, lines=lines)) == [
        "job 5 was added to batch 7 after that was finished",
        "batch 7 has 3 jobs, 2 were planned",
    ]


def test_callbacks_that_are_missing_or_too_many() -> None:
    assert judged(with_job(GOOD.jobs[2]._replace(args=[8, "success"]))) == [
        "callback success of batch 7 is [], not ['COMPLETED']"
    ]
    twice = replace(GOOD, jobs=[*GOOD.jobs, GOOD.jobs[2]])
    assert judged(twice) == ["callback success of batch 7 is ['COMPLETED', 'COMPLETED'], not ['COMPLETED']"]


def test_a_callback_for_dead_letters_that_ignores_one() -> None:
    died = changed([Line(10, "DEAD_LETTERED", 1)])
    assert "callback dead of batch 7 is ['CANCELLED'], not ['COMPLETED']" in judged(died)
    assert (
        judged(with_job(GOOD.jobs[3]._replace(status="COMPLETED")))
        == [
            "effect callback of job 4 is missing",
            "callback dead of batch 7 is ['COMPLETED'], not ['CANCELLED']",
        ][::-1]
    )


def test_effects_that_happened_twice_or_not_at_all() -> None:
    assert judged(replace(GOOD, effects=[*GOOD.effects, (1, "first")])) == ["effect first of job 1 happened 2 times"]
    assert judged(replace(GOOD, effects=GOOD.effects[1:])) == ["effect first of job 1 is missing"]


def test_a_step_of_a_run_that_was_over() -> None:
    assert judged(moved(10, 11)) == ["a step of job 1 was written by its run 1, which was over"]


def test_children_that_are_too_many() -> None:
    fan = JobRow(8, "graph.fan", args=[1])
    children = [JobRow(9, parent_id=8), JobRow(10, parent_id=8)]
    assert judged(replace(GOOD, jobs=[*GOOD.jobs, fan, *children])) == ["job 8 has 2 children, 1 were planned"]


def test_what_else_is_wrong() -> None:
    assert judged(replace(GOOD, refused=["no"], differing=[1], deadlocks=2, unresolved=3)) == [
        "no",
        "2 deadlocks",
        "3 changes were not resolved",
        "job 1 returned something else than its step",
    ]
