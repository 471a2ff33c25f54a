"""Extension points: the parts that a capability can provide, and the installed capabilities.

A capability is a feature that jobs can do without: pauses, limits, unique jobs, workflows. Verbs, workers and watchdogs
call ``installed()`` or ``provided()`` and use the parts. None of them knows a capability by name.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar

from .database.dialects import Dialect, use
from .words.lanes import Lane
from .words.leases import Identity

if TYPE_CHECKING:
    from pulse_django.run.registry import Task

    from .claim import Claims, Slots
    from .database.job_queries import JobReader

P = ParamSpec("P")
T = TypeVar("T")
NO_FACTS = "SELECT NULL::timestamptz AS opens_at, ''::text AS reason, ''::text AS shut_by"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """An SQL condition, without parameters, for the start of jobs. If it is false or NULL, the gate is shut.

    It is about a lane or about a job. A gate of lanes is checked once for each lane, before its jobs are read. A gate
    of jobs is checked for each job.
    """

    code: str  # of the reason in explain() when the gate is shut
    sentence: Any  # the text of that reason, translatable
    sentence_until: Any = ""  # the text if it is known when the gate opens: %(until)s
    about: tuple[str, ...] = ()  # names in both texts: queue, task, key, or at (when the job expires)
    facts: str = NO_FACTS  # a query for at most one row: when it opens, why it is shut, and by whom
    lane: str = ""  # the condition on a lane; {lane} is a relation with queue and key
    job: str = ""  # the condition on a job; {job} is a row of jobs
    of_keys: bool = False  # only for lanes with a key; lanes without one are not checked
    of_tasks: bool = False  # reads only the task and the queue: jobs behind a shut gate are set aside
    may_shut: str = "true"  # with of_tasks: the condition that the gate may be shut for some job now
    by_id: bool = False  # a claim by job ids checks the gate, too

    def __post_init__(self) -> None:
        if bool(self.lane) is bool(self.job):
            raise ValueError(f"{self.code}: a gate needs a condition on a lane or on a job, not both")
        if "{lane}.key" in self.lane and not self.of_keys:
            raise ValueError(f"{self.code}: the gate reads the key of a lane: set of_keys=True")
        if "%" in self.lane + self.job + self.facts + self.may_shut:
            raise ValueError(f"{self.code}: the SQL contains %, which would be read as a parameter")
        # The planner could turn it into a join, and visit lanes in another order.
        if re.search(r"\b(EXISTS|IN|ANY|SOME|ALL)\s*\(\s*(SELECT|VALUES)\b", self.lane + self.job, re.IGNORECASE):
            raise ValueError(f"{self.code}: use an ARRAY(SELECT ...) or a scalar in COALESCE instead of EXISTS or IN")


Group = tuple[str, ...]  # names, as of limits, that claims from some lanes wait for


class WorkerDatabase(Protocol):
    """The database connection of a thread that claims, or of a watchdog's loop."""

    @property
    def alias(self) -> str: ...
    @property
    def purpose(self) -> str: ...
    @property
    def jobs(self) -> JobReader: ...
    def call(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    def hang_up(self) -> None: ...


class Bounds(NamedTuple):
    """How many jobs may run at once. None: any number."""

    of_group: int | None
    of_lane: int | None


class LaneClaim(NamedTuple):
    """The result of a claim from lanes of one group."""

    claims: Claims
    allowed: Mapping[Lane, int] = MappingProxyType({})  # jobs of each lane; empty if the group allowed fewer in total
    shut_for: float | None = None  # if no job was claimed: seconds until the group may give some
    refusal: tuple[str, str] | None = None  # if no job could start: the name, as of a limit, and the reason
    may_wait: Bounds | None = None  # how many jobs may be claimed before a slot is free; None: none


class LaneClaimer(Protocol):
    """Claims from lanes with its own statement. A child has one for each shard."""

    # One claim is for lanes of one group. Empty: this claimer does not claim from the lane.
    def group_of(self, lane: Lane) -> Group: ...
    def prepare(self) -> None: ...
    def claim(
        self, group: Group, lanes: Sequence[Lane], takes: Mapping[Lane, int], *, limit: int, slots: Slots
    ) -> LaneClaim: ...


class CallFields(ABC):
    """Makes fields of a new job from the task and the arguments of a call."""

    hides = False  # the fields mask or encrypt arguments

    @abstractmethod
    def is_used(self, task: Task) -> bool:
        """Return whether jobs of this task have these fields. Called once for each task."""

    @abstractmethod
    def fields(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of ``NewJob``."""

    def waits(self, task: Task) -> bool:
        """Return whether a job may have to wait for a function of the project, or for another transaction."""
        return False


class AtEnd(NamedTuple):
    """Writes rows about ended runs, in the statement that ends them: for waiting jobs and for hooks."""

    columns: Mapping[str, str]  # columns of jobs, with their types, that the other parts read
    over: str  # an INSERT for the jobs ``{gone}``, which became ``{status}``: completed or cancelled. Empty: none
    stayed: str  # an INSERT for the runs ``{stayed}``, which have another ``verdict``
    is_noted: str  # the condition on an ended run that one of the two has written a row; ``when_over`` follows then
    may_fail: bool = False  # if the INSERT of ``stayed`` fails, end the run without it


class Bound(Protocol):
    """A limit on how many jobs like a given one may run or start, with its current numbers."""

    def reasons(self, job: Any) -> Iterable[Any]: ...  # gets the facts of ``explain()`` about a job
    def adds(self, before: int, run_seconds: float | None) -> tuple[float, float] | None: ...


class Why:
    """The reasons of a capability for which a job does not start, for ``explain()``."""

    sentences: Mapping[str, Any] = {}  # by code
    stuck: tuple[str, ...] = ()  # codes of reasons that only a person can remove
    closed: tuple[str, ...] = ()  # codes of reasons that also apply to jobs that are not due yet
    unknown: tuple[str, ...] = ()  # codes of reasons without a known end

    def of_waiting(self, alias: str, job: Any) -> Sequence[Any]:
        """Return the reasons for a WAITING job."""
        return ()

    def bounds(self, alias: str, job: Any) -> Sequence[Bound]:
        """Return the limits on a job that waits for a worker."""
        return ()


class Satellite(NamedTuple):
    """Rows of another table that belong to jobs. They are deleted with their job, and move with it to another shard."""

    table: str
    rows: str = ""  # their name in a move to another shard; empty: jobs with such rows do not move
    deletion: str = ""  # CTEs that delete the rows of ``{jobs}``, which has the id, the task and ``reads``
    reads: tuple[str, ...] = ()  # columns of the job that ``deletion`` needs
    of_day: str = ""  # a condition: the job may have rows, to delete before the partition of its day is dropped
    is_walked: bool = False  # watchdogs walk through the table, by job_id, and delete rows whose job is gone


class StepDone(NamedTuple):
    """The result of a step of a sweep."""

    has_more: bool = False  # more work may be left: start the next sweep at once
    said: Mapping[str, Any] = MappingProxyType({})  # for the log line of the sweep


class SweepStep(ABC):
    """Work that watchdogs do for a capability."""

    name: str
    says: Mapping[str, Any] = MappingProxyType({})  # for the log line of a sweep without work
    exists = ""  # an SQL condition: there is work; empty: the condition of its capability
    is_housekeeping = False  # run once a minute, not in each sweep

    @abstractmethod
    def run(self, database: WorkerDatabase) -> StepDone: ...


class LoopFacts(NamedTuple):
    """Facts about the process that a loop runs in."""

    watches: bool = True  # the process has a watchdog
    with_work: Callable[[], frozenset[str]] = frozenset  # capabilities and steps that had work when last checked
    declarer: str = ""  # the worker whose code writes declarations; empty: nothing is declared
    fleet_size: Callable[[], int] = lambda: 1


class KeeperLoop(ABC):
    """A loop with its own connection, in a keeper and in ``pulse_watchdog``."""

    purpose: str
    longest_pause: float  # seconds
    is_of_watchdogs = False  # runs only in processes with a watchdog

    def __init__(self, database: WorkerDatabase, facts: LoopFacts = LoopFacts()) -> None:  # noqa: B008 - immutable
        self.database, self.facts = database, facts

    @abstractmethod
    def run_once(self) -> float:
        """Do one step, and return the seconds to wait before the next."""


class Single(ABC):  # noqa: B024 - the kinds have abstract methods
    """A kind of part that at most one capability provides. Each kind is a class derived from this one, beside its
    caller.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Internals:
    """Parts that capabilities of this package have. They change without notice, and most can exist only once."""

    claimer: Callable[[WorkerDatabase, Identity], LaneClaimer] | None = None  # for lanes with keys
    share_of: Callable[[str], float] | None = None  # the weight of a lane key when slots are shared
    jobs_a_slot: Callable[[str], int | None] | None = None  # by lane key, if one slot takes several jobs
    parts: tuple[Single, ...] = ()
    dialect: Dialect | None = None  # other statements, for a kind of server
    # Frees jobs that waited for other jobs, and calls its argument if it freed any. Returns whether more are left.
    when_over: Callable[[WorkerDatabase, Callable[[], object]], bool] | None = None
    is_needed: str = ""  # a condition on ``{job}``: other jobs need it, so it is not pruned
    is_holding: str = ""  # a condition on a dead letter ``{job}``: other jobs wait for its retry
    refuses_retry: str = ""  # a condition on a dead letter ``{job}``: not retried, except with cancelled_too
    keeps: str = ""  # a query for jobs of the day %(era)s to keep for longer, at most %(limit)s
    outdated: str = ""  # CTEs that delete its expired rows, in the statement that prunes jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A capability: the parts that it provides to verbs, workers and watchdogs."""

    name: str
    exists: str = ""  # an SQL condition: the capability is in use. Watchdogs check it in each turn
    gates: tuple[Gate, ...] = ()
    reads: str = ""  # a query for one row, which its gates read as a relation with its name
    call_fields: CallFields | None = None
    carries: Mapping[str, str] = field(default_factory=dict)  # its columns of jobs that ended jobs keep, as SQL
    at_end: AtEnd | None = None
    why: Why | None = None
    conditions: tuple[Any, ...] = ()  # health conditions of the fleet
    satellites: tuple[Satellite, ...] = ()
    sweeps: tuple[SweepStep, ...] = ()
    loops: tuple[type[KeeperLoop], ...] = ()
    internals: Internals = Internals()

    def __new__(cls, **parts: Any) -> Capability:
        points = [one.name for one in fields(cls)]
        if unknown := [name for name in parts if name not in points]:
            raise TypeError(
                f"{parts.get('name')}: there is no extension point {unknown[0]!r}. There are: {', '.join(points[1:])}"
            )
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.at_end is not None and not {*self.at_end.columns} <= {*self.carries}:
            raise ValueError(f"{self.name}: at_end reads columns that an ended job does not keep: add them to carries")
        if self.reads and any(gate.by_id for gate in self.gates):
            raise ValueError(f"{self.name}: a gate with by_id cannot use the relation of reads")
        texts = [self.exists, self.reads, *(text for one in self.satellites for text in (one.deletion, one.of_day))]
        if "%" in "".join(texts):
            raise ValueError(f"{self.name}: the SQL contains %, which would be read as a parameter")


_installed: tuple[Capability, ...] | None = None
_assembled: list[Callable[[], None]] = []


def install(*capabilities: Capability) -> None:
    """Set the installed capabilities. Call it before the first statement is sent."""
    global _installed
    providers: dict[str, str] = {}
    for one in capabilities:
        kinds = [kind.__name__ for part in one.internals.parts for kind in _kinds_of(part)]
        for kind in (*kinds, *(["share_of"] if one.internals.share_of else [])):
            if kind in providers:
                raise ValueError(f"{providers[kind]} and {one.name} both provide {kind!r}, and only one capability may")
            providers[kind] = one.name
    names = Counter(name for one in capabilities for name in {one.name, *(step.name for step in one.sweeps)})
    if double := [name for name, times in names.items() if times > 1]:
        raise ValueError(f"two capabilities or steps have the same name: {', '.join(double)}")
    _installed = capabilities
    use(one.internals.dialect for one in capabilities if one.internals.dialect is not None)
    for forget in _assembled:
        forget()


def installed() -> tuple[Capability, ...]:
    if _installed is None:  # without gates, a claim would start paused jobs
        raise RuntimeError("Pulse is not set up: call django.setup() first")
    return _installed


def assembled(build: Callable[P, T]) -> Callable[P, T]:
    """Cache a function that builds something from capabilities, until ``install()`` is called again."""
    kept = lru_cache(maxsize=256)(build)
    _assembled.append(kept.cache_clear)
    return kept  # type: ignore[return-value]


def _kinds_of(part: Single) -> list[type]:
    if not isinstance(part, Single):
        raise TypeError(f"{part!r} is not an instance of a class that derives from Single")
    return [kind for kind in type(part).__mro__ if Single in kind.__bases__]


@assembled
def provided(kind: type[T]) -> T | None:
    """Return the part of this kind, if a capability provides one."""
    return next((part for one in installed() for part in one.internals.parts if isinstance(part, kind)), None)
