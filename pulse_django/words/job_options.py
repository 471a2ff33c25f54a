"""What is asked for at enqueue: a job that does not exist yet, refused with a clear error when it never could."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple

from pulse_django.exceptions import InvalidJob, PayloadError

from .job_ids import MAX_ID, check_whole_number
from .limits import (
    DEFAULT_QUEUE,
    FIRST_YEAR,
    HIGHEST_PRIORITY,
    LAST_YEAR,
    LONGEST_LEASE,
    LOWEST_PRIORITY,
    MAX_DELAY,
    MAX_IDEMPOTENCY_KEY,
    MAX_QUEUE_NAME,
    MAX_TASK_NAME,
    MOST_ATTEMPTS,
    SHORTEST_LEASE,
)
from .masks import Masks
from .payloads import encode_arguments, spelt_path
from .reprs import without


class Payload(NamedTuple):
    """What a handler will be called with, as JSON."""

    args: str
    kwargs: str

    def __repr__(self) -> str:
        return without(self, "args", "kwargs")

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
        masked: str | None = None,
    ) -> Payload:
        """Encode arguments, or refuse them with the place of the first fault: by the function's ``names``, if given.

        Of what is masked the place is the argument, and not the keys within it.
        """
        try:
            return cls(
                encode_arguments(list(args), limit=limit, what="args") if args else "[]",
                encode_arguments(dict(kwargs), limit=limit, what="kwargs") if kwargs else "{}",
            )
        except PayloadError as error:
            place = _place_of(error, names, Masks.read(masked))
            # What caused it may repeat a key, or say anything.
            cause = error.__cause__ if masked is None else None
            raise type(error)(f"{place}: {error.fault}") from cause


class Head(NamedTuple):
    """All that a new job is but its arguments. Jobs that are enqueued together mostly share it."""

    task: str
    queue: str
    priority: int
    run_after: datetime | timedelta | None
    max_attempts: int | None
    lease_ttl: timedelta | None
    timeout: timedelta | None
    stall_after: timedelta | None
    max_losses: int | None
    free_losses: bool
    parent_id: int | None
    idempotency_key: str | None
    trace: str | None
    masked: str | None

    @property
    def run_at_or_delay(self) -> tuple[datetime | None, timedelta]:
        """When it is to run: at this instant, or so long from now, by the server's clock."""
        if isinstance(self.run_after, datetime):
            # PostgreSQL reads offsets below 16 hours only, and would refuse others with the caller's transaction.
            return self.run_after.astimezone(UTC), timedelta()
        return None, self.run_after or timedelta()

    def to_json(self, number: int) -> dict[str, Any]:
        """Return it in the shape that the statement for many jobs reads."""
        run_at, delay = self.run_at_or_delay
        return self._asdict() | {
            "number": number,
            "run_after": None,
            "run_at": run_at and run_at.isoformat(),
            "delay": delay.total_seconds(),
            "lease_ttl": _seconds(self.lease_ttl),
            "timeout": _seconds(self.timeout),
            "stall_after": _seconds(self.stall_after),
        }


_head_of = attrgetter(*Head._fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """One job to enqueue. ``max_attempts=None`` and the other Nones mean the fleet's default."""

    task: str
    args: Sequence[Any] = field(default=(), repr=False)
    kwargs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    queue: str = DEFAULT_QUEUE
    priority: int = 0  # higher runs first
    run_after: datetime | timedelta | None = None  # not before this instant, or this long from now
    max_attempts: int | None = None
    lease_ttl: timedelta | None = None
    timeout: timedelta | None = None  # the longest a single run may take
    stall_after: timedelta | None = None  # the longest a run may go without reporting progress
    parent_id: int | None = None
    max_losses: int | None = None  # how many workers it may lose until it is dead-lettered
    free_losses: bool = False  # whether a lost worker costs no attempt
    idempotency_key: str | None = None  # of two jobs of one task with the same key only the first exists
    trace: str | None = None  # that it is enqueued in, as a W3C traceparent
    masked: str | None = None  # what its task hides of it, as the text of ``Masks``
    names: Sequence[str] | None = None  # of the arguments by position, for messages

    def __post_init__(self) -> None:
        _check_name("task", self.task, MAX_TASK_NAME)
        check_queue_name(self.queue)
        check_priority(self.priority)
        if self.max_attempts is not None:
            check_whole_number("max_attempts", self.max_attempts, 1, MOST_ATTEMPTS)
        if self.max_losses is not None:
            check_whole_number("max_losses", self.max_losses, 1, MOST_ATTEMPTS)
        if not isinstance(self.free_losses, bool):
            raise InvalidJob(f"free_losses: {self.free_losses!r} is neither True nor False")
        for name in ("lease_ttl", "timeout", "stall_after"):
            _check_duration(name, getattr(self, name))
        _check_run_after(self.run_after)
        if self.lease_ttl is not None and self.lease_ttl < SHORTEST_LEASE:
            raise InvalidJob(f"lease_ttl: {self.lease_ttl} is shorter than {SHORTEST_LEASE}, the minimum")
        if self.lease_ttl is not None and self.lease_ttl > LONGEST_LEASE:
            raise InvalidJob(
                f"lease_ttl: {self.lease_ttl} is longer than {LONGEST_LEASE}. The job of a dead worker would not be "
                f"recovered for that long. Heartbeats extend the lease of a long run"
            )
        if self.parent_id is not None:
            check_whole_number("parent_id", self.parent_id, 1, MAX_ID)
        if self.idempotency_key is not None:
            _check_name("idempotency_key", self.idempotency_key, MAX_IDEMPOTENCY_KEY)

    @property
    def head(self) -> Head:
        return Head(*_head_of(self))

    def encoded(self, limit: int) -> Payload:
        return Payload.of(self.args, self.kwargs, limit, self.names, self.masked)


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


def check_queue_name(name: object) -> None:
    """Any printable name is a queue; nothing need be created first."""
    _check_name("queue", name, MAX_QUEUE_NAME)


def check_priority(value: object) -> None:
    check_whole_number("priority", value, LOWEST_PRIORITY, HIGHEST_PRIORITY)


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _check_name(field_name: str, value: object, longest: int) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidJob(f"{field_name}: {value!r} is not a non-empty string")
    if len(value) > longest:
        raise InvalidJob(f"{field_name}: {len(value)} characters, over the limit of {longest}")
    if not value.isprintable():
        raise InvalidJob(f"{field_name}: {value!r} contains unprintable characters")


def _check_duration(field_name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, timedelta):
        raise InvalidJob(f"{field_name}: {value!r} is not a timedelta")
    if not timedelta() < value <= MAX_DELAY:
        raise InvalidJob(f"{field_name}: {value} must be positive and at most {MAX_DELAY.days} days")


def _check_run_after(value: object) -> None:
    if value is None:
        return
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise InvalidJob(f"run_after: {value!r} is naive; use an aware datetime")
        if not FIRST_YEAR <= value.year <= LAST_YEAR:
            raise InvalidJob(f"run_after: {value} is not between the years {FIRST_YEAR} and {LAST_YEAR}")
    elif not isinstance(value, timedelta):
        raise InvalidJob(f"run_after: {value!r} is neither a datetime nor a timedelta")
    elif not timedelta() <= value <= MAX_DELAY:
        raise InvalidJob(f"run_after: {value} is not between 0 and {MAX_DELAY.days} days")
