"""A job before it is enqueued. Invalid jobs are refused with a clear error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from pulse_django.exceptions import InvalidJob, PayloadError

from .bounds import DEFAULT_QUEUE, FIRST_YEAR, LAST_YEAR, MAX_DELAY, MAX_META_BYTES, MAX_TAG, MAX_TASK_NAME, MOST_TAGS
from .display import without
from .durations import WANTED
from .job_ids import MAX_ID
from .masks import Masks, Terms, terms_of
from .options import COLUMNS, OPTIONS, JobOptions, Text, Whole, check_job, values_of
from .payloads import encode_arguments, spelt_path

TASK_NAME = Text(MAX_TASK_NAME)
# Any printable name is a valid queue. Queues are not created first.
QUEUE_NAME, PRIORITY = OPTIONS["queue_name"].kind, OPTIONS["priority"].kind


class Payload(NamedTuple):
    """The arguments of a job, as JSON."""

    args: str
    kwargs: str
    terms: Terms = ()  # search terms

    def __repr__(self) -> str:
        return without(self, "args", "kwargs", "terms")

    @property
    def size(self) -> int:
        """Return the size in bytes. The encoder writes ASCII only."""
        return len(self.args) + len(self.kwargs)

    @classmethod
    def of(
        cls,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        limit: int,
        names: Sequence[str] | None = None,
        sensitive: str | None = None,
        searchable: Sequence[str] = (),
    ) -> Payload:
        """Encode arguments, or raise an error that names the place of the first fault, with the function's ``names``.

        For a masked argument, the error does not name the keys in it. Masked arguments are not search terms either.
        """
        if searchable and sensitive is not None and not (masks := Masks.read(sensitive)).encrypted:
            searchable = [name for name in searchable if not masks.hides_name(name)]
        try:
            return cls(
                encode_arguments(list(args), limit=limit, what="args") if args else "[]",
                encode_arguments(dict(kwargs), limit=limit, what="kwargs") if kwargs else "{}",
                terms_of(searchable, names or (), args, kwargs) if searchable else (),
            )
        except PayloadError as error:
            place = _place_of(error, names, Masks.read(sensitive))
            # The cause may repeat secret keys or values.
            cause = error.__cause__ if sensitive is None else None
            raise type(error)(f"{place}: {error.fault}") from cause


# The columns of a job without its arguments, its options and its place.
_OWN = (
    "task",
    "queue",
    "priority",
    "run_after",
    "parent_id",
    "trace",
    "sensitive",
    "expires",
    "tags",
    "meta",
    "lane_key",
    "on_dead",
)
_own = attrgetter(*_OWN)


class Key(Protocol):
    """A key of a new job, and the rule that made it."""

    @property
    def key(self) -> str: ...
    @property
    def rule(self) -> Any: ...
    def check(self, run_after: object) -> None: ...


class Place(Protocol):
    """The place of a new job in a batch or a workflow, as columns of its row."""

    def __init__(self) -> None: ...  # no place
    def by_column(self) -> dict[str, object]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob(JobOptions):
    """One job to enqueue. None means the default of the settings."""

    task: str
    args: Sequence[Any] = field(default=(), repr=False)
    kwargs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    queue: str = DEFAULT_QUEUE
    priority: int = 0  # higher runs first
    run_after: datetime | timedelta | None = None  # earliest start: an instant, or a delay from now
    parent_id: int | None = None
    trace: str | None = None  # the current trace, as a W3C traceparent
    sensitive: str | None = None  # the arguments that its task hides, as the text of ``Masks``
    names: Sequence[str] | None = None  # of positional arguments, for error messages
    unique: Key | None = None
    encrypt: Callable[[Payload], Payload] | None = None  # None: stored as plain text
    expires: datetime | timedelta | None = None  # latest start: an instant, or a delay from now
    tags: tuple[str, ...] = ()
    meta: str | None = None  # as JSON, from ``encode_meta``
    lane_key: str = ""  # from ``lane_keys``
    place: Place | None = None
    searchable: tuple[str, ...] = ()  # the arguments that become search terms
    on_dead: str | None = None  # the row of its hook, as JSON, from ``on_dead``
    # The values that all jobs made by ``called`` share. The first of them sets it.
    alike: dict[str, Any] | None = field(default=None, init=False, repr=False, compare=False)  # ``replace()`` drops it

    def __post_init__(self) -> None:
        TASK_NAME.check("task", self.task)
        QUEUE_NAME.check("queue", self.queue)
        PRIORITY.check("priority", self.priority)
        if self.run_after is not None:
            check_run_after(self.run_after)
        check_job(self)
        if self.expires is not None:
            check_expires(self.expires, self.run_after)
        if self.tags:
            object.__setattr__(self, "tags", tags_of(self.tags))
        if self.unique is not None:
            if self.idempotency_key is not None:
                raise InvalidJob("unique and idempotency_key cannot be combined; use one of them")
            self.unique.check(self.run_after)
        if self.parent_id is not None:
            Whole(1, MAX_ID).check("parent_id", self.parent_id)

    def for_calls(self) -> NewJob:
        """Return a copy whose jobs, made by ``called``, share their common values."""
        object.__setattr__(self, "alike", {})
        return self

    def called(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], parent_id: int | None, trace: str | None
    ) -> NewJob:
        """Return the same job with other arguments, without checking its options again."""
        new = object.__new__(NewJob)
        for name in _FIELDS:
            object.__setattr__(new, name, getattr(self, name))
        for name, value in (("args", args), ("kwargs", kwargs), ("parent_id", parent_id), ("trace", trace)):
            object.__setattr__(new, name, value)
        return new

    @property
    def head(self) -> tuple[object, ...]:
        """Return everything but the arguments, for comparison. Jobs that are enqueued together mostly share it."""
        return (*_own(self), _in_utc(self.run_after), _in_utc(self.expires), self.place, values_of(self))

    def by_column(self) -> dict[str, Any]:
        """Return its values by column, without arguments and place. ``with_settings`` adds the defaults of settings.

        ``run_after`` and ``expires`` are not columns: their instants depend on the server's clock.
        """
        row = dict(zip(_OWN, _own(self), strict=True)) | dict(zip(COLUMNS, values_of(self), strict=True))
        row |= {"run_after": _in_utc(self.run_after), "expires": _in_utc(self.expires)}
        return row | {"tags": self.tags or None, "ready": is_ready(self.lane_key, self.run_after)}

    def encoded(self, limit: int) -> Payload:
        return self.encoded_with(self.args, self.kwargs, limit)

    def encoded_with(self, args: Sequence[Any], kwargs: Mapping[str, Any], limit: int) -> Payload:
        """Encode these arguments instead of its own."""
        payload = Payload.of(args, kwargs, limit, self.names, self.sensitive, self.searchable)
        return payload if self.encrypt is None else self.encrypt(payload)


_FIELDS = tuple(one.name for one in fields(NewJob))


def is_ready(lane_key: str, run_after: datetime | timedelta | None) -> bool:
    """Return whether a new job is ready. A job with a lane key becomes ready when it is due."""
    return not lane_key or not run_after


def _in_utc(instant: datetime | timedelta | None) -> datetime | timedelta | None:
    """Convert to UTC, where two instants that differ only in ``fold`` are not equal."""
    return instant.astimezone(UTC) if isinstance(instant, datetime) else instant


def _place_of(error: PayloadError, names: Sequence[str] | None, masks: Masks) -> str:
    """Return the place of a fault. With names, begin with the name of the argument instead of its position."""
    what, *inner = error.path
    if not inner:
        return spelt_path(error.path)
    first, *deeper = inner
    hidden = masks.hides_position(first) if isinstance(first, int) else masks.hides_name(first)
    name = _name_of(first, names)
    begin = (what, first) if name is None else (name,)
    return spelt_path(begin) if hidden else spelt_path((*begin, *deeper))


def _name_of(argument: str | int, names: Sequence[str] | None) -> str | None:
    if names is None:
        return None
    if isinstance(argument, int):
        return names[argument] if argument < len(names) else None
    return argument if argument.isidentifier() else None


def run_at_or_delay(run_after: datetime | timedelta | None) -> tuple[datetime | None, timedelta]:
    """Return ``run_after`` or ``expires`` as an instant, or as a delay from now by the server's clock."""
    if isinstance(run_after, datetime):
        # PostgreSQL reads only offsets below 16 hours. Another one would abort the caller's transaction.
        return run_after.astimezone(UTC), timedelta()
    return None, run_after or timedelta()


