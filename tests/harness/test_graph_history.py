"""The judge of the chaos of graphs finds each violation, and nothing in a history without one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chaos.graph_handlers import EFFECTS
from chaos.graph_history import BatchRow, History, JobRow, Judge, Line, NeedRow
from tests.faults import each_of

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


def with_lines(*lines: Line, **facts: Any) -> History:
    return replace(GOOD, lines=[*GOOD.lines, *lines], **facts)


INSIDE = [
    *(Line(0, "PENDING", 5), Line(21, "COMPLETED", 5)),
    *(Line(21, "SEALED", 8), Line(22, "ENDED", 8), Line(23, "FINISHED", 8)),
]
FAN = [JobRow(8, "graph.fan", args=[1]), JobRow(9, parent_id=8), JobRow(10, parent_id=8)]
# Of each history: all that is wrong with it.
BROKEN: list[tuple[History, list[str]]] = [
    (GOOD, []),
    (History(), []),
    # a run has added a need, and was lost before it waited
    (with_lines(Line(21, "NEED", 50), needs=[*GOOD.needs, NeedRow(50, 2, 99, None, None)]), []),
    (moved(12, 10), ["job 2 was freed before what it needs was over: job 1"]),
    (changed([], without=[12]), ["job 2 started while it waited"]),
    (moved(17, 15), ["job 3 was freed before what it needs was over: batch 7"]),
    (
        with_job(GOOD.jobs[1]._replace(status="WAITING")),
        ["1 jobs are WAITING, as [2]", "1 jobs wait, though all that they need is over, as [2]"],
    ),
    (with_job(GOOD.jobs[1]._replace(status="CANCELLED")), ["job 2 was cancelled for no reason"]),
    (with_lines(Line(21, "COMPLETED", 2)), ["job 2 was over 2 times"]),
    (moved(16, 12), ["batch 7 finished before its job 2 was over"]),
    (moved(15, 12), ["batch 7 ended before its job 2 was over"]),
    (moved(8, 16), ["batch 7 ended before it was sealed", "batch 7 finished before it was sealed"]),
    (changed([], without=[16]), ["job 3 was freed before what it needs was over: batch 7", "batch 7 is not finished"]),
    (
        with_lines(*INSIDE, batches=[*GOOD.batches, BatchRow(8, 7)], jobs=[*GOOD.jobs, JobRow(5, batch_id=8)]),
        [
            "batch 7 ended before its job 5 was over",
            "batch 7 finished before its job 5 was over",
        ],
    ),
    (
        with_lines(Line(21, "PENDING", 5), Line(22, "COMPLETED", 5), jobs=[*GOOD.jobs, JobRow(5, batch_id=7)]),
        ["job 5 was added to batch 7 after that was finished", "batch 7 has 3 jobs, 2 were planned"],
    ),
    (with_job(GOOD.jobs[2]._replace(args=[8, "success"])), ["callback success of batch 7 is [], not ['COMPLETED']"]),
    (
        replace(GOOD, jobs=[*GOOD.jobs, GOOD.jobs[2]]),
        ["callback success of batch 7 is ['COMPLETED', 'COMPLETED'], not ['COMPLETED']"],
    ),
    (
        changed([Line(10, "DEAD_LETTERED", 1)]),
        ["job 4 was cancelled for no reason", "callback dead of batch 7 is ['CANCELLED'], not ['COMPLETED']"],
    ),  # a callback for dead letters ignores one
    (
        with_job(GOOD.jobs[3]._replace(status="COMPLETED")),
        ["callback dead of batch 7 is ['COMPLETED'], not ['CANCELLED']", "effect callback of job 4 is missing"],
    ),
    (replace(GOOD, effects=[*GOOD.effects, (1, "first")]), ["effect first of job 1 happened 2 times"]),
    (replace(GOOD, effects=GOOD.effects[1:]), ["effect first of job 1 is missing"]),
    (moved(10, 11), ["a step of job 1 was written by its run 1, which was over"]),
    (replace(GOOD, jobs=[*GOOD.jobs, *FAN]), ["job 8 has 2 children, 1 were planned"]),
    (
        replace(GOOD, refused=["no"], differing=[1], deadlocks=2, unresolved=3),
        ["no", "2 deadlocks", "3 changes were not resolved", "job 1 returned something else than its step"],
    ),
]


@each_of(*BROKEN)
def test_what_is_wrong_is_found_and_nothing_else(*, history: Any, broken: Any) -> None:
    assert judged(history) == broken


OTHER_NEEDS = [
    (NeedRow(20, 2, None, None, "go"), False),
    (NeedRow(20, 2, None, None, "came"), True),
    (NeedRow(20, 2, None, None, "go", met="timed out"), True),
    (NeedRow(20, 2, 8, None, None), False),  # a dead letter
    (NeedRow(20, 2, 8, None, None, "continue"), True),
]


@each_of(*OTHER_NEEDS)
def test_other_needs(*, need: Any, is_met: Any) -> None:
    more = [Line(0, "EVENT", 0, name="came"), Line(0, "DEAD_LETTERED", 8), Line(99, "EVENT", 0, name="go")]
    history = replace(GOOD, needs=[need, *GOOD.needs[1:]], lines=[*GOOD.lines, *more])
    assert (judged(history) == []) is is_met
