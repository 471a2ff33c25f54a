"""Read the schedules of django-celery-beat and django-q2, and convert them.

Their packages need not be installed: the tables are read as they are.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from django.db import OperationalError, ProgrammingError, connections, transaction

from pulse_django import conf
from pulse_django.exceptions import InvalidSchedule
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


def from_django_q(alias: str) -> list[Found]:
    """Read the table of django-q2."""
    rows = sorted(_rows(alias, "django_q_schedule"), key=lambda row: int(row["id"]))
    return [_found(row | {"name": row["name"] or f"django-q2 {row['id']}"}, row["func"], _of_q) for row in rows]


SOURCES = {"django-celery-beat": from_celery_beat, "django-q2": from_django_q}


def _rows(alias: str, table: str) -> list[dict[str, Any]]:
    connection = connections[alias]
    try:
        with transaction.atomic(using=alias), connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")  # noqa: S608 - a constant
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
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


def _of_q(row: Row) -> dict[str, Any]:
    if row["repeats"] is not None and row["repeats"] >= 0:
        raise _CannotBeSaid(f"it runs {row['repeats']} more times: schedules here have an end (ends_at) instead")
    return {
        "timing": _timing_of_q(row),
        "args": _arguments(row["args"]),
        "kwargs": _named(row["kwargs"]),
        "queue": row["cluster"] or None,
    }


def _timing_of_q(row: Row) -> Timing:
    zone: tzinfo = ZoneInfo(conf.time_zone())
    at = row["next_run"].astimezone(zone)
    time, name = f"{at.minute} {at.hour}", conf.time_zone()
    match row["schedule_type"]:
        case "I":
            return Every(timedelta(minutes=row["minutes"]))
        case "H":
            return Every(timedelta(hours=1), phase=timedelta(minutes=at.minute))
        case "D":
            return Cron(f"{time} * * *", name)
        case "W":
            return Cron(f"{time} * * {at.isoweekday()}", name)
        case "M":
            return Cron(f"{time} {_day(at)} * *", name)
        case "Q":
            months = sorted((at.month + 3 * quarter - 1) % 12 + 1 for quarter in range(4))
            return Cron(f"{time} {_day(at)} {','.join(map(str, months))} *", name)
        case "Y":
            return Cron(f"{time} {_day(at)} {at.month} *", name)
        case "C":
            return Cron(row["cron"] or "", name)
        case "O":
            raise _CannotBeSaid("it runs once: enqueue the task with run_after")
    raise _CannotBeSaid("a cron expression cannot express every other week or month")


def _day(at: datetime) -> int:
    if at.day > 28:
        raise _CannotBeSaid(f"day {at.day} is not in every month, where django-q2 takes the last one")
    return at.day


def _loaded(text: str | None, kind: type) -> Any:
    found = json.loads(text or ("[]" if kind is list else "{}"))
    if not isinstance(found, kind):
        raise _CannotBeSaid(f"its arguments are no {kind.__name__}")
    return found


def _arguments(text: str | None) -> list[Any]:
    if not text:
        return []
    found = ast.literal_eval(text)
    return list(found) if isinstance(found, tuple | list) else [found]


def _named(text: str | None) -> dict[str, Any]:
    """Read ``{"a": 1}``, or ``a=1, b=2`` as django-q2's form has it."""
    if not text:
        return {}
    if text.lstrip().startswith("{"):
        found = ast.literal_eval(text)
        if not isinstance(found, dict):
            raise _CannotBeSaid("its keyword arguments cannot be read")
        return found
    [statement] = ast.parse(f"f({text})").body
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or call.args:
        raise _CannotBeSaid("its keyword arguments cannot be read")
    return {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