def check_run_after(value: object) -> None:
    _check_instant_or_delay("run_after", value)


def check_expires(value: object, run_after: object = None) -> None:
    """Refuse jobs that could never start. Instants are not compared with now, because the database's clock decides."""
    _check_instant_or_delay("expires", value)
    if isinstance(value, timedelta) and value == timedelta():
        raise InvalidJob("expires: a job that expires at once would never start")
    if (
        (isinstance(value, timedelta) and isinstance(run_after, timedelta) and value <= run_after)
        or (isinstance(value, datetime) and isinstance(run_after, datetime) and value <= run_after)
    ):  # fmt: skip
        raise InvalidJob(f"expires: the job would expire before it is due: expires={value}, run_after={run_after}")


def _check_instant_or_delay(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidJob(f"{name}: {value!r} is naive; use an aware datetime")
        if not FIRST_YEAR <= value.year <= LAST_YEAR:
            raise InvalidJob(f"{name}: {value} is not between the years {FIRST_YEAR} and {LAST_YEAR}")
    elif not isinstance(value, timedelta):
        raise InvalidJob(f"{name}: {value!r} is neither a datetime nor {WANTED}")
    elif not timedelta() <= value <= MAX_DELAY:
        raise InvalidJob(f"{name}: {value} is not between 0 and {MAX_DELAY.days} days")


# The labels of a job: tags, for searches, and meta, which is shown and passed on.


_NO_LIMIT = 2**31  # meta has its own limit, and the encoder's error names a setting

Tags = tuple[str, ...]


def tags_of(given: Iterable[object]) -> Tags:
    """Return tags as they are stored: without duplicates, in the order given. A model instance becomes its tag."""
    if not isinstance(given, Iterable):
        raise InvalidJob(f"tags: {given!r} is not a list of tags; write tags=[{given!r}]")
    tags = tuple(dict.fromkeys(tag_of(one) for one in ([given] if isinstance(given, str) else given)))
    if len(tags) > MOST_TAGS:
        raise InvalidJob(f"tags: {len(tags)} tags, over the limit of {MOST_TAGS}")
    return tags


def tag_of(one: object) -> str:
    """Return the tag of a text or of a saved model instance."""
    tag = one if isinstance(one, str) else _tag_of_object(one)
    if not tag:
        raise InvalidJob("tags: a tag must not be empty")
    if len(tag) > MAX_TAG:
        raise InvalidJob(f"tags: {tag[:40]!r}... has {len(tag)} characters, over the limit of {MAX_TAG}")
    if not tag.isprintable() or any(char.isspace() for char in tag):
        raise InvalidJob(f"tags: {tag!r} contains spaces or unprintable characters")
    return tag


def _tag_of_object(one: Any) -> str:
    """Return ``app_label.model:pk``. A proxy has the tag of its model."""
    meta = getattr(one, "_meta", None)
    if meta is None or isinstance(one, type):
        raise InvalidJob(f"tags: {one!r} is neither a str nor a model instance")
    label = meta.concrete_model._meta.label_lower
    if one.pk is None or one._state.adding:
        raise InvalidJob(f"tags: this {label} is not saved yet, so no tag can name it")
    return f"{label}:{one.pk}"


def encode_meta(meta: object) -> str | None:
    """Return meta as JSON, or None if it is empty. Refuse values that cannot be stored."""
    if not isinstance(meta, Mapping):
        raise InvalidJob(f"meta: {meta!r} is not a dict")
    if not meta:
        return None
    text = encode_arguments(dict(meta), limit=_NO_LIMIT, what="meta")
    if len(text) > MAX_META_BYTES:
        raise PayloadError(f"meta: {len(text)} bytes of JSON, over the limit of {MAX_META_BYTES}")
    return text
