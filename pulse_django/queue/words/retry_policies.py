"""Retry policies: the backoff of a failed run, and the exceptions that are not retried."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from pulse_django.exceptions import InvalidJob
from pulse_django.safe_logging import SafeLogger

from .bounds import MAX_DELAY
from .durations import Seconds, as_timedelta, seconds_of
from .other_queues import no_call

logger = SafeLogger("pulse_django.jobs")

Random = Callable[[], float]  # a number in [0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delay after an attempt: ``unit × attempt^power × factor^(attempt - 1)``, capped, with some jitter.

    The default is ``attempt²`` seconds. The reap statement computes the same curve in SQL; a test compares the two.
    """

    unit: Seconds = timedelta(seconds=1)  # kept as a timedelta
    cap: Seconds = timedelta(hours=1)  # kept as a timedelta
    jitter: float = 0.1  # the share of the delay that is added or subtracted at random
    power: float = 2
    factor: float = 1

    def __post_init__(self) -> None:
        for name in ("unit", "cap"):
            given = getattr(self, name)
            if not isinstance(delay := as_timedelta(given), timedelta) or delay < timedelta():
                raise InvalidJob(f"backoff: {name}={given!r} is not a non-negative number of seconds or timedelta")
            object.__setattr__(self, name, delay)
        jitter, power, factor = self.jitter, self.power, self.factor
        are_numbers = all(isinstance(one, int | float) for one in (jitter, power, factor))
        if not (are_numbers and 0 <= jitter <= 1 and power >= 0 and factor >= 1):
            wanted = "give ints or floats: jitter from 0 to 1, power at least 0, factor at least 1"
            raise InvalidJob(f"backoff: {wanted}. Given: jitter={jitter!r}, power={power!r}, factor={factor!r}")

    @classmethod
    def fixed(cls, delay: Seconds) -> Backoff:
        """Return a backoff with the same delay after each attempt."""
        return cls(unit=delay, cap=delay, power=0, jitter=0)

    @classmethod
    def linear(cls, step: Seconds, cap: Seconds = 3600) -> Backoff:
        """Return a backoff whose delay grows by one ``step`` with each attempt."""
        return cls(unit=step, cap=cap, power=1)

    @classmethod
    def exponential(cls, base: Seconds = 1, factor: float = 2, cap: Seconds = 3600, jitter: float = 0.1) -> Backoff:
        """Return a backoff of ``base`` after the first attempt, multiplied by ``factor`` with each further one."""
        return cls(unit=base, cap=cap, power=0, factor=factor, jitter=jitter)

    def delay(self, counted: int, rand: Random = random.random) -> timedelta:
        """Return the delay after the ``counted``-th attempt that counts."""
        number = max(counted, 1)
        try:
            seconds = seconds_of(self.unit) * number**self.power * float(self.factor) ** (number - 1)
        except OverflowError:
            seconds = self.highest
        seconds = min(self.highest, seconds)
        return timedelta(seconds=seconds * (1 - self.jitter + 2 * self.jitter * rand()))

    def __call__(self, attempt: int) -> timedelta:
        return self.delay(attempt)

    @property
    def highest(self) -> float:
        """Return the cap in seconds before jitter, so that no delay exceeds ``cap``."""
        return min(seconds_of(self.cap), MAX_DELAY.total_seconds()) / (1 + self.jitter)


BackoffFunction = Callable[[int], Seconds]  # takes the number of the attempt; a Backoff is one


def delay_of(backoff: BackoffFunction, counted: int, rand: Random = random.random) -> timedelta:
    """Return the delay after an attempt. If a function of the project fails, use the default backoff."""
    if not isinstance(backoff, Backoff):
        try:
            delay: timedelta = as_timedelta(backoff(max(counted, 1)))
            return min(max(delay, timedelta()), MAX_DELAY)
        except BaseException:  # SystemExit too: the run must end
            logger.exception("The backoff %r failed; the job is retried after attempt² seconds", backoff)
            backoff = Backoff()
    return backoff.delay(counted, rand)


ExceptionType = type[BaseException]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A task's rule for the exceptions of its handler.

    ``backoff`` is a ``Backoff``, or any function that takes the number of an attempt and returns the seconds, or the
    ``timedelta``, until the next one.

    Exceptions are stored as dotted paths, and compared with the classes of the raised exception and all their bases. So
    the rule also works for a failure in another process.
    """

    backoff: BackoffFunction | None = None  # None: the default curve
    unless: frozenset[str] = frozenset()
    on: frozenset[str] | None = None  # None: any exception is retried

    if not TYPE_CHECKING:
        __call__ = no_call("raise RetryLater(delay), or let the exception out")

    def __post_init__(self) -> None:
        if self.backoff is not None and (isinstance(self.backoff, RetryPolicy) or not callable(self.backoff)):
            raise InvalidJob(f"backoff: {self.backoff!r} is neither a Backoff nor a function of the attempt")

    def retries(self, lineage: Iterable[str]) -> bool:
        """Return whether an exception with these classes, its own and all bases, is retried."""
        classes = frozenset(lineage)
        if classes & self.unless:
            return False
        return self.on is None or bool(classes & self.on)


def _classes(exceptions: tuple[ExceptionType, ...]) -> frozenset[str]:
    for one in exceptions:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise InvalidJob(f"{one!r} is not an exception class; write retry_unless(ValueError, KeyError)")
    return frozenset(map(dotted_path, exceptions))


def dotted_path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


NO_RETRIES = RetryPolicy(on=frozenset())


def retry_unless(*exceptions: ExceptionType, backoff: BackoffFunction | None = None) -> RetryPolicy:
    """Retry all exceptions except these."""
    return RetryPolicy(backoff, unless=_classes(exceptions))


def retry_on(*exceptions: ExceptionType, backoff: BackoffFunction | None = None) -> RetryPolicy:
    """Retry only these exceptions. Any other one makes the job a dead letter at once."""
    if not exceptions:
        raise InvalidJob("retry_on() names no exception. Write retry_on(OSError), or NO_RETRIES")
    return RetryPolicy(backoff, on=_classes(exceptions))


# Read from an exception how long an HTTP server asks clients to wait.


TOO_MANY_REQUESTS, UNAVAILABLE = 429, 503
WITHOUT_HEADER = timedelta(seconds=30)  # for 429; without the header, 503 is a normal error
LONGEST = timedelta(days=1)


def read_retry_after(error: BaseException) -> timedelta | None:
    """Return how long to wait after a response 429, or a response 503 with ``Retry-After``. Otherwise return None.

    It reads exceptions with a ``response``, as requests, httpx and aiohttp raise them, and exceptions that are the
    response, as in urllib. The header has seconds or a date. A date is compared with the ``Date`` of the response,
    because the clocks of two hosts differ.
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
