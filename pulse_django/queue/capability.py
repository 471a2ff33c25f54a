"""Extension points: the parts that a capability hands in, and the capabilities that are installed.

Verbs, workers and watchdogs ask ``installed()``. None of them knows a capability by name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar

from .words.display import without
from .words.lanes import Lane
from .words.leases import Claim, Identity

if TYPE_CHECKING:
    from pulse_django.managers import JobManager
    from pulse_django.models import Job
    from pulse_django.run.judging import Performed
    from pulse_django.run.registry import Task
    from pulse_django.run.run import ChunkRun, Run
    from pulse_django.worker.in_flight import InFlight

    from .claim import Claims, Slots
    from .database.job_queries import JobReader
    from .enqueue import Added
    from .words.job_options import NewJob, Payload

P = ParamSpec("P")
T = TypeVar("T")
NO_FACTS = "SELECT NULL::timestamptz AS opens_at, ''::text AS reason, ''::text AS shut_by"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A condition of a start, in SQL without parameters: about a job, or about the lane that it waits in. NULL: shut.

    A gate of lanes is asked once for each lane, before any of its jobs is read. A gate of jobs is asked for each job.
    """

    code: str  # of the reason that explain() gives if it is shut
    sentence: Any  # of that reason, to be translated
    sentence_until: Any = ""  # the same if it is known when the gate opens: %(until)s
    about: tuple[str, ...] = ()  # names in both: queue, task, key, or at, the instant at which the job expires
    facts: str = NO_FACTS  # a query for at most one row: when it opens, why it is shut, and by whom
    lane: str = ""  # {lane} is a relation with queue and key
    job: str = ""  # {job} is a row of jobs
    of_keys: bool = False  # it shuts lanes with a key alone; lanes without one do not ask
    of_tasks: bool = False  # it reads the task and the queue alone: the jobs that it shuts out are set aside
    may_shut: str = "true"  # of such a gate: a condition, whether it may shut out any job now
    by_id: bool = False  # a claim of certain jobs asks it, too

    def __post_init__(self) -> None:
        if bool(self.lane) is bool(self.job):
            raise ValueError(f"{self.code}: a gate is about a lane or about a job")
        if "{lane}.key" in self.lane and not self.of_keys:
            raise ValueError(f"{self.code}: a gate that reads the key of a lane is of_keys")
        if "%" in self.lane + self.job + self.facts + self.may_shut:
            raise ValueError(f"{self.code}: %: statements have parameters, which it would be taken for")
        # It could become a join, and lanes would be visited in another order.
        if re.search(r"\b(EXISTS|IN|ANY|SOME|ALL)\s*\(\s*(SELECT|VALUES)\b", self.lane + self.job, re.IGNORECASE):
            raise ValueError(f"{self.code}: ask for an ARRAY(SELECT ...), or for a scalar in COALESCE")


Group = tuple[str, ...]  # names of what claims from some lanes wait for: groups that share one are freed together


