"""A database of the benchmarks' own, beside the project's and its tests', and jobs to fill it with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from django.db import connection

from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob


@contextmanager
def scratch_database(prefix: str = "bench") -> Iterator[None]:
    """Work in a database of our own until the block ends."""
    connection.settings_dict["TEST"]["NAME"] = f"{prefix}_{connection.settings_dict['NAME']}"
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield
    finally:
        connection.creation.destroy_test_db("", verbosity=0)


def database_url(scheme: str = "postgres", name: str | None = None) -> str:
    """Name this database, or another of its server, for another process: as DATABASE_URL, or to libpq and asyncpg."""
    settings = connection.settings_dict
    password = f":{quote(settings['PASSWORD'], safe='')}" if settings["PASSWORD"] else ""
    user = quote(settings["USER"] or "postgres", safe="")
    where = {"host": settings["HOST"] or "localhost", "port": str(settings["PORT"] or 5432)}
    return f"{scheme}://{user}{password}@/{quote(name or settings['NAME'], safe='')}?{urlencode(where)}"


def fill(new_jobs: list[NewJob]) -> None:
    """Leave these jobs and nothing else, in tables that are as if they had always been so."""
    empty()
    Job.objects.enqueue_many(new_jobs)
    settle_down("pulse_django_job")


def settle_down(*tables: str) -> None:
    """Do now what the server would otherwise do in the middle of a measurement."""
    for table in tables:
        execute(f"VACUUM ANALYZE {table}")
    execute("CHECKPOINT")


def empty() -> None:
    execute("TRUNCATE pulse_django_job, pulse_django_attempt, pulse_django_key")


def execute(sql: str, params: list[Any] | None = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def server() -> str:
    return str(execute("SHOW server_version")[0][0])
