"""Store schedules: create, change, declare, pause and resume them.

The server's clock decides which tick is next. A new, changed or resumed schedule never fires for the past.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import models, transaction

from pulse_django import conf
from pulse_django.exceptions import InvalidSchedule
from pulse_django.queue.database.database_errors import DatabaseFault, fault_of
from pulse_django.queue.database.sql_functions import aware
from pulse_django.queue.database.transactions import joined, run_joined
from pulse_django.queue.declarations import Declarer, declare_once
from pulse_django.queue.words.bounds import MAX_DELAY, MAX_STORED_REASON
from pulse_django.queue.words.durations import Seconds, as_timedelta
from pulse_django.queue.words.job_ids import MAX_ID
from pulse_django.queue.words.options import Whole
from pulse_django.queue.words.payloads import clean_text, error_in_one_line, one_line
from pulse_django.safe_logging import SafeLogger

from .definitions import (
    MAX_BY,
    OVERRIDABLE,
    SAY_WHEN,
    Definition,
    columns_of,
    definition_of,
    overridden,
    timing_or_none,
)
from .tick import write_ticks
from .tick_rules import Tick, TickOutcome, first_after, without_firing
from .timings import Timing

if TYPE_CHECKING:
    from pulse_django.models import Schedule

logger = SafeLogger("pulse_django.schedules")

CHANGED = "the schedule was changed before this tick was decided"
_ZONE = "UTC"  # the zone of an expression without one; the CHECK of the table refuses such rows

_PAUSE = """
WITH found AS MATERIALIZED (
    SELECT id, paused_at, paused_until
    FROM pulse_django_schedule
    WHERE id = ANY (%s::bigint[]) AND gone_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
),
paused AS MATERIALIZED (
    SELECT
        id, clock_timestamp() AS now,
        CASE
            WHEN paused_at IS NULL OR paused_until <= statement_timestamp() THEN clock_timestamp() ELSE paused_at
        END AS since,
        clock_timestamp() + %s::float8 * interval '1 second' AS until
    FROM found
),
written AS (
    UPDATE pulse_django_schedule AS schedule
    SET paused_at = paused.since, paused_until = paused.until, pause_reason = %s, changed_by = %s,
        changed_at = paused.now
    FROM paused
    WHERE schedule.id = paused.id AND schedule.gone_at IS NULL
    RETURNING schedule.id
)
SELECT id FROM written
"""

# The pause ends now. The next tick removes it, because it must know which ticks were paused.
_RESUME = """
WITH found AS MATERIALIZED (
    SELECT id
    FROM pulse_django_schedule
    WHERE id = ANY (%s::bigint[]) AND paused_at IS NOT NULL
        AND (paused_until IS NULL OR paused_until > statement_timestamp())
    ORDER BY id
    FOR NO KEY UPDATE
),
resumed AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM found
),
written AS (
    UPDATE pulse_django_schedule AS schedule
    SET paused_until = resumed.now, changed_by = %s, changed_at = resumed.now
    FROM resumed
    WHERE schedule.id = resumed.id AND schedule.paused_at IS NOT NULL
    RETURNING schedule.id
)
SELECT id FROM written
"""


def clock(alias: str) -> datetime:
    """Return the server's time."""
    now: datetime = aware(run_joined(alias, "SELECT clock_timestamp()", [])[0][0])
    return now


def store(row: Schedule, alias: str, by: str = "", reason: str = "") -> None:
    """Insert or update a schedule with its fields. They override those of the code."""
    if row.cron and not row.tz:
        row.tz = conf.time_zone()
    wanted = check(row)
    with joined(alias):
        if row.pk is None:
            row.next_at = first_after(row.timing, clock(alias), starts_at=row.starts_at, ends_at=row.ends_at)
            row.changed_by = clean_text(by, MAX_BY)
            models.Model.save(row, using=alias, force_insert=True)
            return
        stored, now = _locked(type(row), alias, row.pk)
        before, after = definition_of(stored).fields(_ZONE), wanted.fields(_ZONE)
        changed = {name: after[name] for name in OVERRIDABLE if after[name] != before[name]}
        others = {"name": row.name, "task": row.task, "owner": row.owner} if stored.declared is None else {}
        _change(stored, changed, now, alias, by=by, reason=reason, others=others)
        for field in row._meta.concrete_fields:
            setattr(row, field.attname, getattr(stored, field.attname))


