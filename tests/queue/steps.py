"""Steps that the stories of these tests are made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connection
from psycopg.errors import LockNotAvailable

from pulse_django.models import Job
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.queue.words.outcomes import Succeeded
from pulse_django.queue.words.verb_results import Report


def sql(statement: str, *params: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def claim_one(identity: Identity) -> Claim:
    [claim] = Job.objects.claim(identity)
    return claim


def success(claim: Claim) -> Report:
    return Report(claim.lease, Succeeded(), Complete())


def expire(job: Job) -> None:
    """Let the lease of a running job run out now."""
    assert sql(
        "UPDATE pulse_django_job SET lease_until = statement_timestamp() - interval '1 ms'"
        " WHERE id = %s AND status = 'RUNNING' RETURNING id",
        job.pk,
    )


@contextmanager
def may_give_up() -> Iterator[None]:
    """Let a reap fail that waited in vain for a lock, as a watchdog does, which reaps again.

    A reap waits for a row that was updated and is being updated again, although it skips what is locked, and for a
    page that another process adds to a table: on a busy disk for longer than a reap waits.
    """
    try:
        yield
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise


def next_run_is_due(job: Job) -> None:
    """Let a waiting job's time come now."""
    assert sql(
        "UPDATE pulse_django_job SET next_run_at = statement_timestamp()"
        " WHERE id = %s AND finished_at IS NULL RETURNING id",
        job.pk,
    )
