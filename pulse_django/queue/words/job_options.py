"""A job before it is enqueued. One that could never exist is refused with a clear error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pulse_django.exceptions import InvalidJob, PayloadError

from .bounds import DEFAULT_QUEUE, FIRST_YEAR, LAST_YEAR, MAX_DELAY, MAX_META_BYTES, MAX_TAG, MAX_TASK_NAME, MOST_TAGS
from .display import without
from .durations import WANTED
from .job_ids import MAX_ID
from .masks import Masks, Terms, terms_of
from .options import COLUMNS, OPTIONS, JobOptions, Text, Whole, check_job, values_of
from .payloads import encode_arguments, spelt_path

if TYPE_CHECKING:
    from pulse_django.unique.rule import UniqueKey

TASK_NAME = Text(MAX_TASK_NAME)
# Any printable name is a queue; nothing need be created first.
QUEUE_NAME, PRIORITY = OPTIONS["queue_name"].kind, OPTIONS["priority"].kind


class Payload(NamedTuple):
    """What a handler will be called with, as JSON."""

    args: str
    kwargs: str
    terms: Terms = ()  # by which the job is found

    def __repr__(self) -> str:
        return without(self, "args", "kwargs", "terms")

    @property
    def size(self) -> int:
        """Bytes: the encoder writes ASCII only."""
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
        """Encode arguments, or refuse them with the place of the first fault: by the function's ``names``, if given.

        Of what is masked the place is the argument, and not the keys within it. A job is not found by it either.
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
            # What caused it may repeat a key, or say anything.
            cause = error.__cause__ if sensitive is None else None
            raise type(error)(f"{place}: {error.fault}") from cause


# What a row says of a job beside its arguments, its options and its place.
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


class Place(Protocol):
    """Where a new job stands among others: in columns of its row."""

    def __init__(self) -> None: ...  # nowhere
    def by_column(self) -> dict[str, object]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob(JobOptions):
    """One job to enqueue. What is None follows the fleet's default."""

    task: str
    args: Sequence[Any] = field(default=(), repr=False)
    kwargs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    queue: str = DEFAULT_QUEUE
    priority: int = 0  # higher runs first
    run_after: datetime | timedelta | None = None  # not before this instant, or this long from now
    parent_id: int | None = None
    trace: str | None = None  # that it is enqueued in, as a W3C traceparent
    sensitive: str | None = None  # what its task hides of it, as the text of ``Masks``
    names: Sequence[str] | None = None  # of the arguments by position, for messages
    unique: UniqueKey | None = None
    encrypt: Callable[[Payload], Payload] | None = None  # None: it is stored as it is
    expires: datetime | timedelta | None = None  # not started by this instant, or this long from now: not at all
    tags: tuple[str, ...] = ()
    meta: str | None = None  # as JSON: ``encode_meta`` makes it
    lane_key: str = ""  # as ``lane_keys`` spells it
    place: Place | None = None
    searchable: tuple[str, ...] = ()  # the arguments by which it is found
    on_dead: str | None = None  # the row of its hook, as JSON: ``on_dead`` makes it
    # What is sent of those that ``called`` makes, but for what differs among them. The first one of them fills it in.
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
        """Let the jobs that ``called`` makes share what does not differ among them."""
        object.__setattr__(self, "alike", {})
        return self

    def called(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], parent_id: int | None, trace: str | None
    ) -> NewJob:
        """Return the same job with other arguments. What was checked of it is not checked again."""
        new = object.__new__(NewJob)
        for name in _FIELDS:
            object.__setattr__(new, name, getattr(self, name))
        for name, value in (("args", args), ("kwargs", kwargs), ("parent_id", parent_id), ("trace", trace)):
            object.__setattr__(new, name, value)
        return new

    @property
    def head(self) -> tuple[object, ...]:
        """All that it is but its arguments, to be compared. Jobs that are enqueued together mostly share it."""
        return (*_own(self), _in_utc(self.run_after), _in_utc(self.expires), self.place, values_of(self))

    def by_column(self) -> dict[str, Any]:
        """Return all but its arguments and its place, by the columns of its row. ``with_settings`` makes that whole.

        ``run_after`` and ``expires`` are no columns: what is stored depends on the server's clock.
        """
        row = dict(zip(_OWN, _own(self), strict=True)) | dict(zip(COLUMNS, values_of(self), strict=True))
        row |= {"run_after": _in_utc(self.run_after), "expires": _in_utc(self.expires)}
        return row | {"tags": self.tags or None, "ready": is_ready(self.lane_key, self.run_after)}

    def encoded(self, limit: int) -> Payload:
        return self.encoded_with(self.args, self.kwargs, limit)

    def encoded_with(self, args: Sequence[Any], kwargs: Mapping[str, Any], limit: int) -> Payload:
        """Encode other arguments than its own."""
        payload = Payload.of(args, kwargs, limit, self.names, self.sensitive, self.searchable)
        return payload if self.encrypt is None else self.encrypt(payload)


_FIELDS = tuple(one.name for one in fields(NewJob))


def is_ready(lane_key: str, run_after: datetime | timedelta | None) -> bool:
    """Say whether a new job may be claimed as it is. One with a lane key is made ready when its time has come."""
    return not lane_key or not run_after


def _in_utc(instant: datetime | timedelta | None) -> datetime | timedelta | None:
    """Two instants that differ in fold only are equal, except in UTC."""
    return instant.astimezone(UTC) if isinstance(instant, datetime) else instant


def _place_of(error: PayloadError, names: Sequence[str] | None, masks: Masks) -> str:
    """Spell where a fault is. With names, begin with that of the argument instead of where the encoder counted."""
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
    """Say when a job is to run, or expires: at this instant, or so long from now, by the server's clock."""
    if isinstance(run_after, datetime):
        # PostgreSQL reads offsets below 16 hours only, and would refuse others with the caller's transaction.
        return run_after.astimezone(UTC), timedelta()
    return None, run_after or timedelta()


def check_run_after(value: object) -> None:
    _check_instant_or_delay("run_after", value)


def check_expires(value: object, run_after: object = None) -> None:
    """Refuse what could never start. Instants are not compared with now: the database's clock decides."""
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


# What a job is labelled with: tags, by which jobs are found, and meta, which is only shown and passed on.


_NO_LIMIT = 2**31  # the limit of meta is not the setting that the encoder names

Tags = tuple[str, ...]


def tags_of(given: Iterable[object]) -> Tags:
    """Return tags as they are stored: each once, in the order given. A saved model instance stands for its own tag."""
    if not isinstance(given, Iterable):
        raise InvalidJob(f"tags: {given!r} is not a list of tags; write tags=[{given!r}]")
    tags = tuple(dict.fromkeys(tag_of(one) for one in ([given] if isinstance(given, str) else given)))
    if len(tags) > MOST_TAGS:
        raise InvalidJob(f"tags: {len(tags)} tags, over the limit of {MOST_TAGS}")
    return tags


def tag_of(one: object) -> str:
    """Return the tag that a text or a saved model instance stands for."""
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
    """Return meta as JSON, or refuse what cannot be stored. None: there is none."""
    if not isinstance(meta, Mapping):
        raise InvalidJob(f"meta: {meta!r} is not a dict")
    if not meta:
        return None
    text = encode_arguments(dict(meta), limit=_NO_LIMIT, what="meta")
    if len(text) > MAX_META_BYTES:
        raise PayloadError(f"meta: {len(text)} bytes of JSON, over the limit of {MAX_META_BYTES}")
    return text
