"""The databases of the tests: copies of one template, and emptied after each test by one message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection, connections

from pulse_django.queue.database.transactions import limited
from tests import citus

ROOT = Path(__file__).parent.parent
SHAPES_TABLES = (
    "pulse_django/*.py",
    "pulse_django/migrations/*.py",
    "pulse_django/queue/database/*.py",
    "pulse_django/unique/clauses.py",
    "testproject/shop/**/*.py",
)

TABLES = (
    "pulse_django_attempt",
    "pulse_django_amendment",
    "pulse_django_key",
    "pulse_django_window",
    "pulse_django_limiter",
    "pulse_django_bucket",
    "pulse_django_unresolved",
    "pulse_django_dependency",
    "pulse_django_batch",
    "pulse_django_step",
    "pulse_django_event",
    "pulse_django_pause",
    "pulse_django_fence",
    "pulse_django_departure",
    "pulse_django_arrival",
    "pulse_django_job",
    "pulse_django_worker",
    "pulse_django_minute",
    "pulse_django_traffic",
    "pulse_django_release",
    "pulse_django_duty",
    "pulse_django_tick",
    "pulse_django_schedule",
    "pulse_django_declaration",
    "pulse_django_declared_task",
    "shop_line",
    "shop_invoice",
    "shop_order",
)
# What a session can keep for the next test, as DISCARD ALL names it; that itself cannot share a message.
FORGET = (
    "CLOSE ALL",
    "SET SESSION AUTHORIZATION DEFAULT",
    "RESET ALL",
    "UNLISTEN *",
    "SELECT pg_advisory_unlock_all()",
    "DISCARD TEMP",
)


def empty_tables(alias: str = DEFAULT_DB_ALIAS) -> None:
    """Delete all rows in one message."""
    name = citus.schema_name() if citus.is_on_citus() else str(connections[alias].settings_dict["NAME"])
    assert name.startswith("test_"), f"{name!r} is not a test database: its jobs may be real"
    tables = TABLES if alias == DEFAULT_DB_ALIAS else [table for table in TABLES if table.startswith("pulse_django")]
    with connections[alias].cursor() as cursor:
        cursor.execute(";".join(f"DELETE FROM {table}" for table in tables))


@contextmanager
def on_empty_tables() -> Iterator[None]:
    empty_tables()
    yield


def forget_session() -> None:
    """Give the connection back as it was opened, without opening it anew."""
    if connection.connection is None:
        return
    with connection.cursor() as cursor:
        cursor.execute(";".join(FORGET))
    connection.ensure_timezone()


def leave_no_line_behind() -> None:
    """Give back the connection of a thread in which a test had a line: it sends each statement with timeouts."""
    for wrapper in connections.all(initialized_only=True):
        if limited in wrapper.execute_wrappers:
            wrapper.close()
            del connections[wrapper.alias]


def use_copy() -> str:
    """Copy the template for this process, and work on the copy. Return the name of the database that is left."""
    original = str(connection.settings_dict["NAME"])
    process = os.environ.get("PYTEST_XDIST_WORKER", "")
    copy = f"test_{original}_{process}".removesuffix("_")
    template = ensure_template()
    with connection._nodb_cursor() as cursor:
        cursor.execute(f'DROP DATABASE IF EXISTS "{copy}" WITH (FORCE)')
        cursor.execute(f'CREATE DATABASE "{copy}" TEMPLATE "{template}"')
    _use(copy)
    return original


def drop_copy(original: str) -> None:
    """Drop the copy, whatever else still works on it."""
    copy = connection.settings_dict["NAME"]
    connections.close_all()
    _use(original)
    with connection._nodb_cursor() as cursor:
        cursor.execute(f'DROP DATABASE "{copy}" WITH (FORCE)')


def ensure_template() -> str:
    """Migrate a database once for all processes and runs in which the tables have the same shape. Return its name."""
    template, original = f"{_of_today()}{_shape()}", str(connection.settings_dict["NAME"])
    with connection._nodb_cursor() as cursor:
        cursor.execute("SET lock_timeout = 0")
        cursor.execute("SELECT pg_advisory_lock(hashtext(%s))", [template])  # until this connection is closed
        cursor.execute("SELECT FROM pg_database WHERE datname = %s", [template])
        if cursor.fetchone() is not None:
            return template
        _drop_older_templates(cursor)
        unfinished = f"{template}_unfinished"
        cursor.execute(f'DROP DATABASE IF EXISTS "{unfinished}" WITH (FORCE)')
        cursor.execute(f'CREATE DATABASE "{unfinished}"')
        _use(unfinished)
        try:
            call_command("migrate", verbosity=0)
        finally:
            _use(original)
        cursor.execute(f'ALTER DATABASE "{unfinished}" RENAME TO "{template}"')
    return template


def _of_today() -> str:
    """Return how the names of templates begin: migrations make the tables of the days around the one they run on."""
    return f"pulse_template_{datetime.now(UTC):%Y%m%d}_"


def _shape() -> str:
    """Return a name for everything that decides what a migrated database looks like."""
    paths = sorted(path for pattern in SHAPES_TABLES for path in ROOT.glob(pattern))
    texts = (path.read_bytes() for path in paths)
    return sha256(b"\0".join([repr((django.VERSION, settings.INSTALLED_APPS)).encode(), *texts])).hexdigest()[:12]


def _drop_older_templates(cursor: Any) -> None:
    cursor.execute("SELECT datname FROM pg_database WHERE datname LIKE 'pulse_template_%%'", [])
    for (name,) in cursor.fetchall():
        if not name.startswith(_of_today()):
            cursor.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _use(name: str) -> None:
    connection.close()
    connection.settings_dict["NAME"] = name
