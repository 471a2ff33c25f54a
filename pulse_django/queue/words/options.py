"""The options of a task. All options are declared here, and the rest of the package uses these declarations.

An entry of ``TaskOptions``, ``CallOptions`` or ``OptionsAnywhere`` declares where an option may be given, and its type.
``_ABOUT`` has an ``Option`` with the rest. ``Options`` repeats the attributes, which type checkers need. A test
compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict, get_type_hints

from pulse_django.exceptions import InvalidJob
from pulse_django.limits.rules import KeySource, Limit
from pulse_django.schedules.timings import Timing
from pulse_django.unique.rule import Unique

from . import other_queues
from .bounds import (
    DEFAULT_QUEUE,
    HIGHEST_PRIORITY,
    LARGEST_CHUNK,
    LONGEST_GATHERING,
    LONGEST_LEASE,
    LOWEST_PRIORITY,
    MAX_DELAY,
    MAX_IDEMPOTENCY_KEY,
    MAX_META_BYTES,
    MAX_QUEUE_NAME,
    MAX_TAG,
    MAX_TASK_NAME,
    MOST_ATTEMPTS,
    MOST_TAGS,
    MOST_WEIGHT,
    SHORTEST_LEASE,
    SMALLEST_CHUNK,
    UNLIMITED,
)
from .display import in_words, shown
from .durations import WANTED, Seconds, as_timedelta
from .masks import MOST_SEARCHED
from .payloads import clean_text
from .retry_policies import RetryPolicy

# The declaration of an option, and the kinds of values. A kind has the bounds, and refuses other values.


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Its name, its type and where it may be given are declared by its entry."""

    kind: Kind
    help: str  # for the reference and, with a label, for the page of a job
    label: str = ""  # on the page of a job
    column: str = ""  # of the jobs table; default: its name, if it has a label
    default: Any = None  # of the attribute in ``Options``, if there is one
    setting_at_enqueue: str = ""  # the setting that replaces None at enqueue; without one, the column is NULL
    name: str = ""
    annotation: Any = None
    for_task: bool = False
    for_call: bool = False


def _(text: str) -> str:
    """Mark a text for makemessages. The console translates it."""
    return text


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds. A ``bool`` is refused."""

    least: int
    most: int

    @property
    def allowed(self) -> str:
        return f"{self.least:,} to {self.most:,}"

    def check(self, name: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidJob(f"{name}: {shown(value)} is not a whole number")
        if not self.least <= value <= self.most:
            raise InvalidJob(f"{name}: {shown(value)} is not within {self.least} to {self.most}")


@dataclass(frozen=True, slots=True)
class Duration:
    """A positive duration. ``@task`` and ``.using()`` convert a number of seconds to a ``timedelta`` before."""

    least: timedelta = timedelta()
    most: timedelta = MAX_DELAY
    if_longer: str = ""  # the consequence, for the error message
    or_zero: bool = False

    @property
    def allowed(self) -> str:
        if self == Duration():
            return "seconds or a `timedelta`, above 0"
        return f"{in_words(self.least.total_seconds())} to {in_words(self.most.total_seconds())}"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, timedelta):
            raise InvalidJob(f"{name}: {value!r} is not {WANTED}")
        if self.or_zero and value == timedelta():
            return
        if not timedelta() < value <= MAX_DELAY:
            why = f"is longer than {MAX_DELAY.days} days" if value > timedelta() else f"must be positive. Omit {name}"
            raise InvalidJob(f"{name}: {in_words(value.total_seconds())} {why}")
        if value < self.least:
            raise InvalidJob(f"{name}: {value} is shorter than {self.least}, the minimum")
        if value > self.most:
            raise InvalidJob(f"{name}: {value} is longer than {self.most}. {self.if_longer}".rstrip())


@dataclass(frozen=True, slots=True)
class Text:
    """A printable, non-empty text."""

    longest: int

    @property
    def allowed(self) -> str:
        return f"1 to {self.longest} characters"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, str) or not value:
            raise InvalidJob(f"{name}: {value!r} is not a non-empty string")
        if len(value) > self.longest:
            raise InvalidJob(f"{name}: {len(value)} characters, over the limit of {self.longest}")
        if not value.isprintable():
            raise InvalidJob(f"{name}: {value!r} contains unprintable characters")


@dataclass(frozen=True, slots=True)
class Note:
    """A text for people to read. It may be empty."""

    longest: int

    @property
    def allowed(self) -> str:
        return f"up to {self.longest} characters"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, str):
            raise InvalidJob(f"{name}: {shown(value)} is not a str")
        if len(value) > self.longest:
            raise InvalidJob(f"{name}: {len(value)} characters, over the limit of {self.longest}")

    def cleaned(self, name: str, value: str) -> str:
        """Return it without characters that PostgreSQL refuses."""
        self.check(name, value)
        return clean_text(value, self.longest)


@dataclass(frozen=True, slots=True)
class Flag:
    @property
    def allowed(self) -> str:
        return "`True` or `False`"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, bool):
            raise InvalidJob(f"{name}: {value!r} is neither True nor False")


@dataclass(frozen=True, slots=True)
class OneOfTwo:
    first: str
    second: str

    @property
    def allowed(self) -> str:
        return f'`"{self.first}"` or `"{self.second}"`'

    def check(self, name: str, value: object) -> None:
        if value not in (self.first, self.second):
            raise InvalidJob(f"{name}: {value!r} is neither {self.first!r} nor {self.second!r}.")


@dataclass(frozen=True, slots=True)
class Made:
    """An object of one of Pulse's classes."""

    of: type
    how: str  # code that creates one

    @property
    def allowed(self) -> str:
        return f"a `{self.of.__name__}`"

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, self.of):
            raise InvalidJob(f"{name}: {value!r} is not a {self.of.__name__}; write {self.how}.")


