"""Two shards on one server, and workers that serve both.

Modules that need them use ``two_shards``. What tests Citus has one database, as everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client

from tests.database import empty_tables, ensure_template
from tests.two_databases import MODULE, MORE, SECOND, TWO_SHARDS, created, known


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "two_shards" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.session("dropping its second database ends connections of the pooler"))


@pytest.fixture(scope="session")
def second_name(django_db_setup: Any, django_db_blocker: Any) -> Iterator[str]:
    """Make the second database, once for each process that runs tests."""
    with django_db_blocker.unblock(), created(SECOND, ensure_template()) as name:
        with known(SECOND, name), TWO_SHARDS:
            call_command("migrate", "pulse_django", database=SECOND, verbosity=0)  # numbers the ids
        yield name


@pytest.fixture(scope="module")
def environment(second_name: str, django_db_blocker: Any) -> Iterator[dict[str, str]]:
    """Know the second database, for one module. Gives the environment for a worker that knows both."""
    with django_db_blocker.unblock(), known(SECOND, second_name) as url, TWO_SHARDS:
        yield {"DJANGO_SETTINGS_MODULE": MODULE, MORE: json.dumps({SECOND: url})}


@pytest.fixture
def two_shards(pulse_db: None, environment: dict[str, str]) -> Iterator[None]:
    yield
    empty_tables(SECOND)


def empty_shards() -> None:
    """Begin anew in both."""
    empty_tables()
    empty_tables(SECOND)


@pytest.fixture
def operator(two_shards: None) -> Iterator[Client]:
    """A client of a superuser. What it changes is committed."""
    _forget_users()  # another module may have left one of that name
    client = Client()
    client.force_login(User.objects.create_superuser("operator"))
    yield client
    _forget_users()


def _forget_users() -> None:
    for model in (LogEntry, Session, User):
        model._default_manager.all().delete()


@contextmanager
def away(alias: str) -> Iterator[None]:
    """Let nobody use this database meanwhile."""
    name = connections[alias].settings_dict["NAME"]
    connections[alias].close()
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            cursor.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
