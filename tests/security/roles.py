"""The roles of docs/explanation/security.md, with the GRANTs as they stand there, and acting as one of them."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from unittest import mock

import pytest
from django.db import DatabaseError, connection

from tests.crash.processes import ROOT
from tests.database import leave_no_line_behind
from tests.queue.steps import sql

PAGE = ROOT / "docs/explanation/security.md"
CREATE, GRANT = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
PRODUCER, WORKER, WATCHDOG, OPERATOR = ROLES = tuple(re.findall(r"^CREATE ROLE (\w+)", CREATE, re.MULTILINE))


@pytest.fixture(scope="module")
def roles(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The roles of the page, with their rights in this database; they belong to the whole server."""
    with django_db_blocker.unblock(), _one_process_at_a_time():
        drop_roles()
        for statement in CREATE.split(";")[:-1]:
            if not statement.strip().startswith("CREATE") or statement.split()[2] not in existing():
                sql(statement)
        sql(GRANT)
    yield
    with django_db_blocker.unblock(), _one_process_at_a_time():
        drop_roles()
        connection.close()


@contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    """Wait for other processes of the tests: one could drop a role of the server before another one grants it rights.

    An advisory lock would not do, because it is a lock of one database. A role with rights in a database stays.
    """
    with (Path(gettempdir()) / "pulse-test-roles.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def existing() -> set[str]:
    return {name for (name,) in sql("SELECT rolname FROM pg_roles WHERE rolname LIKE 'pulse%%'")}


def drop_roles() -> None:
    for role in set(ROLES) & existing():
        sql(f"DROP OWNED BY {role}")
        with suppress(DatabaseError):  # it has rights in another database
            sql(f"DROP ROLE {role}")


@contextmanager
def acting_as(role: str) -> Iterator[None]:
    """Be this role on the connection that there is, and on those that are opened meanwhile."""
    options = connection.settings_dict["OPTIONS"]
    sql(f"SET ROLE {role}")
    try:
        with mock.patch.dict(options, options=f"{options['options']} -c role={role}"):
            yield
    finally:
        leave_no_line_behind()
        sql("SET ROLE NONE")


def bullet_with(beginning: str) -> str:
    """Return the paragraph of the page's list that begins so."""
    [found] = re.findall(rf"^- {re.escape(beginning)}.*?(?=^- |\n\n)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def grants_in(text: str) -> list[str]:
    return [" ".join(one.split()) for one in re.findall(r"`(GRANT .*?)`", text, re.DOTALL)]


def statements_in(text: str) -> list[str]:
    return [" ".join(one.split()) for one in re.findall(r"`((?:CREATE|GRANT) .*?)`", text, re.DOTALL)]


@contextmanager
def also(*grants: str) -> Iterator[None]:
    """Grant more, and take back what was not granted before."""
    try:
        for grant in grants:
            sql(grant)
        yield
    finally:
        for grant in grants:
            sql(grant.replace("GRANT", "REVOKE", 1).replace(" TO ", " FROM "))
        sql(GRANT)  # what went with it