def change(schedules: Any, schedule_id: int, fields: Mapping[str, Any], *, by: str = "", reason: str = "") -> Schedule:
    """Change these fields, given as JSON. They override those of the code, with the user and the reason."""
    with joined(schedules.write_alias):
        stored, now = _locked(schedules.model, schedules.write_alias, schedule_id)
        _change(stored, fields, now, schedules.write_alias, by=by, reason=reason)
        return stored


def follow_code(schedules: Any, schedule_id: int, fields: Collection[str] = OVERRIDABLE, *, by: str = "") -> Schedule:
    """Undo the changes of users in these fields."""
    with joined(schedules.write_alias):
        stored, now = _locked(schedules.model, schedules.write_alias, schedule_id)
        if stored.declared is None:
            raise InvalidSchedule(f"{stored.name}: no code declares it")
        stored.overrides = {name: one for name, one in stored.overrides.items() if name not in fields}
        _change(stored, {}, now, schedules.write_alias, by=by, reason="")
        return stored


def pause(
    schedules: Any, *schedule_ids: int, reason: str = "", duration: Seconds | None = None, by: str = ""
) -> list[int]:
    """Pause these, for this duration or until they are resumed. Return the ids of those that exist."""
    lasts = as_timedelta(duration)
    if lasts is not None and not timedelta() < lasts <= MAX_DELAY:
        raise ValueError(f"duration: {duration} must be positive and at most {MAX_DELAY.days} days")
    seconds = None if lasts is None else lasts.total_seconds()
    params = [_ids(schedule_ids), seconds, clean_text(reason, MAX_STORED_REASON), clean_text(by, MAX_BY)]
    return sorted(paused for (paused,) in run_joined(schedules.write_alias, _PAUSE, params))


def resume(schedules: Any, *schedule_ids: int, by: str = "") -> list[int]:
    """Resume these from now on. Return the ids of those that were paused."""
    params = [_ids(schedule_ids), clean_text(by, MAX_BY)]
    return sorted(resumed for (resumed,) in run_joined(schedules.write_alias, _RESUME, params))


def _ids(schedule_ids: Sequence[int]) -> list[int]:
    for one in schedule_ids:
        Whole(1, MAX_ID).check("schedule id", one)
    return list(schedule_ids)


def declare(schedules: Any, declarer: Declarer, definitions: Sequence[Definition], *, silence: timedelta) -> bool:
    """Store the schedules of this code, unless a worker that started later has declared. Return whether it did.

    A refused declaration stops no other one. Its schedule is stored with the reason, and its ticks are refused; if it
    cannot be stored, this is logged.
    """
    alias, wanted, unwritten = schedules.write_alias, {}, set()
    for one in definitions:
        try:
            wanted[one.name] = _declared(schedules.model, one)
        except Exception as error:
            logger.error("Schedule %s cannot be declared: %s", one_line(one.name), error_in_one_line(error))
            unwritten.add(one.name)
    return declare_once(
        alias,
        declarer,
        wanted,
        silence=silence,
        stored=lambda: schedules.using(alias).filter(name__in=list(wanted)).count(),
        store=lambda: _apply(schedules, declarer.scope, wanted, unwritten, clock(alias)),
    )


def _declared(model: type[Schedule], definition: Definition) -> dict[str, Any]:
    """Return a definition as JSON, with the reason if its task refuses the call."""
    definition.check(conf.current().max_payload_bytes)
    fields = {"task": definition.task, **definition.fields(conf.time_zone())}
    try:
        model.check_call(definition)
    except InvalidSchedule as error:
        fields["refused"] = str(error)
    return fields


