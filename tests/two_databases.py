"""A second database for the jobs of a test: as an alias of this process, and of the workers that it starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections
from django.test import override_settings

from tests.crash.processes import database_url

SECOND = "s2"
MODULE = "tests.settings_of_databases"
MORE = "PULSE_TEST_MORE_DATABASES"  # URLs by their aliases
SHARDS = {"default": 0, SECOND: 1}
TWO_SHARDS = override_settings(PULSE={"SHARDS": SHARDS})
FIRST_ID = (1 << 48) + 1  # of the second


@contextmanager
def new_database(alias: str) -> Iterator[str]:
    """Make a database without tables, know it by an alias, and drop it afterwards. Gives its URL."""
    with created(alias, "template1") as name, known(alias, name) as url:
        yield url


@contextmanager
def created(alias: str, template: str) -> Iterator[str]:
    """Copy a template, and drop the copy afterwards. Gives its name."""
    name = f"{connection.settings_dict['NAME']}_{alias}"
    _drop(name)
    _send(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield name
    finally:
        _drop(name)


@contextmanager
def known(alias: str, name: str) -> Iterator[str]:
    """Let this process know a database by an alias. Gives its URL."""
    connections.settings[alias] = {**connection.settings_dict, "NAME": name}
    try:
        yield database_url(name=name)
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


class JobsElsewhere:
    """A router that keeps the jobs in the second database, away from the project's data."""

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        return SECOND if model._meta.app_label == "pulse_django" else None

    db_for_read = db_for_write


class JobsInDefault:
    """A router that keeps the tables of jobs out of the second database."""

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
        return db != SECOND if app_label == "pulse_django" else None


def _drop(name: str) -> None:
    _send(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _send(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)
