"""A second database for the jobs of a test: as an alias of this process, and of the workers that it starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management import call_command
from django.db import connection, connections
from django.test import override_settings

from tests.crash.processes import database_url
from tests.database import ensure_template

SECOND = "s2"
MODULE = "tests.settings_of_databases"
MORE = "PULSE_TEST_MORE_DATABASES"  # URLs by their aliases
SHARDS = {"default": 0, SECOND: 1}
TWO_SHARDS = override_settings(PULSE={"SHARDS": SHARDS})
FIRST_ID = (1 << 48) + 1  # of the second


@contextmanager
def second_database() -> Iterator[dict[str, str]]:
    """Make it, and drop it afterwards. Gives the environment for a worker that knows both."""
    with new_database(SECOND, ensure_template()) as url, TWO_SHARDS:
        call_command("migrate", "pulse_django", database=SECOND, verbosity=0)
        yield {"DJANGO_SETTINGS_MODULE": MODULE, MORE: json.dumps({SECOND: url})}


@contextmanager
def new_database(alias: str, template: str = "template1") -> Iterator[str]:
    """Make a database, without tables if no template has them, and drop it afterwards. Gives its URL."""
    name = f"{connection.settings_dict['NAME']}_{alias}"
    _drop(name)
    _send(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    connections.settings[alias] = {**connection.settings_dict, "NAME": name}
    try:
        yield database_url(name=name)
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]
        _drop(name)


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
