"""Advice about connections: a pooler, the number of connections, the settings of the server."""

from __future__ import annotations

import secrets
import select
import time
from collections.abc import Iterator
from operator import itemgetter

import psycopg
from django.db import connections

from pulse_django import conf
from pulse_django.database_checks import check_database
from pulse_django.queue.database.read_only import briefly, rows
from pulse_django.queue.database.tables import problem_with_tables
from pulse_django.shards.placement import shards

from .asking import STATEMENT_TIMEOUT
from .catalogue import Condition, Limits, Severity, Subject

PATIENCE = 1.0  # seconds to wait for a notification
NEARLY_ALL = 0.8
# Connections of a keeper: heartbeats, recovery, watchdog, wake-ups. Connections of a process: claims and reports.
OF_A_KEEPER, OF_A_PROCESS = 4, 2

_SERVER = """
SELECT
    pg_catalog.current_setting('max_connections')::int
        - pg_catalog.current_setting('superuser_reserved_connections')::int,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pulse %%')
"""
_SLOTS = """
SELECT count(*), COALESCE(pg_catalog.sum(slots), 0)
FROM pulse_django_worker
WHERE stopped_at IS NULL AND last_beat_at > statement_timestamp() - %(silence)s
"""


def _pooler(alias: str, _: Limits) -> Iterator[Subject]:
    if not _is_pooled(alias):
        yield Subject(None, "none: connections go directly to the server")
    elif _hears_itself(alias):
        yield Subject(None, "session pooling: a test notification arrived")
    elif conf.current().listen_dsn:
        yield Subject(None, "transaction pooling, and LISTEN_DSN bypasses it")
    else:
        yield Subject(alias, "transaction pooling: a test notification did not arrive")


def _is_pooled(alias: str) -> bool:
    """Return whether there is a pooler: it gives clients another backend pid than that of the server."""
    [(pid,)] = rows(alias, "SELECT pg_backend_pid()")
    return bool(connections[alias].connection.info.backend_pid != pid)


def _hears_itself(alias: str) -> bool:
    """Return whether a notification arrives. The connection of the caller is in a transaction, so this needs two."""
    channel = f"pulse_check_{secrets.token_hex(4)}"
    params = connections[alias].get_connection_params()
    for name in ("context", "cursor_factory"):
        params.pop(name, None)
    params |= {"autocommit": True, "prepare_threshold": None}
    with psycopg.connect(**params) as listener, psycopg.connect(**params) as sender:
        listener.execute(f"LISTEN {channel}")
        sender.execute("SELECT pg_catalog.pg_notify(%s, '')", [channel])
        until = time.monotonic() + PATIENCE
        while (left := until - time.monotonic()) > 0:
            select.select([listener.fileno()], [], [], left)
            listener.pgconn.consume_input()
            if listener.pgconn.notifies() is not None:
                return True
    return False


def _number(alias: str, limits: Limits) -> Iterator[Subject]:
    [(allowed, used, ours)] = rows(alias, _SERVER, {})
    most = 0
    for one in _on_the_server_of(alias):
        with briefly(one, STATEMENT_TIMEOUT):
            [(workers, slots)] = rows(one, _SLOTS, limits.params())
        # The handler of each slot may use the ORM, and its thread has a connection for each shard.
        most += workers * (OF_A_KEEPER + OF_A_PROCESS * conf.current().processes) + slots
    said = f"{used} of {allowed} are in use, {ours} by workers, which need up to {most} when every handler is busy"
    yield Subject(alias if used - ours + most > NEARLY_ALL * allowed else None, said)


def _on_the_server_of(alias: str) -> list[str]:
    """Return the shards on the same server, in other databases or in schemas of Citus."""
    address = itemgetter("HOST", "PORT")
    ours = address(connections[alias].settings_dict)
    others = [one for one in shards() if one != alias and address(connections.settings[one]) == ours]
    return [alias, *(one for one in others if not problem_with_tables(one))]


def _server(alias: str, _: Limits) -> Iterator[Subject]:
    for message in check_database(databases=[alias]):
        yield Subject(message.id, f"{message.msg} {message.hint or ''}".strip())


CONDITIONS = (
    Condition(
        name="pooler",
        severity=Severity.HINT,
        says="LISTEN works. Nothing else needs a session.",
        means="A transaction pooler silently drops LISTEN, so workers poll for jobs. Everything else works through it.",
        to_do="Set PULSE['LISTEN_DSN'] to a connection that bypasses the pooler, or accept the delay of "
        "POLL_INTERVAL and set NOTIFY to False.",
        look=_pooler,
    ),
    Condition(
        name="connections",
        severity=Severity.WARNING,
        says="There are enough connections.",
        means="A worker without a connection cannot extend its leases.",
        to_do="Raise max_connections, add a transaction pooler, or lower CONCURRENCY.",
        look=_number,
    ),
    Condition(
        name="server",
        severity=Severity.WARNING,
        says="The system checks of the database find nothing.",
        means="Workers do not start, or a crash of the server can lose jobs.",
        to_do="Do what the check says.",
        look=_server,
    ),
)
