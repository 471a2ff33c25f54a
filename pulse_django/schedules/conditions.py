"""Conditions of schedules: overdue schedules, and refused ticks."""

from __future__ import annotations

from pulse_django.health.conditions.catalogue import About, Condition, Severity, Threshold, time_since

SCHEDULES = "how-to/schedules.md"


CONDITIONS = (
    Condition(
        name="schedule-overdue",
        about=About.SCHEDULE,
        severity=Severity.STUCK,
        says="No schedule has been due for long.",
        means="Each schedule says why: no watchdog is running, no watchdog that knows its task, it is catching up with "
        "ticks that were missed, or watchdogs fail to decide it.",
        to_do="Start a worker or pulse_watchdog with the code that defines the task. If watchdogs fail, their log "
        "names the schedule and the error; or a transaction in pg_stat_activity has locked its row.",
        page=SCHEDULES,
        threshold=Threshold(default=60, unit="seconds"),
        sql=f"""
SELECT
    schedule.name, pg_catalog.concat('due for %%(time)s, task %%(task)s: ', CASE
        WHEN NOT EXISTS (
            SELECT 1 FROM pulse_django_duty WHERE done_at > statement_timestamp() - interval '1 min'
        )
        THEN 'no watchdog is running'
        WHEN latest.decided_at > statement_timestamp() - interval '1 min'
        THEN 'it is catching up with missed ticks'
        WHEN NOT EXISTS (
            SELECT 1 FROM pulse_django_worker AS worker
            WHERE worker.stopped_at IS NULL AND worker.last_beat_at > statement_timestamp() - %(silence)s::interval
                AND (worker.tasks IS NULL OR pg_catalog.jsonb_exists(worker.tasks, schedule.task::text))
        )
        THEN 'no live worker has the task'
        ELSE 'watchdogs fail to decide it, or a transaction has locked its row'
    END),
    {time_since("schedule.next_at")} AS time, schedule.task
FROM pulse_django_schedule AS schedule
LEFT JOIN LATERAL (
    SELECT decided_at FROM pulse_django_tick WHERE schedule_id = schedule.id ORDER BY at DESC LIMIT 1
) AS latest ON true
WHERE schedule.next_at < statement_timestamp() - %(schedule_overdue)s::float8 * interval '1 s'
    AND (schedule.paused_at IS NULL OR schedule.paused_until <= statement_timestamp())
ORDER BY schedule.next_at
""",
    ),
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
SELECT
    schedule.name, 'refused at %%(at)s: %%(note)s', pg_catalog.date_trunc('second', latest.at)::text AS at, latest.note
FROM pulse_django_schedule AS schedule
CROSS JOIN LATERAL (
    SELECT at, outcome, note, decided_at FROM pulse_django_tick WHERE schedule_id = schedule.id ORDER BY at DESC LIMIT 1
) AS latest
WHERE latest.outcome::text = 'REFUSED' AND schedule.gone_at IS NULL
    AND (schedule.changed_at < latest.decided_at OR schedule.next_at IS NULL)
ORDER BY latest.at DESC
""",
    ),
)