@dataclass(frozen=True, slots=True)
class CheckedElsewhere:
    """A value that is checked in its context: an alias, or names that must match the function."""

    allowed: str

    def check(self, name: str, value: object) -> None:
        """Leave it to ``tasks.py``, which knows the function and the backends."""


# The values of an option, apart from None if its type allows it. ``allowed`` describes them for the reference, and
# ``check`` raises InvalidJob for others.
Kind = Whole | Duration | Text | Note | Flag | OneOfTwo | Made | CheckedElsewhere


# The options that ``@task`` takes for all jobs, and ``.using()`` for some. None is the same as omitting the option.


DEFAULT_BACKEND = "default"  # in TASKS


class OptionsAnywhere(TypedDict, total=False):
    """Options for both ``@task`` and ``.using()``."""

    priority: int | None
    queue_name: str | None
    backend: str | None
    max_attempts: int | None
    timeout: Seconds | None
    lease: Seconds | None
    progress_timeout: Seconds | None
    give_up_after: Seconds | None
    weight: int
    tags: Sequence[object] | None
    unique: Unique | None
    on_dead: Any


class Isolation(StrEnum):
    """Where a sync handler runs. Async handlers always run on the worker's event loop."""

    THREAD = "thread"
    PROCESS = "process"  # a process for each run: it starts more slowly, and is killed on timeout and cancel


class TaskOptions(OptionsAnywhere, total=False):
    """Options for ``@task``."""

    limit: Limit | None
    limit_key: KeySource | None
    fair_by: KeySource | None

    name: str
    aliases: str | Sequence[str]
    retry: RetryPolicy | None
    expires: Seconds | None
    max_lost_workers: int | None
    count_lost_workers: bool
    at_most_once: bool
    isolation: str
    atomic: bool
    sensitive: str | Sequence[str]
    searchable: str | Sequence[str]
    encrypted: bool
    schedule: Timing | None


class CallOptions(OptionsAnywhere, total=False):
    """Options for ``.using()``."""

    run_after: datetime | Seconds | None
    idempotency_key: str | None
    expires: datetime | Seconds | None
    meta: Mapping[str, Any] | None
    database: str | None


# The options as attributes.
#
# ``JobOptions`` and ``Options`` are for tasks and new jobs, ``ClaimedOptions`` for the options that a claim returns.


