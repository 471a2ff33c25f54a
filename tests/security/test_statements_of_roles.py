"""Every statement of ours has a role that may send it, or a module whose statements are for the owner of the tables."""

from __future__ import annotations

import re
from collections.abc import Callable

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from tests.crash.processes import database_url

from . import drive
from .roles import OPERATOR, PAGE, PRODUCER, WATCHDOG, WORKER, also, grants_in
from .shadows import bare

pytestmark = [pytest.mark.usefixtures("pulse_db", "roles")]

# What precedes a statement: what must hold in its transaction.
AROUND = re.compile(r"^\s*(?:(?:BEGIN|SET LOCAL)[^;]*;\s*)+|;\s*COMMIT\s*$")
PLANNED = re.compile(r"\s*\(?(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
OURS = "pulse_django_"
# Whose statements no role may send, and why.
OWNERS = {
    "pulse_django.protocol.mend": "a repair",
    "pulse_django.protocol.transfer": "to move jobs to another shard",
    "pulse_django.testing.clock": "a test of a project",
}
# Whose statements PostgreSQL cannot plan here.
UNPLANNED = {
    "pulse_django.store.citus_nodes": "tables of Citus",
    "pulse_django.fleet.doctor.advice": "tables of Citus",
    "pulse_django.protocol.claim_limited": "a setting of its message",
}


def denied(*parts: Callable[[], object]) -> dict[str, str]:
    """Return the statements that no role may send, and the modules that send them."""
    sent_from: dict[str, str] = {}
    with drive.recording(sent_from):
        drive.drive(*parts)
    left = {AROUND.sub("", spelt): module for spelt, module in sent_from.items()}
    left = {spelt: module for spelt, module in left.items() if PLANNED.match(spelt) and OURS in bare(spelt)}
    assert len(left) > 250, "what was not sent was not looked at"
    optional = [one for one in grants_in(PAGE.read_text()) if one.endswith(f" TO {PRODUCER}")]
    with also(*optional), psycopg.connect(database_url(), autocommit=True) as session:
        for role in (OPERATOR, WATCHDOG, WORKER, PRODUCER):
            session.execute(f"SET ROLE {role}")
            left = {spelt: module for spelt, module in left.items() if not may_send(session, spelt, module)}
    return left


def may_send(session: psycopg.Connection, statement: str, module: str) -> bool:
    """PostgreSQL asks for the rights on tables and columns before it executes a plan."""
    try:
        with session.transaction(force_rollback=True):
            session.execute(f"EXPLAIN {statement}".encode())
    except InsufficientPrivilege:
        return False
    except psycopg.Error:
        assert module in UNPLANNED, f"{module}: {statement}"
    return True


def test_a_role_may_send_each_statement() -> None:
    left = denied(*drive.OWN)
    without = {spelt: module for spelt, module in left.items() if module not in OWNERS}
    assert not without, "\n\n".join(f"{module}: {spelt}" for spelt, module in without.items())
    assert set(left.values()) == set(OWNERS), "a role may send all statements of this module: it is no exception"


def test_a_role_may_send_each_statement_of_the_pages() -> None:
    assert denied(drive.web) == {}