class WorkerDatabase(Protocol):
    """The connection of a thread that claims."""

    @property
    def alias(self) -> str: ...
    @property
    def jobs(self) -> JobManager: ...
    def call(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    def hang_up(self) -> None: ...


class Bounds(NamedTuple):
    """How many jobs may run at once. None: any number."""

    of_group: int | None
    of_lane: int | None


class LaneClaim(NamedTuple):
    """The result of a claim from lanes of one group."""

    claims: Claims
    allowed: Mapping[Lane, int] = MappingProxyType({})  # of each lane; nothing if they were fewer in all
    shut_for: float | None = None  # seconds in which the group gives nothing, if it gave nothing now
    refusal: tuple[str, str] | None = None  # the name that let nothing start, and the reason
    may_wait: Bounds | None = None  # jobs of the group may be claimed before they have a slot; None: they may not


class LaneClaimer(Protocol):
    """Claims from lanes by a statement of its own. A child has one for each shard."""

    # One claim is for lanes of one group. Empty: the lane is not its own.
    def group_of(self, lane: Lane) -> Group: ...
    def prepare(self) -> None: ...
    def claim(
        self, group: Group, lanes: Sequence[Lane], takes: Mapping[Lane, int], *, limit: int, slots: Slots
    ) -> LaneClaim: ...


class Gatherer(Protocol):
    """Gathers runs between their claim and their handler, which is called once for several of them."""

    def add(self, runs: Sequence[Run]) -> Sequence[Run]: ...  # returns what is to start now
    def due(self) -> Sequence[Run]: ...
    def due_in(self) -> float: ...
    def take_back(self) -> Sequence[Run]: ...


class Chunking(NamedTuple):
    """Calls the handlers of tasks that take several jobs at once."""

    gatherer: Callable[[InFlight, Callable[[Run, Performed], None], Callable[[], float]], Gatherer]
    perform: Callable[[ChunkRun, Task | None], Performed]
    perform_async: Callable[[ChunkRun, Task], Awaitable[Performed]]


class OfCall(NamedTuple):
    """Fields of a new job that a capability makes from a call."""

    is_used: Callable[[Task], bool]  # asked once for each task
    fields: Callable[[Task, Sequence[Any], Mapping[str, Any]], dict[str, Any]]
    hides: bool = False  # it masks or encrypts


class Clauses(NamedTuple):
    """The clauses of an INSERT that admits a job, with their parameters."""

    take: str = ""  # a CTE ``taken`` with the id of the job, if it may be inserted
    take_params: tuple[Any, ...] = ()
    conflict: str = ""  # ON CONFLICT, for a key that another job holds
    conflict_params: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return without(self, "take_params", "conflict_params")


class OnInsert(NamedTuple):
    """Admits a new job, or finds the job that stands in its place."""

    fields: tuple[str, ...]  # of NewJob: a job that has one of them asks for it
    columns: Callable[[NewJob], dict[str, Any]]
    clauses: Callable[[str, NewJob], Clauses]
    inserted: Callable[[JobReader, NewJob, int], object]
    changed: Callable[[JobReader, int], Job]  # the job that ON CONFLICT has changed instead
    kept: Callable[[JobReader, NewJob], Job | None]  # that was not changed; None: there is none now, so insert again
    many: Callable[[JobReader, Sequence[tuple[NewJob, Payload]], Callable[[int], object] | None], list[int]]


class AroundInsert(NamedTuple):
    """Encloses the INSERT of jobs that belong to something, in one transaction."""

    field: str  # of NewJob: a job that has it may be concerned
    concerns: Callable[[NewJob], bool]
    one: Callable[[JobReader, NewJob, Callable[[JobReader, NewJob], Added | Job]], Added | Job]
    many: Callable[..., list[int]]  # jobs, all new jobs, what inserts them; are_new: no key can lead to another job


class OnRetry(NamedTuple):
    """Retries dead letters that may be refused, in a statement of its own."""

    are_own: str  # a condition in SQL on the row of a dead letter
    # Ids with their places in line, and the parameters of the statement; returns which were retried and refused.
    retry: Callable[[JobReader, Sequence[tuple[int, int]], dict[str, Any]], tuple[set[int], set[int]]]


class Codec(NamedTuple):
    """How arguments, progress and results of jobs are stored, and how much of them may be shown."""

    opened: Callable[[Claim], Claim]  # with the arguments that the handler gets
    stored: Callable[[Claim, str, str], str]  # a text of a run, as the column or the step of that name keeps it
    read: Callable[[Claim, Any, str], Any]  # the value of such a text, from what was stored
    arguments_of: Callable[[Job], tuple[list[Any], dict[str, Any]]]
    value_of: Callable[[Job, str], Any]  # its progress or its result
    hides_result: Callable[[Task, str | None], bool]  # by its task, or by the mask that stands on the job
    shown: Callable[
        [str, Sequence[Any], Mapping[str, Any], str | None], tuple[list[Any], dict[str, Any]] | None
    ]  # arguments for logs and pages, by task and mask; None: this process does not know the task


class AtEnd(NamedTuple):
    """Writes rows about the ends of runs for those who wait for the jobs: in the statement that ends them."""

    columns: Mapping[str, str]  # of a job's row, with their types: what the other parts read of it
    over: str  # an INSERT for jobs of ``{gone}`` that are completed or cancelled; ``{status}`` is which. Empty: none
    stayed: str  # an INSERT for runs of ``{stayed}`` with another ``verdict``
    is_noted: str  # a condition on a run that ended: whether one of the two has written a row, so ``when_over`` follows
    may_fail: bool = False  # a run that cannot end with the row of ``stayed`` ends without it


class AfterRun(NamedTuple):
    """Hooks that run after a handler, before its run is judged."""

    concerns: Callable[[Run, Task, BaseException], bool]  # whether ``failed`` may ask the database
    failed: Callable[[Run, Task, BaseException], BaseException]  # returns the error that the run ends with
    succeeded: Callable[[Run], None]  # of a run whose end decides about others


class Bound(Protocol):
    """What bounds how many jobs like one may run or start, with its numbers of now."""

    def reasons(self, job: Any) -> Iterable[Any]: ...  # the facts of ``explain()`` about a job, and its reasons
    def adds(self, before: int, run_seconds: float | None) -> tuple[float, float] | None: ...


class Why(NamedTuple):
    """Reasons why a job does not start, for ``explain()``."""

    sentences: Mapping[str, Any]  # of its codes
    of_waiting: Callable[[str, Any], Sequence[Any]] | None = None  # of a job that waits for others
    bounds: Callable[[str, Any], Sequence[Bound]] | None = None  # of a job that waits for a worker
    stuck: tuple[str, ...] = ()  # codes of reasons that only a person ends
    closed: tuple[
        str, ...
    ] = ()  # codes of reasons that also keep jobs that are not due: nothing starts before they end
    unknown: tuple[str, ...] = ()  # codes of reasons without a known end


class Satellite(NamedTuple):
    """Rows of another table that belong to jobs. They go with their job, and move with it to another shard."""

    table: str
    rows: str = ""  # their name on the way to another shard; empty: jobs that have some do not move
    deletion: str = ""  # CTEs that delete those of ``{jobs}``, which has the id, the task and what it reads
    reads: tuple[str, ...] = ()  # columns of the job
    of_day: str = ""  # a condition on a job: it may have some, which are deleted before its day is dropped
    is_walked: bool = False  # rows of jobs that are gone are found by walking through the table: it has job_id


class StepDone(NamedTuple):
    """The result of a step of a sweep."""

    has_more: bool = False  # some may be left: the next sweep comes at once
    said: Mapping[str, Any] = MappingProxyType({})  # for the line that is written of a sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStep:
    """Work of watchdogs for a capability."""

    name: str
    run: Callable[[WorkerDatabase], StepDone]
    says: Mapping[str, Any] = field(default_factory=dict)  # of a sweep in which it has nothing to do
    exists: str = ""  # a condition in SQL, whether there is something to do; empty: if its capability is used
    is_housekeeping: bool = False  # once a minute, and not in each sweep


class LoopFacts(NamedTuple):
    """Facts about the process that a loop runs in."""

    watches: bool = True  # it has a watchdog
    with_work: Callable[[], frozenset[str]] = frozenset  # names that it found when it asked last
    declarer: str = ""  # the worker whose code the rows of declarations follow; empty: they do not
    fleet_size: Callable[[], int] = lambda: 1


class KeeperLoop(NamedTuple):
    """A loop with a connection of its own, in a keeper and in ``pulse_watchdog``."""

    purpose: str
    longest_pause: float  # seconds
    start: Callable[[WorkerDatabase, LoopFacts], Callable[[], float]]  # returns a step: it returns seconds to wait
    is_of_watchdogs: bool = False  # it runs only where a watchdog does


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """The parts of one capability."""

    name: str
    exists: str = ""  # a condition in SQL, whether it is used: watchdogs ask it in each turn
    gates: tuple[Gate, ...] = ()
    reads: str = ""  # a query for the one row that its gates read, as a relation of its name
    claimer: Callable[[WorkerDatabase, Identity], LaneClaimer] | None = None  # of lanes with keys
    share_of: Callable[[str], float] | None = None  # of a lane key: its weight when slots are dealt
    jobs_a_slot: Callable[[str], int | None] | None = None  # of a lane key, if one slot takes several of its jobs
    chunking: Chunking | None = None
    of_call: OfCall | None = None
    codec: Codec | None = None
    on_insert: OnInsert | None = None
    around_insert: AroundInsert | None = None
    carries: tuple[str, ...] = ()  # columns of its own on a job's row, which stay when the job is over
    at_end: AtEnd | None = None
    # Frees jobs that waited for others, and calls its argument if there were any. Returns whether some are left.
    when_over: Callable[[WorkerDatabase, Callable[[], object]], bool] | None = None
    is_needed: str = ""  # a condition on ``{job}``: others need it, and it is not pruned
    is_holding: str = ""  # a condition on a dead letter ``{job}``: others wait until it is retried
    refuses_retry: str = ""  # a condition on a dead letter ``{job}``, unless the caller asks for cancelled ones too
    on_retry: OnRetry | None = None
    after_run: AfterRun | None = None
    why: Why | None = None
    conditions: tuple[Any, ...] = ()  # of the fleet's health
    satellites: tuple[Satellite, ...] = ()
    keeps: str = ""  # a query for jobs of the day %(era)s that are kept for longer, and for %(limit)s at most
    outdated: str = ""  # CTEs that delete what is over by itself, in a statement that prunes jobs
    sweeps: tuple[SweepStep, ...] = ()
    loops: tuple[KeeperLoop, ...] = ()

    def __new__(cls, **parts: Any) -> Capability:
        points = [one.name for one in fields(cls)]
        if unknown := [name for name in parts if name not in points]:
            raise TypeError(
                f"{parts.get('name')}: there is no extension point {unknown[0]!r}. There are: {', '.join(points[1:])}"
            )
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.at_end is not None and not {*self.at_end.columns} <= {*self.carries}:
            raise ValueError(f"{self.name}: at_end reads columns that a job does not keep: add them to carries")
        if self.reads and any(gate.by_id for gate in self.gates):
            raise ValueError(f"{self.name}: a gate that is asked by_id stands alone, and cannot have what it reads")
        texts = [self.exists, self.reads, *(text for one in self.satellites for text in (one.deletion, one.of_day))]
        if "%" in "".join(texts):
            raise ValueError(f"{self.name}: %: statements have parameters, which it would be taken for")


_installed: tuple[Capability, ...] | None = None
_assembled: list[Callable[[], None]] = []


def install(*capabilities: Capability) -> None:
    """Say which capabilities there are, before the first statement is sent."""
    global _installed
    for point in ("codec", "chunking", "share_of", "on_insert", "around_insert", "on_retry"):
        if len(both := [one.name for one in capabilities if getattr(one, point) is not None]) > 1:
            raise ValueError(f"{' and '.join(both)} both hand in {point!r}, and there can be only one")
    names = Counter(name for one in capabilities for name in {one.name, *(step.name for step in one.sweeps)})
    if double := [name for name, times in names.items() if times > 1]:
        raise ValueError(f"two capabilities or their steps have one name: {', '.join(double)}")
    _installed = capabilities
    for forget in _assembled:
        forget()


def installed() -> tuple[Capability, ...]:
    if _installed is None:  # a claim would start what is paused
        raise RuntimeError("Pulse is not set up: call django.setup() first")
    return _installed


def assembled(build: Callable[P, T]) -> Callable[P, T]:
    """Cache a function that builds something from capabilities, until others are installed."""
    kept = lru_cache(maxsize=256)(build)
    _assembled.append(kept.cache_clear)
    return kept  # type: ignore[return-value]