# Without slots: with slots, a task could not also inherit from Django's task.
@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options that are columns of a job."""

    __slots__ = ()

    max_attempts: int | None = None
    timeout: timedelta | None = None
    lease: timedelta | None = None
    progress_timeout: timedelta | None = None
    max_lost_workers: int | None = None
    count_lost_workers: bool = True
    idempotency_key: str | None = None
    give_up_after: timedelta | None = None
    weight: int = 1


@dataclass(frozen=True, kw_only=True)
class Options(JobOptions):
    """All options except Django's own."""

    __slots__ = ()

    aliases: tuple[str, ...] = ()
    retry: RetryPolicy | None = None
    at_most_once: bool = False
    isolation: str = Isolation.THREAD
    atomic: bool = False
    sensitive: tuple[str, ...] = ()
    searchable: tuple[str, ...] = ()
    encrypted: bool = False
    schedule: Timing | None = None
    unique: Unique | None = None
    limit: Limit | None = None
    limit_key: KeySource | None = None
    fair_by: KeySource | None = None
    chunk: int | None = None
    chunk_wait: timedelta | None = None
    expires: datetime | timedelta | None = None
    tags: tuple[str, ...] = ()
    on_dead: Any = None  # a task
    meta: str | None = None  # as JSON
    database: str | None = None


class ClaimedOptions(NamedTuple):
    """The options that a claim returns with each job."""

    timeout: timedelta | None = None
    progress_timeout: timedelta | None = None
    max_lost_workers: int | None = None
    count_lost_workers: bool = True
    give_up_after: timedelta | None = None
    weight: int = 1


# Options of tasks whose handler is called with several jobs at once.


class ChunkTaskOptions(TaskOptions, total=False):
    """All options for ``@task``. Without ``chunk``, the handler is called for each job."""

    chunk: int | None
    chunk_wait: Seconds | None


# The rest of the declaration of each option, by name.