def _apply(
    schedules: Any, scope: str, wanted: Mapping[str, dict[str, Any]], unwritten: Collection[str], now: datetime
) -> None:
    alias = schedules.write_alias
    rows = schedules.using(alias).filter(models.Q(declared_in=scope) | models.Q(name__in=list(wanted)))
    there = {row.name: row for row in rows.order_by("id").select_for_update(no_key=True)}
    for name, fields in wanted.items():
        row = there.get(name)
        if row is not None and row.declared is None:
            logger.error("Schedule %r is declared by code and was also created at run time: the latter stays", name)
            continue
        if row is None:
            row = schedules.model(name=name)
        is_new = row.declared is None or row.gone_at is not None
        if not (is_new or row.declared != fields or row.declared_in != scope):
            continue
        row.declared, row.declared_in, row.task = fields, scope, fields["task"]
        try:
            with transaction.atomic(using=alias):
                _change(row, {}, now, alias, by="", reason="", is_new=is_new, is_checked=True)
                if why := fields.get("refused"):
                    write_ticks(alias, [(row.pk, Tick(now, TickOutcome.REFUSED, why), None)])
                    logger.error("Schedule %s is refused: %s", one_line(name), one_line(why))
        except Exception as error:
            if fault_of(error) is not DatabaseFault.MISTAKE:
                raise
            logger.error("Schedule %s cannot be written: %s", one_line(name), error_in_one_line(error))
    for row in there.values():
        if row.name not in (*wanted, *unwritten) and row.declared is not None and row.gone_at is None:
            row.gone_at, row.next_at, row.waiting_at = now, None, None
            models.Model.save(row, using=alias, update_fields=["gone_at", "next_at", "waiting_at"])
            logger.warning("Schedule %r is not declared by the code any more: it stops", row.name)


def _change(
    row: Schedule,
    fields: Mapping[str, Any],
    now: datetime,
    alias: str,
    *,
    by: str,
    reason: str,
    others: Mapping[str, Any] | None = None,
    is_new: bool = False,
    is_checked: bool = False,
) -> None:
    """Write a locked row with these fields changed. If its timing changes, compute the next time."""
    if unknown := fields.keys() - set(OVERRIDABLE):
        raise InvalidSchedule(f"{sorted(unknown)[0]}: cannot be changed")
    was_due = None if is_new else (row.next_at, timing_or_none(row), row.ends_at)
    before = None if is_new else {name: getattr(row, name) for name in _COLUMNS_THAT_SAY_WHEN}
    if row.declared is None:
        holds = {**definition_of(row).fields(_ZONE), **fields}
    else:
        note = {"by": by, "reason": clean_text(reason, MAX_STORED_REASON), "at": now.isoformat()}
        given = {name: {"value": value, **note} for name, value in fields.items()}
        kept = {**row.overrides, **given}
        row.overrides = {name: one for name, one in kept.items() if one["value"] != row.declared[name]}
        holds = overridden(row.declared, row.overrides)
    for name, value in {**columns_of(holds), **(others or {})}.items():
        setattr(row, name, value)
    if not is_checked:
        check(row)
    if before != {name: getattr(row, name) for name in _COLUMNS_THAT_SAY_WHEN} or row.gone_at is not None:
        row.gone_at = None
        if was_due is not None and was_due[0] is not None and was_due[1] is not None and was_due[0] <= now:
            missed = without_firing(was_due[1], was_due[0], now, TickOutcome.MISSED, CHANGED, was_due[2])
            write_ticks(alias, [(row.pk, tick, None) for tick in missed])
        row.next_at = first_after(row.timing, now, starts_at=row.starts_at, ends_at=row.ends_at)
    row.changed_by = clean_text(by, MAX_BY)
    row.changed_at = now
    written = None if row.pk is None else [*_COLUMNS, "changed_by", "changed_at", *(others or {})]
    models.Model.save(row, using=alias, force_insert=row.pk is None, update_fields=written)


_COLUMNS_THAT_SAY_WHEN = ("cron", "tz", "every", "phase", "starts_at", "ends_at")
_COLUMNS = (
    *_COLUMNS_THAT_SAY_WHEN,
    *(name for name in OVERRIDABLE if name not in SAY_WHEN),
    *("task", "next_at", "declared", "declared_in", "overrides", "gone_at"),
)


def check(row: Schedule) -> Definition:
    """Return the definition in a row, or raise InvalidSchedule if it can never run."""
    definition = definition_of(row)
    definition.check(conf.current().max_payload_bytes)
    type(row).check_call(definition)
    return definition


def _locked(model: type[Schedule], alias: str, schedule_id: int) -> tuple[Schedule, datetime]:
    row = model.objects.using(alias).select_for_update(no_key=True).get(pk=schedule_id)
    return row, clock(alias)


def columns_of_timing(timing: Timing) -> dict[str, Any]:
    """Return the columns of a timing. An expression without a zone is in that of the project."""
    columns = columns_of(Definition(name="", task="", timing=timing).fields(conf.time_zone()))
    return {name: columns[name] for name in (*_COLUMNS_THAT_SAY_WHEN[:4], "missed", "grace", "overlap", "jitter")}
