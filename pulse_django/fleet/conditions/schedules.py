"""Conditions of schedules: overdue schedules, and refused ticks."""

from __future__ import annotations

from .catalogue import About, Condition, Severity, Threshold, register

SCHEDULES = "how-to/schedules.md"

register(
    Condition(
        name="schedule-overdue",
        about=About.SCHEDULE,
        severity=Severity.STUCK,
        says="No schedule has been due for long.",
        means="No watchdog that knows its task is running, or a transaction has locked its row.",
        to_do="Start a worker or pulse_watchdog with the code that defines the task. Look in pg_stat_activity for a "
        "transaction that locks pulse_django_schedule.",
        page=SCHEDULES,
        threshold=Threshold(default=60, unit="seconds"),
        sql="""
SELECT name, pg_catalog.concat(
    'due for ', pg_catalog.date_trunc('second', statement_timestamp() - next_at), ', task ', task
)
FROM pulse_django_schedule
WHERE next_at < statement_timestamp() - %(schedule_overdue)s::float8 * interval '1 s'
    AND (paused_at IS NULL OR paused_until <= statement_timestamp())
ORDER BY next_at
LIMIT %(limit)s
""",
    )
)

register(
    Condition(
        name="schedule-refused",
        about=About.SCHEDULE,
        severity=Severity.FAILING,
        says="The latest tick of each schedule was not refused.",
        means="The schedule cannot enqueue its job: its task is unknown, its arguments are refused, or its expression "
        "or time zone is wrong.",
        to_do="Correct the schedule in the admin or in the code. If its expression was wrong, it stops until then.",
        page=SCHEDULES,
        sql="""
SELECT schedule.name, pg_catalog.concat('refused at ', pg_catalog.date_trunc('second', latest.at), ': ', latest.note)
FROM pulse_django_schedule AS schedule
CROSS JOIN LATERAL (
    SELECT at, outcome, note, decided_at FROM pulse_django_tick WHERE schedule_id = schedule.id ORDER BY at DESC LIMIT 1
) AS latest
WHERE latest.outcome::text = 'REFUSED' AND schedule.gone_at IS NULL
    AND (schedule.changed_at < latest.decided_at OR schedule.next_at IS NULL)
ORDER BY latest.at DESC
LIMIT %(limit)s
""",
    )
)