_OF_ARGUMENTS = CheckedElsewhere("a parameter's name, a tuple of them, or a function of the arguments")
_ABOUT: Mapping[str, Option] = {
    "priority": Option(
        Whole(LOWEST_PRIORITY, HIGHEST_PRIORITY), _("Jobs with a higher priority run first."), _("Priority"), default=0
    ),
    "queue_name": Option(
        Text(MAX_QUEUE_NAME),
        _("Only workers that serve this queue run its jobs. Any name is valid."),
        _("Queue"),
        default=DEFAULT_QUEUE,
        column="queue",
    ),
    "backend": Option(CheckedElsewhere("an alias"), "The alias in `TASKS`.", default=DEFAULT_BACKEND),
    "max_attempts": Option(
        Whole(1, UNLIMITED),
        _("How many runs a job may have before it becomes a dead letter."),
        _("Maximum attempts"),
        setting_at_enqueue="max_attempts",
    ),
    "timeout": Option(Duration(), _("The maximum duration of a single run."), _("Time limit of a run")),
    "lease": Option(
        Duration(
            SHORTEST_LEASE,
            LONGEST_LEASE,
            "The job of a dead worker would not be recovered for that long. Heartbeats extend the lease of a long run",
        ),
        _("How long a worker may be silent before its job is recovered. None uses the setting."),
        _("Lease"),
        column="lease_ttl",
    ),
    "progress_timeout": Option(
        Duration(), _("How long a run may go without reporting progress."), _("Time limit without progress")
    ),
    "give_up_after": Option(Duration(), _("How long after it was enqueued a job may be retried."), _("Retry for")),
    "weight": Option(
        Whole(1, MOST_WEIGHT), _("How many slots of a worker a run takes, and how much of its limit."), _("Weight")
    ),
    "tags": Option(
        CheckedElsewhere(
            f"at most {MOST_TAGS}: texts of at most {MAX_TAG} characters without spaces, or saved model instances"
        ),
        _("Jobs can be searched by tag. The tags of a call are added to those of the task."),
        _("Tags"),
    ),
    "unique": Option(Made(Unique, "Unique(...)"), "One unfinished job with the same key, or one in each period."),
    "on_dead": Option(
        CheckedElsewhere("a task with one parameter"),
        "A task to enqueue when a job becomes a dead letter. It gets the arguments and the reason.",
    ),
    "limit": Option(
        Made(Limit, "Limit(...)"),
        "How many jobs of the task run at once, and how many start in a period: in total, and for each key.",
    ),
    "limit_key": Option(_OF_ARGUMENTS, "The arguments that make a job's key for its limit. Keys share its slots."),
    "fair_by": Option(_OF_ARGUMENTS, "The key for fair sharing. A free slot goes to the key that holds the fewest."),
    "name": Option(
        CheckedElsewhere(f"at most {MAX_TASK_NAME} characters"),
        "A fixed task name for its jobs, so that the function can be moved. Default: the path of the function.",
        default="",
    ),
    "aliases": Option(
        CheckedElsewhere(f"names of at most {MAX_TASK_NAME} characters"),
        "Earlier names of the task. Waiting jobs with such a name still run.",
    ),
    "retry": Option(
        Made(RetryPolicy, "retry_unless(...), retry_on(...) or NO_RETRIES"),
        "Which exceptions are retried, and after which delays.",
    ),
    "expires": Option(
        CheckedElsewhere("an aware `datetime`; seconds or a `timedelta`, above 0"),
        _("If the job has not started by then, it is cancelled."),
        _("Expires"),
        column="expires_at",
    ),
    "max_lost_workers": Option(
        Whole(0, MOST_ATTEMPTS),
        _(
            "After this many lost workers, the job becomes a dead letter even if attempts remain. None uses the "
            "setting."
        ),
        _("Maximum lost workers"),
    ),
    "count_lost_workers": Option(
        Flag(),
        _("Whether a lost worker costs an attempt. The maximum of lost workers applies in both cases."),
        _("Lost workers count"),
    ),
    "at_most_once": Option(
        Flag(), "A job whose handler was called is never retried automatically. If it fails, it becomes a dead letter."
    ),
    "isolation": Option(
        OneOfTwo(Isolation.THREAD.value, Isolation.PROCESS.value),
        'With `"process"`, each run has its own process, which is killed on timeout and cancel.',
    ),
    "atomic": Option(Flag(), "The handler and the completion of its job are one transaction."),
    "sensitive": Option(
        CheckedElsewhere("names of parameters"),
        'Parameters that the admin and logs do not show. `"return"` is the result.',
    ),
    "searchable": Option(
        CheckedElsewhere(f"names of at most {MOST_SEARCHED} parameters that are not masked"),
        "Arguments by which the admin finds jobs, as `order_id:4711`. They are stored twice.",
    ),
    "encrypted": Option(Flag(), "Arguments, progress and results are encrypted in the table, and nothing shows them."),
    "schedule": Option(
        Made(Timing, "Cron(...) or Every(...)"),
        "When the task runs on a schedule. For several schedules of one task, use `Schedule(...)`.",
    ),
    "run_after": Option(
        CheckedElsewhere("an aware `datetime`, seconds or a `timedelta`"),
        "The earliest start: an instant, or a delay from now.",
    ),
    "idempotency_key": Option(
        Text(MAX_IDEMPOTENCY_KEY),
        _("A second job of the task with the same key is not enqueued while this job exists."),
        _("Idempotency key"),
    ),
    "meta": Option(
        CheckedElsewhere(f"a dict of at most {MAX_META_BYTES:,} bytes as JSON"),
        _("Facts about the job for people, logs and signal receivers. They are not searched."),
        _("Meta"),
    ),
    "database": Option(
        CheckedElsewhere("an alias"),
        "The alias of the database that takes the job. Default: the handler's own, or the router's.",
    ),
    "chunk": Option(
        Whole(SMALLEST_CHUNK, LARGEST_CHUNK),
        "The handler is called with up to this many jobs at once. Each job has its own result and retries.",
    ),
    "chunk_wait": Option(
        Duration(most=LONGEST_GATHERING, or_zero=True),
        "How long a worker waits for more jobs of a chunk. Without it, a chunk has the jobs of one claim.",
    ),
}


# The declared options as values: all of them in order, those of a job's row, and their checks.
#
# They are computed once, at import, because they are used for each job.


def _declared() -> Iterator[Option]:
    """Yield the options of ``@task``, then those that only ``.using()`` has."""
    task, call = (get_type_hints(one) for one in (ChunkTaskOptions, CallOptions))
    defaults = {one.name: one.default for one in fields(Options)}
    for name, annotation in {**task, **call}.items():
        option = _ABOUT[name]
        default = defaults.get(name, option.default)
        column = option.column or (name if option.label else "")
        places: Any = {"for_task": name in task, "for_call": name in call}
        yield replace(option, name=name, annotation=annotation, default=default, column=column, **places)


