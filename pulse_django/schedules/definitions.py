"""The definition of a schedule: the fields that code declares and users override, each as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from pulse_django.exceptions import InvalidJob, InvalidSchedule
from pulse_django.queue.words.bounds import FIRST_YEAR, LAST_YEAR
from pulse_django.queue.words.durations import seconds_of
from pulse_django.queue.words.job_options import PRIORITY, QUEUE_NAME, TASK_NAME, Payload
from pulse_django.queue.words.options import Text

from .timings import Cron, Every, Timing

MAX_NAME, MAX_OWNER, MAX_BY = 100, 200, 200
_NAME = Text(MAX_NAME)

Fields = Mapping[str, Any]  # JSON by the name of the field

# Fields that users may override. The timing is one field: an expression in another time zone is another schedule.
OVERRIDABLE = (
    *("timing", "missed", "grace", "overlap", "jitter"),
    *("args", "kwargs", "queue", "priority", "starts_at", "ends_at"),
)
# Fields that decide when the schedule is due. If one changes, the next time is computed again.
SAY_WHEN = ("timing", "starts_at", "ends_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A schedule: the task, its arguments, and the timing."""

    name: str
    task: str  # the key of its jobs
    timing: Timing
    args: Sequence[Any] = field(default=(), repr=False)
    kwargs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    queue: str | None = None  # None: the task's
    priority: int | None = None  # None: the task's
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def check(self, limit: int) -> None:
        """Raise InvalidSchedule for invalid values; ``limit`` is the maximum size of the arguments."""
        try:
            _NAME.check("name", self.name)
            TASK_NAME.check("task", self.task)
            if not isinstance(self.timing, Cron | Every):
                raise InvalidSchedule(f"{self.timing!r} is neither a Cron nor an Every")
            if self.queue is not None:
                QUEUE_NAME.check("queue", self.queue)
            if self.priority is not None:
                PRIORITY.check("priority", self.priority)
            if not isinstance(self.args, Sequence) or isinstance(self.args, str | bytes | bytearray):
                raise InvalidSchedule("args: not a list")
            if not isinstance(self.kwargs, Mapping):
                raise InvalidSchedule("kwargs: not a mapping")
            Payload.of(self.args, self.kwargs, limit)
        except InvalidJob as error:
            raise InvalidSchedule(f"{self.name}: {error}") from error
        for name in ("starts_at", "ends_at"):
            _check_instant(name, getattr(self, name))
        if self.starts_at is not None and self.ends_at is not None and self.starts_at >= self.ends_at:
            raise InvalidSchedule("ends_at: not after starts_at")

    def fields(self, zone: str) -> dict[str, Any]:
        """Return the fields as JSON. ``zone`` is the time zone of expressions that name none."""
        timing = self.timing
        return {
            "timing": _timing_as_json(timing, zone),
            "missed": str(timing.missed),
            "grace": _unless_none(seconds_of, timing.grace),
            "overlap": str(timing.overlap),
            "jitter": seconds_of(timing.jitter),
            "args": json.loads(json.dumps(list(self.args))),
            "kwargs": json.loads(json.dumps(dict(self.kwargs))),
            "queue": self.queue,
            "priority": self.priority,
            "starts_at": _unless_none(datetime.isoformat, self.starts_at),
            "ends_at": _unless_none(datetime.isoformat, self.ends_at),
        }


def columns_of(fields: Fields) -> dict[str, Any]:
    """Return the values of the row's columns."""
    timing = fields["timing"]
    return {
        "cron": timing.get("cron"),
        "tz": timing.get("tz"),
        **{name: _unless_none(_duration, timing.get(name)) for name in ("every", "phase")},
        **{name: _unless_none(_duration, fields[name]) for name in ("grace", "jitter")},
        **{name: _unless_none(datetime.fromisoformat, fields[name]) for name in ("starts_at", "ends_at")},
        **{name: fields[name] for name in ("missed", "overlap", "args", "kwargs", "queue", "priority")},
    }


def timing_of(row: Any) -> Timing:
    """Return the timing of a row with these columns, or raise InvalidSchedule."""
    policy = row.missed, row.grace, row.overlap, row.jitter or timedelta()
    return _timing(row.cron, row.tz, row.every, row.phase, policy)


def timing_or_none(row: Any) -> Timing | None:
    """Return the timing of a row. None: it was written by hand, and has none."""
    try:
        return timing_of(row)
    except Exception:  # such a row may hold anything
        return None


@lru_cache(maxsize=4_096)
def _timing(
    cron: str | None, tz: str | None, every: timedelta | None, phase: timedelta | None, how: tuple[Any, ...]
) -> Timing:
    policy = dict(zip(("missed", "grace", "overlap", "jitter"), how, strict=True))
    if (cron is None) == (every is None):
        raise InvalidSchedule("give either cron or every")
    if every is not None:
        return Every(every, phase or timedelta(), **policy)
    return Cron(cron or "", tz, **policy)


def definition_of(row: Any) -> Definition:
    """Return the definition in a row."""
    same = ("name", "task", "args", "kwargs", "queue", "priority", "starts_at", "ends_at")
    return Definition(timing=timing_of(row), **{name: getattr(row, name) for name in same})


def overridden(declared: Fields, overrides: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields in force: those of users override those of the code."""
    return {**declared, **{name: one["value"] for name, one in overrides.items() if name in OVERRIDABLE}}


def _timing_as_json(timing: Timing, zone: str) -> dict[str, Any]:
    if isinstance(timing, Cron):
        return {"cron": timing.expression, "tz": timing.tz or zone}
    if isinstance(timing, Every):
        return {"every": timing.interval.total_seconds(), "phase": timing.phase.total_seconds()}
    raise InvalidSchedule(f"{timing!r} is neither a Cron nor an Every")


def _unless_none(spell: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else spell(value)


def _duration(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _check_instant(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidSchedule(f"{name}: {value!r} is not an aware datetime")
    if not FIRST_YEAR <= value.year <= LAST_YEAR:
        raise InvalidSchedule(f"{name}: {value} is not between the years {FIRST_YEAR} and {LAST_YEAR}")
