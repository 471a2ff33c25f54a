"""The condition of jobs that are moved between shards."""

from __future__ import annotations

from collections.abc import Sequence

from pulse_django.execution.moving import finish

from .catalogue import Condition, Repair, Severity, register


def _finish(alias: str, _: Sequence[str]) -> int:
    done = finish(alias)
    return done.moved + done.went_back


register(
    Condition(
        name="move-unfinished",
        severity=Severity.STUCK,
        says="A job that leaves for another shard arrives there soon.",
        means="A move was interrupted. These jobs are kept, but do not run, and calls that name them fail.",
        to_do="Run pulse_shards move from this shard again: it first finishes what was begun. So does the "
        "repair. Both need the owner of the tables. A job goes on only to a shard that SHARDS still names.",
        page="how-to/shards.md",
        sql="""
SELECT pg_catalog.concat('job ', job_id), pg_catalog.concat(
    'it left for shard ', to_shard, ' ', pg_catalog.date_trunc('second', statement_timestamp() - at), ' ago'
)
FROM pulse_django_departure
WHERE at < statement_timestamp() - %(silence)s
ORDER BY id
LIMIT %(limit)s
""",
        repair=Repair(says="Deliver them to their shards.", act=_finish),
    )
)
