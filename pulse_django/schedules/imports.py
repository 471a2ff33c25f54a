"""Read the schedules of django-celery-beat, and convert them.

Its package need not be installed: the tables are read as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, ProgrammingError, connections, transaction

from pulse_django.exceptions import InvalidSchedule
from pulse_django.queue.database.sql_functions import aware
from pulse_django.queue.words.bounds import HIGHEST_PRIORITY

from .timings import EPOCH, Cron, Every, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A schedule of another package."""

    name: str
    task: str  # its name in that package
    timing: Timing | None = None
    args: list[Any] = field(default_factory=list, repr=False)
    kwargs: dict[str, Any] = field(default_factory=dict, repr=False)
    queue: str | None = None
    priority: int | None = None
    starts_at: datetime | None = None
    is_disabled: bool = False
    why_not: str = ""  # why it cannot be imported
    notes: tuple[str, ...] = ()  # differences in Pulse


class NothingToRead(Exception):
    """The tables of the other package do not exist."""


Row = Mapping[str, Any]


class _CannotBeSaid(ValueError):
    """A schedule that Pulse cannot express; the text says why."""


_HOUSEKEEPING = "celery.backend_cleanup"  # Celery's own
_UNITS = ("days", "hours", "minutes", "seconds", "microseconds")


def from_celery_beat(alias: str) -> list[Found]:
    """Read the tables of django-celery-beat."""
    tasks = [row for row in _rows(alias, "django_celery_beat_periodictask") if row["task"] != _HOUSEKEEPING]
    crontabs = {row["id"]: row for row in _rows(alias, "django_celery_beat_crontabschedule")}
    intervals = {row["id"]: row for row in _rows(alias, "django_celery_beat_intervalschedule")}
    return [
        _found(row, row["task"], _of_beat, crontabs.get(row["crontab_id"]), intervals.get(row["interval_id"]))
        for row in sorted(tasks, key=lambda row: str(row["name"]))
    ]


SOURCES = {"django-celery-beat": from_celery_beat}


def _rows(alias: str, table: str) -> list[dict[str, Any]]:
    connection = connections[alias]
    try:
        with transaction.atomic(using=alias), connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")  # noqa: S608 - a constant
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, map(aware, row), strict=True)) for row in cursor.fetchall()]
    except (OperationalError, ProgrammingError) as error:
        raise NothingToRead(f"There is no table {table} in database {alias!r} that can be read.") from error


def _found(row: Row, task: str, read: Callable[..., dict[str, Any]], *others: Row | None) -> Found:
    """Return the schedule, or the reason why it cannot be read."""
    try:
        return Found(name=row["name"], task=task, **read(row, *others))
    except (InvalidSchedule, ValueError, SyntaxError, TypeError) as error:
        return Found(name=row["name"], task=task, why_not=str(error))


def _of_beat(row: Row, crontab: Row | None, interval: Row | None) -> dict[str, Any]:
    if row["one_off"]:
        raise _CannotBeSaid("it runs once: enqueue the task with run_after")
    notes = ["expires is omitted"] if row["expires"] else []
    if row.get("expire_seconds"):
        notes.append(f"its jobs do not expire: use @task(expires=timedelta(seconds={row['expire_seconds']}))")
    if (priority := row.get("priority")) is not None:
        notes.append("higher priorities run first, as in RabbitMQ; in Redis it was lower ones")
    return {
        "timing": _timing_of_beat(crontab, interval, row.get("last_run_at") or row["start_time"]),
        "priority": None if priority is None else min(priority, HIGHEST_PRIORITY),
        "args": _loaded(row["args"], list),
        "kwargs": _loaded(row["kwargs"], dict),
        "queue": row["queue"] or None,
        "starts_at": row["start_time"],
        "is_disabled": not row["enabled"],
        "notes": tuple(notes),
    }


def _timing_of_beat(crontab: Row | None, interval: Row | None, last: datetime | None) -> Timing:
    if interval is not None:
        if interval["period"] not in _UNITS:
            raise _CannotBeSaid(f"the period {interval['period']!r} is not known")
        every = timedelta(**{interval["period"]: interval["every"]})
        # Celery counts from the last run, and a day that counts from 1970 begins at midnight in UTC.
        return Every(every) if last is None or not every else Every(every, phase=(last - EPOCH) % every)
    if crontab is None:
        raise _CannotBeSaid("it follows the sun, or runs once at a time of the clock")
    names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    fields = ["".join(str(crontab[name]).split()) for name in names]
    if not fields[2].startswith("*") and not fields[4].startswith("*"):
        raise _CannotBeSaid("Celery runs it on days that fit both fields, and cron on days that fit one of them")
    return Cron(" ".join(fields), str(crontab["timezone"]))


def _loaded(text: str | None, kind: type) -> Any:
    found = json.loads(text or ("[]" if kind is list else "{}"))
    if not isinstance(found, kind):
        raise _CannotBeSaid(f"its arguments are no {kind.__name__}")
    return found
