"""When a failed run is retried: the backoff, and the exceptions that are not retried."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from pulse_django.exceptions import InvalidJob

from .durations import Seconds, as_timedelta

Random = Callable[[], float]  # a number in [0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """``attempt² × unit`` seconds, capped, with a little jitter.

    The reap statement computes the same curve in SQL; a test holds the two together.
    """

    unit: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(hours=1)
    jitter: float = 0.1  # the share by which a delay may be shorter or longer

    if TYPE_CHECKING:  # what may be given, and not what is kept

        def __init__(self, *, unit: Seconds = 1, cap: Seconds = 3600, jitter: float = 0.1) -> None: ...

    def __post_init__(self) -> None:
        for name in ("unit", "cap"):
            given = getattr(self, name)
            if not isinstance(delay := as_timedelta(given), timedelta) or delay < timedelta():
                raise InvalidJob(f"backoff: {name}={given!r} is not a non-negative number of seconds or timedelta")
            object.__setattr__(self, name, delay)

    def delay(self, counted: int, rand: Random = random.random) -> timedelta:
        """Return the pause after the ``counted``-th attempt that counts."""
        seconds = min(self.highest, max(counted, 1) ** 2 * self.unit.total_seconds())
        return timedelta(seconds=seconds * (1 - self.jitter + 2 * self.jitter * rand()))

    @property
    def highest(self) -> float:
        """Seconds that the curve reaches before jitter, so that no pause is longer than the cap."""
        return self.cap.total_seconds() / (1 + self.jitter)


ExceptionType = type[BaseException]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A task's own rule for what its handler raised.

    Exceptions are kept as dotted paths and matched against the whole lineage of the one that was raised: a failure
    that crossed a process boundary still finds its rule, also through a base class.
    """

    backoff: Backoff | None = None  # None: the fleet's curve
    never: frozenset[str] = frozenset()
    only: frozenset[str] | None = None  # None: any exception is retried

    def retries(self, lineage: Iterable[str]) -> bool:
        """Say whether an exception with these classes, from its own up to its last base, may be tried again."""
        classes = frozenset(lineage)
        if classes & self.never:
            return False
        return self.only is None or bool(classes & self.only)


def _classes(exceptions: tuple[ExceptionType, ...]) -> frozenset[str]:
    for one in exceptions:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise InvalidJob(f"{one!r} is no exception class; write never(ValueError, KeyError)")
    return frozenset(map(dotted_path, exceptions))


def dotted_path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


NO_RETRIES = RetryPolicy(only=frozenset())


def never(*exceptions: ExceptionType, backoff: Backoff | None = None) -> RetryPolicy:
    """Retry whatever is raised but these."""
    return RetryPolicy(backoff, never=_classes(exceptions))


def only(*exceptions: ExceptionType, backoff: Backoff | None = None) -> RetryPolicy:
    """Retry these, and dead-letter anything else at once."""
    return RetryPolicy(backoff, only=_classes(exceptions))


# Read from an exception for how long an HTTP server wants no more requests.


TOO_MANY_REQUESTS, UNAVAILABLE = 429, 503
WITHOUT_HEADER = timedelta(seconds=30)  # of 429; without the header 503 is an error like any other
LONGEST = timedelta(days=1)


def retry_after(error: BaseException) -> timedelta | None:
    """Return how long to wait if the exception is of an answer 429, or of 503 with ``Retry-After``; otherwise None.

    It understands exceptions with a ``response``, as requests, httpx and aiohttp clients raise them, and those that are
    the answer, as of urllib. The header has seconds or a date. The date is compared with the ``Date`` of the answer,
    because clocks of two hosts differ.
    """
    answer = getattr(error, "response", None)
    answer = error if answer is None else answer
    status = next(
        (code for name in ("status_code", "status", "code") if type(code := getattr(answer, name, None)) is int), 0
    )
    if status not in (TOO_MANY_REQUESTS, UNAVAILABLE):
        return None
    headers = getattr(answer, "headers", None)
    said, now = _header(headers, "Retry-After"), _header(headers, "Date")
    wait = None if said is None else _read(said, now)
    if wait is None:
        return WITHOUT_HEADER if status == TOO_MANY_REQUESTS else None
    return min(max(wait, timedelta()), LONGEST)


def _header(headers: Any, name: str) -> str | None:
    try:
        found = headers.get(name)
        found = headers.get(name.lower()) if found is None else found
    except Exception:
        return None
    return None if found is None else str(found)


def _read(text: str, now: str | None) -> timedelta | None:
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        pass
    try:
        return None if now is None else parsedate_to_datetime(text) - parsedate_to_datetime(now)
    except (TypeError, ValueError):
        return None
