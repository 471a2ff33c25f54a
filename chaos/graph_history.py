"""What happened to jobs that need each other, and whether it was allowed: the judge of ``chaos.graphs``.

Triggers write a line for each change, and number them. A number is taken before the commit of what it stands for, and
whoever acts on that does so after the commit. So if a need has a smaller number than the release of a job, it was over
before; the server's clock may be set meanwhile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

OVER = frozenset({"COMPLETED", "CANCELLED"})
ENDED = OVER | {"DEAD_LETTERED"}
NEVER = float("inf")
CALLBACK = "graph.callback"


class Line(NamedTuple):
    """A job that has another status, a batch that is sealed, ended or finished, a step, a need or an event."""

    n: int
    what: str
    id: int  # of the job, the batch or the need
    attempt: int = 0
    name: str = ""  # of the event


class NeedRow(NamedTuple):
    id: int
    job_id: int
    needs: int | None
    needs_batch: int | None
    needs_event: str | None
    on_need_failed: str = "wait"
    moment: str = "finished"
    met: str | None = None


class JobRow(NamedTuple):
    id: int
    task: str = "graph.work"
    status: str = "COMPLETED"
    batch_id: int | None = None
    parent_id: int | None = None
    args: Sequence[Any] = ()


class BatchRow(NamedTuple):
    id: int
    parent_id: int | None = None
    planned: int | None = None  # members
    callbacks: Sequence[str] = ()


@dataclass
class History:
    lines: Sequence[Line] = ()
    needs: Sequence[NeedRow] = ()
    jobs: Sequence[JobRow] = ()
    batches: Sequence[BatchRow] = ()
    effects: Sequence[tuple[int, str]] = ()  # job and name, for each time
    refused: Sequence[str] = ()  # what a client could not do
    differing: Sequence[int] = ()  # jobs whose result is not what their step returned
    deadlocks: int = 0
    unresolved: int = 0


@dataclass
class Judge:
    """Compares a history with what is allowed."""

    history: History
    effects: Mapping[str, Sequence[str]]  # of a completed job of each task
    of_job: dict[int, list[Line]] = field(default_factory=lambda: defaultdict(list))
    of_batch: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    events: dict[str, int] = field(default_factory=dict)
    needed_since: dict[int, int] = field(default_factory=dict)
    members: dict[int, list[JobRow]] = field(default_factory=lambda: defaultdict(list))  # of a batch, not of its parts
    parts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for line in sorted(self.history.lines):
            if line.what in ("SEALED", "ENDED", "FINISHED"):
                self.of_batch[line.id].setdefault(line.what, line.n)
            elif line.what == "EVENT":
                self.events[line.name] = line.n
            elif line.what == "NEED":
                self.needed_since[line.id] = line.n
            else:
                self.of_job[line.id].append(line)
        for job in self.history.jobs:
            if job.batch_id is not None:
                self.members[job.batch_id].append(job)
        for batch in self.history.batches:
            if batch.parent_id is not None:
                self.parts[batch.parent_id].append(batch.id)

    def broken(self) -> list[str]:
        return [
            *self.history.refused,
            *self._starts(),
            *self._ends(),
            *self._batches(),
            *self._callbacks(),
            *self._effects(),
            *self._steps(),
            *self._children(),
            *([f"{self.history.deadlocks} deadlocks"] if self.history.deadlocks else []),
            *([f"{self.history.unresolved} changes were not resolved"] if self.history.unresolved else []),
            *(f"job {job_id} returned something else than its step" for job_id in self.history.differing),
        ]

    # Starts

    def _starts(self) -> Iterator[str]:
        needs: dict[int, list[NeedRow]] = defaultdict(list)
        for need in self.history.needs:
            needs[need.job_id].append(need)
        for job_id, lines in self.of_job.items():
            status = ""
            for line in lines:
                if line.what == "RUNNING" and status == "WAITING":
                    yield f"job {job_id} started while it waited"
                elif line.what == "PENDING" and status == "WAITING":
                    for need in needs[job_id]:
                        if self.needed_since.get(need.id, 0) < line.n and not self._is_met(need, line.n):
                            yield f"job {job_id} was freed before what it needs was over: {_said(need)}"
                status = line.what if line.what != "STEP" else status

    def _is_met(self, need: NeedRow, by: float) -> bool:
        if need.needs is not None:
            enough = ENDED if need.on_need_failed == "continue" else {"COMPLETED"}
            return self._first(need.needs, enough) < by
        if need.needs_batch is not None:
            marks = self.of_batch[need.needs_batch]
            if need.moment == "dead":
                return marks.get("SEALED", NEVER) < by and self._died(need.needs_batch) < by
            moment = "ENDED" if need.moment == "ended" or need.on_need_failed == "continue" else "FINISHED"
            return marks.get(moment, NEVER) < by
        return need.met == "timed out" or self.events.get(need.needs_event or "", NEVER) < by

    def _first(self, job_id: int, statuses: Collection[str]) -> float:
        return min((line.n for line in self.of_job[job_id] if line.what in statuses), default=NEVER)

    def _within(self, batch_id: int) -> Iterator[JobRow]:
        yield from self.members[batch_id]
        for part in self.parts[batch_id]:
            yield from self._within(part)

    def _died(self, batch_id: int) -> float:
        return min((self._first(job.id, {"DEAD_LETTERED"}) for job in self._within(batch_id)), default=NEVER)

    # Ends

    def _ends(self) -> Iterator[str]:
        left: dict[str, list[int]] = defaultdict(list)
        reasons = self._lost_needs()
        for job in self.history.jobs:
            if job.status not in OVER:
                left[job.status].append(job.id)
            elif job.status == "CANCELLED" and job.id not in reasons:
                yield f"job {job.id} was cancelled for no reason"
            times = sum(line.what in OVER for line in self.of_job[job.id])
            if times > 1:
                yield f"job {job.id} was over {times} times"
        for status, ids in left.items():
            yield f"{len(ids)} jobs are {status}, as {ids[:5]}"
        waits = set(left["WAITING"]) - {need.job_id for need in self.history.needs if not self._is_met(need, NEVER)}
        if waits:
            yield f"{len(waits)} jobs wait, though all that they need is over, as {sorted(waits)[:5]}"

    def _lost_needs(self) -> set[int]:
        """Return jobs that may be cancelled: what they need was, or died, or nothing died."""
        found = set()
        status = {job.id: job.status for job in self.history.jobs}
        for need in self.history.needs:
            if need.needs is not None:
                died = need.on_need_failed == "cancel" and self._first(need.needs, {"DEAD_LETTERED"}) < NEVER
                is_lost = status.get(need.needs) == "CANCELLED" or died
            elif need.needs_batch is not None:
                died = self._died(need.needs_batch) < NEVER
                is_lost = not died if need.moment == "dead" else died and need.on_need_failed == "cancel"
            else:
                is_lost = False
            if is_lost:
                found.add(need.job_id)
        return found

    # Batches

    def _batches(self) -> Iterator[str]:
        for batch in self.history.batches:
            marks = self.of_batch[batch.id]
            sealed, finished = marks.get("SEALED", NEVER), marks.get("FINISHED", NEVER)
            if finished == NEVER:
                yield f"batch {batch.id} is not finished"
            for moment, at, enough in (("ended", marks.get("ENDED", NEVER), ENDED), ("finished", finished, OVER)):
                if at < NEVER and sealed >= at:
                    yield f"batch {batch.id} {moment} before it was sealed"
                for job in self._within(batch.id) if at < NEVER else ():
                    born = min((line.n for line in self.of_job[job.id]), default=0)
                    if born < at and self._first(job.id, enough) > at:
                        yield f"batch {batch.id} {moment} before its job {job.id} was over"
                    if born > at and enough is OVER:
                        yield f"job {job.id} was added to batch {batch.id} after that was finished"
            found = len(self.members[batch.id])
            if batch.planned is not None and found != batch.planned:
                yield f"batch {batch.id} has {found} jobs, {batch.planned} were planned"

    def _callbacks(self) -> Iterator[str]:
        found: dict[tuple[int, str], list[str]] = defaultdict(list)
        for job in self.history.jobs:
            if job.task == CALLBACK:
                found[job.args[0], job.args[1]].append(job.status)
        for batch in self.history.batches:
            for kind in batch.callbacks:
                never = kind == "dead" and self._died(batch.id) == NEVER
                expected = ["CANCELLED" if never else "COMPLETED"]
                if found[batch.id, kind] != expected:
                    yield f"callback {kind} of batch {batch.id} is {found[batch.id, kind]}, not {expected}"

    # Effects

    def _effects(self) -> Iterator[str]:
        times = Counter(self.history.effects)
        for (job_id, name), count in times.items():
            if count > 1:
                yield f"effect {name} of job {job_id} happened {count} times"
        for job in self.history.jobs:
            for name in self.effects.get(job.task, ()) if job.status == "COMPLETED" else ():
                if not times[job.id, name]:
                    yield f"effect {name} of job {job.id} is missing"

    def _steps(self) -> Iterator[str]:
        for job_id, lines in self.of_job.items():
            running = 0
            for line in lines:
                if line.what != "STEP":
                    running = line.attempt if line.what == "RUNNING" else 0
                elif line.attempt != running:
                    yield f"a step of job {job_id} was written by its run {line.attempt}, which was over"

    def _children(self) -> Iterator[str]:
        found = Counter(job.parent_id for job in self.history.jobs)
        for job in self.history.jobs:
            if job.task == "graph.fan" and job.status == "COMPLETED" and found[job.id] != job.args[0]:
                yield f"job {job.id} has {found[job.id]} children, {job.args[0]} were planned"


def _said(need: NeedRow) -> str:
    if need.needs is not None:
        return f"job {need.needs}"
    return f"batch {need.needs_batch}" if need.needs_batch is not None else f"event {need.needs_event}"
