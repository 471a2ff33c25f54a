"""Recognize a database in the layout for Citus, and provide its statements."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper

from pulse_django.queue.capability import Capability, Internals
from pulse_django.queue.database.dialects import Dialect

from . import capabilities, conditions, jobs, nodes

# Without tables there is no row, and the layout is not known yet.
_HAS_ONE_LEVEL = """
SELECT pg_catalog.to_regclass('pulse_django_job_over') IS NULL
WHERE pg_catalog.to_regclass('pulse_django_job_other') IS NOT NULL
"""


def has_one_level(connection: BaseDatabaseWrapper) -> bool | None:
    """Return whether the days are partitions of the table of all jobs. None: there are no tables."""
    if connection.vendor != "postgresql":
        return None  # a query for jobs raises the error
    with connection.cursor() as cursor:
        cursor.execute(_HAS_ONE_LEVEL)
        row = cursor.fetchone()
    return None if row is None else bool(row[0])


DIALECT = Dialect(
    has_one_level, (*jobs.STATEMENTS, *capabilities.STATEMENTS, nodes.SequencesOnCitus, conditions.LookingOnCitus)
)
CAPABILITY = Capability(name="citus", conditions=conditions.CONDITIONS, internals=Internals(dialect=DIALECT))
