"""Rules that limit the jobs of a task: how many run at once, and how many start in a period."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

from pulse_django.exceptions import InvalidJob
from pulse_django.queue.words.display import in_words as seconds_in_words
from pulse_django.queue.words.durations import WANTED, Seconds, as_timedelta
from pulse_django.queue.words.lane_keys import OF_QUEUE, check_limiter_name, limiter_of_queue

MOST_RUNNING = 1_000_000
SHORTEST_PERIOD, LONGEST_PERIOD = timedelta(milliseconds=10), timedelta(days=366)
_BETWEEN = "between 10 ms and 366 days"

Period = Literal["second", "minute", "hour", "day"]
PERIODS: dict[str, int] = dict(zip(get_args(Period), (1, 60, 3_600, 86_400), strict=True))

_KEPT = (
    "max_running",
    "max_running_per_key",
    *(f"{rate}{of}" for rate in ("rate", "key_rate") for of in ("", "_per", "_burst")),
)

# How long to pause the limit after an exception, or None.
PauseWhen = Callable[[BaseException], Seconds | None]

# A key: the names of parameters, or a function of the arguments.
KeySource = str | tuple[str, ...] | Callable[..., object]


@dataclass(frozen=True, slots=True)
class Rate:
    """Never more than ``n`` starts in any window of length ``per``.

    After a pause, ``burst`` jobs start at once, and from then on ``n - burst + 1`` in each ``per``: together no more
    than ``n`` in any window. The default burst is a tenth of ``n``.
    """

    n: int
    per: Seconds | Period  # kept as a timedelta
    burst: int = 0  # 0: a tenth of n, and at least 1

    def __post_init__(self) -> None:
        _check_number("rate", self.n)
        given: Any = self.per
        per = as_timedelta(PERIODS.get(given, given) if isinstance(given, str) else given)
        if not isinstance(per, timedelta) or not SHORTEST_PERIOD <= per <= LONGEST_PERIOD:
            raise InvalidJob(f"rate: per={given!r} is neither {', '.join(PERIODS)} nor {WANTED} {_BETWEEN}")
        object.__setattr__(self, "per", per)
        if not self.burst:
            object.__setattr__(self, "burst", max(1, self.n // 10))
        _check_number("burst", self.burst)
        if self.burst > self.n:
            raise InvalidJob(f"rate: burst={self.burst} is more than n={self.n}")

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Read ``"60/minute"`` or ``"60/m"``."""
        n, _, unit = str(text).partition("/")
        per = next((seconds for name, seconds in PERIODS.items() if unit in (name, name[0])), None)
        if per is None or not n.isdecimal():
            raise InvalidJob(f"rate: {text!r} is not a number and s, m, h or d, such as '60/m'")
        return cls(int(n), per)


@dataclass(frozen=True, slots=True)
class Breaker:
    """Start nothing for ``pause_for`` after ``failures`` within a time. Then one job runs, and decides by its end.

    ``on``: the exceptions that count. Failures count while they are no further apart from the first of them than
    ``window``. If the one job succeeds, the others follow. If it fails with such an exception, nothing starts again.
    """

    failures: int = 5
    window: Seconds = timedelta(minutes=1)  # kept as a timedelta
    pause_for: Seconds = timedelta(minutes=1)  # the same
    on: type[Exception] | tuple[type[Exception], ...] = (Exception,)  # kept as a tuple

    def __post_init__(self) -> None:
        _check_number("failures", self.failures)
        for name, given in (("window", self.window), ("pause_for", self.pause_for)):
            period = as_timedelta(given)
            if not isinstance(period, timedelta) or not SHORTEST_PERIOD <= period <= LONGEST_PERIOD:
                raise InvalidJob(f"breaker: {name}={given!r} is not {WANTED} {_BETWEEN}")
            object.__setattr__(self, name, period)
        kinds = self.on if isinstance(self.on, tuple | list) else (self.on,)
        if not kinds or not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise InvalidJob(f"breaker: on={self.on!r} is not a tuple of exceptions")
        object.__setattr__(self, "on", tuple(kinds))


