"""What ended lately and in the hour before, by task and queue: a query of the recorded minutes."""

from __future__ import annotations

from pulse_django.words.counters import FAILED, SUCCEEDED
from pulse_django.words.states import Status
from pulse_django.words.vital_signs import JOBS_ENDED, RUNS

_ENDED_JOBS = (Status.DEAD_LETTERED, Status.COMPLETED)


def _names(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _counted(kind: str, sign: str, bad: tuple[str, ...], all_of_them: tuple[str, ...], what: str) -> str:
    """A query of the recorded minutes: how many of one sign ended badly lately and before, by its first label."""

    def number(names: tuple[str, ...], condition: str) -> str:
        return f"""COALESCE(pg_catalog.sum(ended.number::float8) FILTER (
        WHERE ended.name IN ({_names(names)}) AND {condition}
    ), 0)"""

    return f"""
SELECT '{kind} ' || label.name AS key, '{what}' AS what,
    {number(bad, "is_late")} AS bad, {number(all_of_them, "is_late")} AS tried,
    {number(bad, "NOT is_late")} AS bad_before, {number(all_of_them, "NOT is_late")} AS tried_before
FROM recorded
CROSS JOIN LATERAL pg_catalog.jsonb_each(
    CASE WHEN pg_catalog.jsonb_typeof(signs -> '{sign}'::text) = 'object' THEN signs -> '{sign}'::text ELSE '{{}}' END
) AS label (name, counts)
CROSS JOIN LATERAL pg_catalog.jsonb_each(
    CASE WHEN pg_catalog.jsonb_typeof(label.counts) = 'object' THEN label.counts ELSE '{{}}' END
) AS ended (name, number)
WHERE pg_catalog.jsonb_typeof(ended.number) = 'number'
GROUP BY label.name"""


ENDED_LATELY = f"""
    WITH recorded AS (
        SELECT signs, minute > statement_timestamp() - %(lately)s AS is_late
        FROM pulse_django_minute
        WHERE minute > statement_timestamp() - %(lately)s - interval '1 h' AND minute <= statement_timestamp()
    )
    {_counted("task", RUNS.name, FAILED, (*FAILED, *SUCCEEDED), "runs failed")}
    UNION ALL
    {_counted("queue", JOBS_ENDED.name, (Status.DEAD_LETTERED,), _ENDED_JOBS, "ended jobs died")}"""