OPTIONS: Mapping[str, Option] = MappingProxyType({option.name: option for option in _declared()})
JOB_OPTIONS = tuple(OPTIONS[field.name] for field in fields(JobOptions))
COLUMNS = tuple(option.column for option in JOB_OPTIONS)

OF_TASK = frozenset(name for name, option in OPTIONS.items() if option.for_task)
OF_CALL = frozenset(name for name, option in OPTIONS.items() if option.for_call)
# A route cannot set the others, which belong to the function or to a single call.
OF_ROUTE = OF_TASK - {"name", "aliases", "backend", "schedule", "chunk", "chunk_wait"}
DURATIONS = ("expires", *(name for name, option in OPTIONS.items() if isinstance(option.kind, Duration)))

_JOB_NAMES = tuple(option.name for option in JOB_OPTIONS)
_JOB_DEFAULTS = tuple(option.default for option in JOB_OPTIONS)
_FROM_SETTINGS = {option.column: option.setting_at_enqueue for option in JOB_OPTIONS if option.setting_at_enqueue}

values_of: Callable[[JobOptions], tuple[Any, ...]] = attrgetter(*_JOB_NAMES)


def options_of(task: object) -> dict[str, Any]:
    """Return the options of a task that are set. Most tasks, and tasks of other classes, have none."""
    if not isinstance(task, JobOptions) or (values := values_of(task)) == _JOB_DEFAULTS:
        return {}
    return dict(zip(_JOB_NAMES, values, strict=True))


def with_settings(row: Mapping[str, Any], settings: object) -> dict[str, Any]:
    """Return the row of a new job as it is stored: None is replaced by its setting, if it has one."""
    return {**row, **{name: getattr(settings, said) for name, said in _FROM_SETTINGS.items() if row[name] is None}}


def _check_of(names: Iterable[str]) -> Callable[[object], None]:
    """Return a function that raises InvalidJob for the first value that is not allowed. Most values are defaults."""
    options = [OPTIONS[name] for name in names]
    values_of = attrgetter(*(option.name for option in options))
    each = tuple((option.name, option.default, option.kind.check) for option in options)

    def check(given: object) -> None:
        for (name, default, refuse), value in zip(each, values_of(given)):  # noqa: B905 - strict costs, for every job
            if value is not default:  # "is", because 0 equals False
                refuse(name, value)

    return check


check_job = _check_of(field.name for field in fields(JobOptions))
check_task = _check_of(["queue_name", *(field.name for field in fields(Options))])


def check_route(options: object) -> None:
    """Raise TypeError or InvalidJob for options that ``PULSE["ROUTES"]`` cannot set."""
    if not isinstance(options, Mapping):
        raise TypeError(f"{options!r} is not a dict of options")
    refuse_strangers(options, OF_ROUTE, "A route")
    for name, value in options.items():
        OPTIONS[name].kind.check(name, as_timedelta(value) if name in DURATIONS else value)


# Common wrong names, and the options that are meant: the first that exists in the context.
_ELSEWHERE = {"key": ("limit_key", "idempotency_key"), "share": ("fair_by",), "runs_in": ("run_after",)}


def refuse_strangers(given: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Raise TypeError for unknown options, with a suggestion."""
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{where} has no option {name!r}. {_hint(name, value, known)}")


def _hint(name: str, value: object, known: Collection[str]) -> str:
    others = [*_ELSEWHERE.get(name, ()), *get_close_matches(name, {*known, *OPTIONS, *other_queues.OPTIONS}, n=1)]
    if instead := other_queues.option_instead(name if name in other_queues.OPTIONS else "".join(others[:1]), value):
        option, line = instead
        place = "" if option in known or not option else " in .using(...)" if option in OF_CALL else " in @task(...)"
        return f"Write {line}{place}."
    suggestion = next((one for one in others if one in known), next(iter(others), None))
    if suggestion is None:
        return f"The options are {', '.join(sorted(known))}."
    if suggestion in known:
        return f"Did you mean {suggestion!r}?"
    return f"Did you mean {suggestion!r}? Give it to {'@task' if suggestion in OF_TASK else '.using()'}."