@dataclass(frozen=True, slots=True)
class Limit:
    """How many jobs run at once, and how many start in a period: in total, and for each key.

    Without a name it is the task's own. Tasks that are given the same name share it.

    ``pause_when`` is called with the exception of a handler. It returns how long to pause the limit, or None;
    ``pulse_django.read_retry_after`` reads the answer of an HTTP server. ``breaker`` counts failures instead.
    """

    name: str = ""
    max_running: int | None = None
    max_running_per_key: int | None = None
    rate: Rate | None = None
    rate_per_key: Rate | None = None
    pause_when: PauseWhen | None = None
    breaker: Breaker | None = None

    def __post_init__(self) -> None:
        if self.name != "":
            check_limiter_name(self.name)
            if self.name.startswith(OF_QUEUE):
                raise InvalidJob(f"limit: {self.name!r} begins with {OF_QUEUE!r}, as limits of queues do")
        for name, number in (("max_running", self.max_running), ("max_running_per_key", self.max_running_per_key)):
            if number is not None:
                _check_number(name, number)
        for name, rate in (("rate", self.rate), ("rate_per_key", self.rate_per_key)):
            if rate is not None and not isinstance(rate, Rate):
                raise InvalidJob(f"{name}: {rate!r} is not a Rate, such as Rate(60, per='minute')")
        if self.pause_when is not None and not callable(self.pause_when):
            raise InvalidJob(f"pause_when: {self.pause_when!r} is not a function")
        if self.breaker is not None and not isinstance(self.breaker, Breaker):
            raise InvalidJob(f"breaker: {self.breaker!r} is not a Breaker(...)")
        if not self.numbers() and self.pause_when is None and self.breaker is None:
            raise InvalidJob("limit: give max_running, max_running_per_key, rate, rate_per_key, pause_when or breaker")

    @property
    def needs_key(self) -> bool:
        return self.max_running_per_key is not None or self.rate_per_key is not None

    @property
    def heaviest(self) -> int | None:
        """Return the weight beyond which a job could never start."""
        return min((one for one in (self.max_running, self.max_running_per_key) if one is not None), default=None)

    def numbers(self) -> dict[str, Any]:
        """Return the numbers as the row of the limiter stores them."""
        found: dict[str, Any] = {"max_running": self.max_running, "max_running_per_key": self.max_running_per_key}
        for name, rate in (("rate", self.rate), ("key_rate", self.rate_per_key)):
            if rate is not None:
                period = as_timedelta(rate.per).total_seconds()
                found |= {name: rate.n, f"{name}_per": period, f"{name}_burst": rate.burst}
        return {name: number for name, number in found.items() if number is not None}


def _check_number(name: str, number: object) -> None:
    if type(number) is not int or not 1 <= number <= MOST_RUNNING:
        raise InvalidJob(f"{name}: {number!r} is not a whole number between 1 and {MOST_RUNNING:,}")


def limit_of_queue(queue: str, given: object) -> Limit:
    """Return the limit of a queue from a setting: a Limit, or a dict of its numbers."""
    check_limiter_name(limiter_of_queue(queue))
    if isinstance(given, Mapping):
        numbers = dict(given)
        if isinstance(rate := numbers.get("rate"), Mapping):
            numbers["rate"] = Rate(**{"per": None, **rate})
        given = Limit(**numbers)
    if not isinstance(given, Limit):
        raise InvalidJob(f"limit: {given!r} is not a Limit(...) or a dict of its numbers")
    if given.name or given.needs_key or given.pause_when or given.breaker:
        raise InvalidJob("limit: a queue's has no name, and only max_running and rate")
    return given


def override_of(fields: Mapping[str, int | Rate | None]) -> dict[str, Any]:
    """Return numbers that replace those of the code, as the row of the limiter stores them. None: no limit."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None:
            found["key_rate" if name == "rate_per_key" else name] = None
        else:
            found |= Limit(**{name: value}).numbers()  # type: ignore[arg-type]
    return found


def check_numbers(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse numbers that ``override_of`` would not return: the rows of limiters store them as JSON."""
    if not isinstance(numbers, Mapping):
        raise InvalidJob(f"numbers: {numbers!r} is not a dict")
    for name, number in numbers.items():
        if name not in _KEPT:
            raise InvalidJob(f"numbers: {name!r} is none of {', '.join(_KEPT)}")
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float) or not number > 0):
            raise InvalidJob(f"{name}: {number!r} is not a number above 0")
    return dict(numbers)


_FORMS = {
    "max_running": "%(n)s running",
    "max_running_per_key": "%(n)s of each key",
    "rate": "%(n)s in %(time)s",
    "key_rate": "%(n)s of each key in %(time)s",
}


def in_words(numbers: Mapping[str, Any], translate: Callable[[str], str] = str) -> str:
    """Describe numbers from the row of a limiter."""
    given = {name: n for name in _FORMS if (n := numbers.get(name)) is not None}
    times = {name: seconds_in_words(numbers[f"{name}_per"]) for name in given if name.endswith("rate")}
    parts = [translate(_FORMS[name]) % {"n": n, "time": times.get(name)} for name, n in given.items()]
    return ", ".join(parts) or translate("no limit")
