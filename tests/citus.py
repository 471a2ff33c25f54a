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

from pulse_django.store.citus_nodes import distribute

VARIABLE = "PULSE_TEST_CITUS"


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
        distribute("default")
        yield
    finally:
        connection.close()  # a test may have left it in a failed transaction
        _send(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def _send(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
