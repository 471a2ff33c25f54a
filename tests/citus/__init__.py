"""A schema of a Citus cluster, which stands in for a test database: ``make citus``.

The schema is a shard of its own: Citus keeps all of its tables on one node. Each process that runs tests has one.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from django.core.management import call_command
from django.db import connection

from pulse_django.citus.nodes import distribute, node_of, nodes
from pulse_django.queue.database import dialects

VARIABLE = "PULSE_TEST_CITUS"
# A command that is called with ``stop`` or ``start`` and the port of a node. Without it no node is stopped.
STOPPER = "PULSE_TEST_CITUS_STOPPER"


def is_on_citus() -> bool:
    """Whether the tests are to run in a schema of a cluster: ``make citus``."""
    return os.environ.get(VARIABLE) == "1"


@contextmanager
def statements_of_citus() -> Iterator[None]:
    """Send what Citus gets, to a plain server."""
    always = [one._replace(is_for=lambda _: True) for one in dialects._dialects]
    with mock.patch.object(dialects, "_dialects", always):
        dialects.forget()
        yield
    dialects.forget()


def may_stop_nodes() -> bool:
    return is_on_citus() and STOPPER in os.environ


@contextmanager
def another_node_stopped() -> Iterator[None]:
    """Stop a node that does not have the schema."""
    other = next(node for node in nodes("default") if node != node_of("default"))
    stopper = shlex.split(os.environ[STOPPER])
    subprocess.run([*stopper, "stop", str(other.port)], check=True)
    try:
        yield
    finally:
        subprocess.run([*stopper, "start", str(other.port)], check=True)


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
