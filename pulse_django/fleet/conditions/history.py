"""The condition of history: a partition for each day on which jobs end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulse_django.models import Job
from pulse_django.store.transactions import run_joined

from .catalogue import Condition, Limits, Repair, Severity, Subject, register

NO_LIMIT = 2_000_000_000

_STRAY = """
    SELECT era, 'jobs that ended on this day are in pulse_django_job_other'
    FROM (SELECT era FROM pulse_django_job_other ORDER BY era LIMIT %(sample)s) AS stray
    GROUP BY era
"""
_WITHOUT_PARTITION = """
    SELECT era, 'the day has no partition'
    FROM (
        SELECT pg_catalog.to_char((statement_timestamp() AT TIME ZONE 'UTC')::date + ahead, 'YYYYMMDD')::int
        FROM pg_catalog.generate_series(0, 1) AS ahead
    ) AS next (era)
    WHERE pg_catalog.pg_partition_root(pg_catalog.to_regclass('pulse_django_job_' || era::text))::oid
        IS DISTINCT FROM 'pulse_django_job'::regclass::oid
"""


def _missing_days_on_citus(alias: str, limits: Limits) -> Iterator[Subject]:
    """The jobs are on the node, and the names of the partitions here."""
    found = [*run_joined(alias, _STRAY, limits.params()), *run_joined(alias, _WITHOUT_PARTITION, {})]
    yield from (Subject(*row) for row in sorted(found))


def _make_days(alias: str, _: Sequence[str]) -> int:
    return len(Job.objects.db_manager(alias).make_days(most_moved=NO_LIMIT))


register(
    Condition(
        name="day-missing",
        severity=Severity.RISK,
        says="Today, tomorrow and every day on which jobs ended have a partition of the table of jobs.",
        means="No watchdog makes partitions. Jobs that end go to pulse_django_job_other, and are not deleted there.",
        to_do="Start a worker without --no-watchdog, or pulse_watchdog. It moves up to 10,000 jobs of a day by itself; "
        "the repair moves any number, and settles wait meanwhile, about a second for each 100,000.",
        page="how-to/symptoms/table-grows.md",
        sql=f"""
SELECT era, what
FROM ({_STRAY}    UNION ALL{_WITHOUT_PARTITION}) AS missing (era, what)
ORDER BY era
LIMIT %(limit)s
""",
        look_on_citus=_missing_days_on_citus,
        repair=Repair(says="Make the partitions, and move the jobs of their days to them.", act=_make_days),
    )
)
