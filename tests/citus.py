"""A schema of a Citus cluster, which stands in for a test database: ``make citus``.

The schema is a shard of its own: Citus keeps all of its tables on one node. Each process that runs tests has one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.core.management import call_command
from django.db import connection

VARIABLE = "PULSE_TEST_CITUS"
# Migrations drop an identity, which Citus refuses for a table that is distributed already, so they come first.
_DISTRIBUTE = "SELECT citus_schema_distribute(%s::regnamespace)"
_ON_NODES = "SELECT pg_catalog.bool_and(success), pg_catalog.min(result) FROM run_command_on_workers(%s)"
_MAKE_TOKENS = "SET citus.enable_ddl_propagation = off; CREATE SEQUENCE {}.pulse_django_token AS bigint"


def is_on_citus() -> bool:
    """Whether the tests are to run in a schema of a cluster: ``make citus``."""
    return os.environ.get(VARIABLE) == "1"


def schema_name() -> str:
    return f"test_pulse_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"


def options(given: str = "") -> str:
    """Return what a session on the cluster gets as ``options``: what was given, its schema, and witnesses' triggers."""
    ours = f"-c search_path={schema_name()} -c citus.enable_unsafe_triggers=on"
    return f"{given} {ours}".strip() if is_on_citus() else given


@dataclass(frozen=True, slots=True)
class Server:
    url: str


class Cluster:
    """What a chaos run asks of its server, as far as a cluster that it did not start can answer."""

    def __init__(self, url: str) -> None:
        self.primary = Server(url)

    def deadlocks(self) -> list[str]:
        return []  # they are in the logs of the nodes


@contextmanager
def distributed_schema() -> Iterator[None]:
    """Make the schema, migrate it, and let Citus distribute it. Drop it afterwards."""
    name = schema_name()
    _send(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    _send(f"CREATE SCHEMA {name}")
    try:
        call_command("migrate", verbosity=0)
        _send(_DISTRIBUTE, name)
        _on_nodes(_MAKE_TOKENS.format(name))
        yield
    finally:
        connection.close()  # a test may have left it in a failed transaction
        _send(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def _on_nodes(statements: str) -> None:
    """Run statements on each node, which Citus is not to know of: claims draw their tokens on the node."""
    with connection.cursor() as cursor:
        cursor.execute(_ON_NODES, [statements])
        [(succeeded, says)] = cursor.fetchall()
    assert succeeded, says


def _send(statement: str, *params: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)
