from __future__ import annotations

import gc
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from hypothesis import HealthCheck

from pulse_django.models import Job
from pulse_django.queue.database.dialects import statements_for
from pulse_django.queue.prune import Carrying
from pulse_django.queue.words.leases import Identity
from tests import citus
from tests.crash.workers import workers
from tests.database import TABLES, drop_copy, empty_tables, forget_session, leave_no_line_behind, use_copy
from tests.pgbouncer import PgBouncer
from tests.rival import Rival
from tests.sql import sent
from tests.targets import DJANGO_VERSIONS, FIRST_OF_EACH, VERSIONS, target_of

__all__ = ["workers"]  # the fixture that starts real workers

ROOM_FOR_RIVALS = 30  # connections that tests and workers have open transactions on at a time

# Tests that share nothing with others of their file, and wait more than they compute.
GO_ALONE = re.compile(r"tests/(browser/|crash/|\w+/test_crashes\.py)")


def pytest_configure(config: pytest.Config) -> None:
    """Hash passwords in no time: half a second for each user of each test adds up to minutes.

    Hypothesis does not judge how fast the machine is.
    """
    hypothesis.settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    hypothesis.settings.load_profile("any machine")
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first_of_each = set(FIRST_OF_EACH.values())
    for item in items:
        if is_pooled() and (mark := item.get_closest_marker("session")):
            item.add_marker(pytest.mark.skip(reason=f"through a transaction pooler: {mark.args[0]}"))
        if citus.is_on_citus() and (mark := item.get_closest_marker("one_server")):
            item.add_marker(pytest.mark.skip(reason=f"on Citus: {mark.args[0]}"))
        path = item.nodeid.removeprefix("tests/")
        item.add_marker(target_of(path, starts_workers=starts_workers(item)))
        if path in first_of_each:
            item.add_marker("quick")
        if path.startswith(VERSIONS):
            item.add_marker("versions")
        if path.startswith(DJANGO_VERSIONS):
            item.add_marker("django_versions")
    if not is_pooled():  # there, what handlers do to their sessions stays behind for the tests that follow
        # Files that start processes come first: they take long and need little of the processors. Files stay whole:
        # what their tests share is made once.
        first = {item.path for item in items if starts_workers(item)}
        items.sort(key=lambda item: item.path not in first)


def pytest_collection_finish() -> None:
    """Leave the thousands of tests out of each collection of garbage from here on."""
    gc.collect()
    gc.freeze()


def starts_workers(item: pytest.Item) -> bool:
    return "workers" in getattr(item, "fixturenames", ()) or item.nodeid.startswith("tests/crash/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file together, since they share what is dear."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # the largest number of tests first is not the longest first

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if GO_ALONE.match(nodeid) else nodeid.partition("::")[0]

    return ByFile(config, log)


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: Any) -> Iterator[dict[str, Any]]:
    """Create the test database always: pytest-django would create it only for tests that carry its mark."""
    # What waits for a lock for ever should fail and not hang; longer than any step of a rival's may take.
    connection.settings_dict["OPTIONS"]["options"] = citus.options("-c lock_timeout=25s")
    if citus.is_on_citus():
        with django_db_blocker.unblock(), citus.distributed_schema():
            yield dict(connection.settings_dict)
        return
    with django_db_blocker.unblock():
        original = use_copy()
    server = dict(connection.settings_dict)
    with pooled() if is_pooled() else nullcontext():
        yield server
    with django_db_blocker.unblock():
        drop_copy(original)


@pytest.fixture(autouse=True)
def _no_line_left_behind() -> Iterator[None]:
    yield
    leave_no_line_behind()


@pytest.fixture(scope="session")
def server(django_db_setup: dict[str, Any]) -> dict[str, Any]:
    """The settings that lead to the server itself, also where everything else goes through a pooler."""
    return django_db_setup


def is_pooled() -> bool:
    """Whether everything is to go through PgBouncer: ``make pooled``."""
    return os.environ.get("PULSE_TEST_POOLER") == "transaction"


@contextmanager
def pooled() -> Iterator[None]:
    """Put a transaction pooler between the tests, and all that they start, and the server."""
    settings = connection.settings_dict
    direct = dict(settings)
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # a short path: sockets have little room
        Path(folder).chmod(0o755)
        pooler = PgBouncer(Path(folder), settings, pool_size=ROOM_FOR_RIVALS)
        connection.close()
        settings.update(HOST=pooler.host, PORT=pooler.port, DISABLE_SERVER_SIDE_CURSORS=True)
        try:
            yield
        finally:
            connection.close()
            pooler.close()
            settings.clear()
            settings.update(direct)


@pytest.fixture(scope="session", autouse=True)
def unknown_statements() -> Iterator[sent.Unknown]:
    """Notice the statements that no file of tests/sql has."""
    unknown = sent.Unknown()
    with sent.recording(unknown.keep) if sent.is_comparable() and not sent.WRITES else nullcontext():
        yield unknown


@pytest.fixture(autouse=True)
def _every_statement_is_known(request: pytest.FixtureRequest, unknown_statements: sent.Unknown) -> Iterator[None]:
    yield
    if request.node.get_closest_marker("alters_statements"):
        unknown_statements.clear()
    assert not unknown_statements, unknown_statements.told()


@pytest.fixture
def pulse_db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A database in which transactions really commit, and whose jobs and orders are gone afterwards."""
    with django_db_blocker.unblock():
        connection.close_if_unusable_or_obsolete()  # a test may have cut it off
        empty_tables()
        statements_for(Carrying, "default")  # asked once in a process: no test is to count that
        yield
        connection.close_if_unusable_or_obsolete()
        if not connection.get_autocommit():
            connection.rollback()
            connection.set_autocommit(True)
        empty_tables()
        forget_session()


@pytest.fixture
def days(pulse_db: None) -> None:
    """A partition for each day to come, also when midnight has passed since the database was created."""
    Job.objects.make_days()


@pytest.fixture
def vacuumed(pulse_db: None) -> None:
    """Tables without the dead rows of the tests before: they are a finding of their own."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")  # or deleted rows would be counted after the VACUUM
        for table in TABLES:
            cursor.execute(f"VACUUM {table}")


@pytest.fixture
def rival(pulse_db: None) -> Iterator[Rival]:
    """A second connection, stepped by hand."""
    rival = Rival()
    yield rival
    rival.close()


@pytest.fixture
def root(pulse_db: None) -> Iterator[Client]:
    """As ``admin_client``, where transactions really commit."""
    user, client = User.objects.create_superuser("root-of-security"), Client()
    client.force_login(user)
    yield client
    Session.objects.all().delete()
    user.delete()


@pytest.fixture
def worker() -> Identity:
    return Identity("worker-1")
