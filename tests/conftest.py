from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import setup_databases, teardown_databases

from pulse_django.identity import Identity
from tests.rival import Rival

TABLES = ("pulse_django_attempt", "pulse_django_job", "pulse_django_queue", "pulse_django_worker")


# Tests that start workers and measure how soon something happens: one of them at a time.
PROCESSES = ("crash", "runtime", "test_demo.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run those, and each other file's tests stay together: they share what is dear to build."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "processes" if file.split("/")[1] in PROCESSES else file

    return ByFile(config, log)


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: Any, django_db_keepdb: bool) -> Iterator[None]:
    """Create the test database always: pytest-django would create it only for tests that carry its mark."""
    # What waits for a lock for ever should fail and not hang; longer than any step of a rival's may take.
    connection.settings_dict["OPTIONS"]["options"] = "-c lock_timeout=25s"
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # one database for each process that runs tests
        connection.settings_dict["TEST"]["NAME"] = f"test_{connection.settings_dict['NAME']}_{worker}"
    with django_db_blocker.unblock():
        created = setup_databases(verbosity=0, interactive=False, keepdb=django_db_keepdb)
    yield
    if not django_db_keepdb:
        with django_db_blocker.unblock():
            teardown_databases(created, verbosity=0)


@pytest.fixture
def pulse_db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A database in which transactions really commit, and whose jobs are gone afterwards."""
    with django_db_blocker.unblock():
        empty_tables()
        yield
        if not connection.get_autocommit():
            connection.rollback()
            connection.set_autocommit(True)
        empty_tables()
        connection.close()


def empty_tables() -> None:
    name = str(connection.settings_dict["NAME"])
    assert name.startswith("test_"), f"{name!r} is not a test database: its jobs may be somebody's own"
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"DELETE FROM {table}")


@pytest.fixture
def rival(pulse_db: None) -> Iterator[Rival]:
    """A second connection, stepped by hand."""
    rival = Rival()
    yield rival
    rival.close()


@pytest.fixture
def worker() -> Identity:
    return Identity("worker-1")
