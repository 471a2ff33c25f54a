"""Every statement of ours has a role that may send it, or a module whose statements are for the owner of the tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

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
    "pulse_django.queue.mend": "a repair",
    "pulse_django.shards.transfer": "to move jobs to another shard",
    "pulse_django.testing.drain": "a test of a project",
}
# Whose statements PostgreSQL cannot plan here.
UNPLANNED = {
    "pulse_django.citus.nodes": "tables of Citus",
    "pulse_django.citus.conditions": "tables of Citus",
    "pulse_django.limits.claim_limited": "a setting of its message",
}


def denied(*parts: Callable[[], object]) -> dict[str, str]:
    """Return the statements that no role may send, and the modules that send them."""
    left = sent_by(*parts)
    with with_optional_grants(), psycopg.connect(database_url(), autocommit=True) as session:
        for role in (OPERATOR, WATCHDOG, WORKER, PRODUCER):
            session.execute(f"SET ROLE {role}")
            left = {spelt: module for spelt, module in left.items() if not may_send(session, spelt, module)}
    return left


def sent_by(*parts: Callable[[], object]) -> dict[str, str]:
    """Return the statements of ours that these parts of the drive send, and the modules that send them."""
    sent_from: dict[str, str] = {}
    with drive.recording(sent_from):
        drive.drive(*parts)
    found = {AROUND.sub("", spelt): module for spelt, module in sent_from.items()}
    # On Citus, roles may insert into the table of all jobs instead (docs/explanation/security.md).
    found = {
        spelt.replace("INTO pulse_django_job (", "INTO pulse_django_job_over (")
        if ".citus." in module
        else spelt: module
        for spelt, module in found.items()
    }
    found = {spelt: module for spelt, module in found.items() if PLANNED.match(spelt) and OURS in bare(spelt)}
    assert len(found) > 200, "what was not sent was not looked at"
    return found


def with_optional_grants() -> AbstractContextManager[None]:
    return also(*(one for one in grants_in(PAGE.read_text()) if one.endswith(f" TO {PRODUCER}")))


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


RIGHTS = """
SELECT c.relname, acl.privilege_type, ''
FROM pg_class AS c, aclexplode(c.relacl) AS acl
WHERE acl.grantee = %(role)s::regrole AND c.relkind IN ('r', 'p')
UNION ALL
SELECT c.relname, acl.privilege_type, a.attname
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid, aclexplode(a.attacl) AS acl
WHERE acl.grantee = %(role)s::regrole
ORDER BY 1, 2, 3
"""
# Tables of which a plan says too little, by right, and why.
UNSPOKEN = {
    ("INSERT", "pulse_django_job_hot"): "COPY has no plan",
    ("INSERT", "pulse_django_bucket"): UNPLANNED["pulse_django.limits.claim_limited"],
    ("UPDATE", "pulse_django_bucket"): UNPLANNED["pulse_django.limits.claim_limited"],
}


def test_each_right_is_needed_by_a_statement() -> None:
    """PostgreSQL refuses a statement once the right is taken from the role, and from the one that it is part of."""
    sent, needless = sent_by(*drive.EVERYTHING), []
    with psycopg.connect(database_url(), autocommit=True) as session:
        for role in (PRODUCER, WORKER, WATCHDOG, OPERATOR):
            session.execute(f"SET ROLE {role}")
            may = [
                spelt for spelt, module in sent.items() if module not in UNPLANNED and may_send(session, spelt, module)
            ]
            session.execute("SET ROLE NONE")
            for table, privilege, column in session.execute(RIGHTS, {"role": role}).fetchall():
                if (privilege, table) in UNSPOKEN:
                    continue
                speaks_of = re.compile(rf"\b{table}\b")
                right = f"{privilege} ({column})" if column else privilege
                with session.transaction(force_rollback=True):
                    session.execute(f"REVOKE {right} ON {table} FROM {role}, {PRODUCER}".encode())
                    session.execute(f"SET LOCAL ROLE {role}")
                    if all(may_send(session, one, sent[one]) for one in may if speaks_of.search(one)):
                        needless.append(f"{role}: {right} ON {table}")
    assert not needless, "\n".join(needless)
