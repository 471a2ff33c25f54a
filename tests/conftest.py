from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from pulse_django.store.citus import is_for_citus
from pulse_django.words.identity import Identity
from tests import citus
from tests.database import TABLES, drop_copy, empty_tables, forget_session, leave_no_line_behind, use_copy
from tests.pgbouncer import PgBouncer
from tests.rival import Rival

ROOM_FOR_RIVALS = 30  # connections that tests and workers have open transactions on at a time

# Tests that start workers and wait for them: one of each row at a time. They come first, since they take long and need
# little of the processors.
PROCESSES = {
    "children": ("crash/test_c", "crash/test_d", "crash/test_e"),
    "locks": ("crash/test_f", "crash/test_i", "crash/test_l", "crash/test_o", "crash/test_p"),
    "crashes": ("crash/",),
    "worker": ("worker/", "exporters/test_worker_port.py", "security/test_notify.py", "security/test_processes.py"),
}


def pytest_configure(config: pytest.Config) -> None:
    """Hash passwords in no time: half a second for each user of each test adds up to minutes."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


# What is shown at scale, or for minutes: ``make proofs``.
PROOFS = (
    "plans/",
    "typing/",
    "upgrades/",
    "crash/test_failover.py",
    "test_benchmarks.py",
    "test_package.py",
    "test_tutorial.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_pooled() and (mark := item.get_closest_marker("session")):
            item.add_marker(pytest.mark.skip(reason=f"through a transaction pooler: {mark.args[0]}"))
        if citus.is_on_citus() and (mark := item.get_closest_marker("one_server")):
            item.add_marker(pytest.mark.skip(reason=f"on Citus: {mark.args[0]}"))
        if item.nodeid.removeprefix("tests/").startswith(PROOFS):
            item.add_marker(pytest.mark.proof)
    if not is_pooled():  # there, what handlers do to their sessions stays behind for the tests that follow
        items.sort(key=lambda item: not row_of_processes(item.nodeid))


def row_of_processes(nodeid: str) -> str:
    """Return the row in which a test waits for its turn, or an empty str."""
    path = nodeid.removeprefix("tests/")
    return next((row for row, starts in PROCESSES.items() if path.startswith(starts)), "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run each row of those, and keep each other file's tests together: they share what is dear."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # the largest number of tests first is not the longest first

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return row_of_processes(nodeid) or nodeid.partition("::")[0]

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


@pytest.fixture
def pulse_db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A database in which transactions really commit, and whose jobs and orders are gone afterwards."""
    with django_db_blocker.unblock():
        connection.close_if_unusable_or_obsolete()  # a test may have cut it off
        empty_tables()
        is_for_citus(connection)  # asked once in a process: no test is to count that
        yield
        connection.close_if_unusable_or_obsolete()
        if not connection.get_autocommit():
            connection.rollback()
            connection.set_autocommit(True)
        empty_tables()
        forget_session()


@pytest.fixture
def vacuumed(pulse_db: None) -> None:
    """Tables without the dead rows of the tests before: they are a finding of their own."""
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"VACUUM {table}")


@pytest.fixture
def rival(pulse_db: None) -> Iterator[Rival]:
    """A second connection, stepped by hand."""
    rival = Rival()
    yield rival
    rival.close()


@pytest.fixture
def worker() -> Identity:
    return Identity("worker-1")
