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
from pulse_django.queue.database.tables import problem_with_tables
from pulse_django.shards.placement import shards

from .advice import Advice, good, hint, rows, warning

PATIENCE = 1.0  # seconds to wait for a notification
NEARLY_ALL = 0.8
# Connections of a keeper: heartbeats, recovery, watchdog, wake-ups. Connections of a process: claims and reports.
OF_A_KEEPER, OF_A_PROCESS = 4, 2

_SERVER = """
SELECT
    pg_catalog.current_setting('max_connections')::int
        - pg_catalog.current_setting('superuser_reserved_connections')::int,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pulse %')
"""
_SLOTS = """
SELECT count(*), COALESCE(pg_catalog.sum(slots), 0)
FROM pulse_django_worker
WHERE stopped_at IS NULL AND last_beat_at > statement_timestamp() - %s
"""


def on_connections(alias: str, settings: conf.PulseSettings) -> Iterator[Advice]:
    yield _of_a_pooler(alias, settings)
    yield _of_their_number(alias, settings)
    for message in check_database(databases=[alias]):
        yield warning("server", message.msg, f"({message.id})", message.hint or "")


def _of_a_pooler(alias: str, settings: conf.PulseSettings) -> Advice:
    if not _is_pooled(alias):
        return good("pooler", "none: connections go directly to the server", "LISTEN works.")
    if _hears_itself(alias):
        return good(
            "pooler", "session pooling: a test notification arrived", "LISTEN works, and nothing else needs a session."
        )
    if settings.listen_dsn:
        return good(
            "pooler",
            "transaction pooling, and LISTEN_DSN bypasses it",
            "A transaction pooler silently drops LISTEN. Everything else works through it.",
        )
    return hint(
        "pooler",
        "transaction pooling: a test notification did not arrive",
        f"Workers poll for jobs every {settings.poll_interval.total_seconds():g} s. Everything else works.",
        'Set PULSE["LISTEN_DSN"] to a connection that bypasses the pooler, '
        "or accept the delay and set NOTIFY to False.",
    )


def _is_pooled(alias: str) -> bool:
    """Return whether there is a pooler: it gives clients another backend pid than that of the server."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    return bool(connection.connection.info.backend_pid != pid)


def _hears_itself(alias: str) -> bool:
    channel = f"pulse_doctor_{secrets.token_hex(4)}"
    params = connections[alias].get_connection_params()
    for name in ("context", "cursor_factory"):
        params.pop(name, None)
    with psycopg.connect(**params | {"autocommit": True, "prepare_threshold": None}) as listener:
        listener.execute(f"LISTEN {channel}")
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT pg_catalog.pg_notify(%s, '')", [channel])
        until = time.monotonic() + PATIENCE
        while (left := until - time.monotonic()) > 0:
            select.select([listener.fileno()], [], [], left)
            listener.pgconn.consume_input()
            if listener.pgconn.notifies() is not None:
                return True
    return False


def _of_their_number(alias: str, settings: conf.PulseSettings) -> Advice:
    [(allowed, used, ours)] = rows(alias, _SERVER)
    most = 0
    for one in _on_the_server_of(alias):
        [(workers, slots)] = rows(one, _SLOTS, [settings.worker_silence])
        # The handler of each slot may use the ORM, and its thread has a connection for each shard.
        most += workers * (OF_A_KEEPER + OF_A_PROCESS * settings.processes) + slots
    what = f"{used} of {allowed} are in use, {ours} by workers, which need up to {most} when every handler is busy"
    if used - ours + most > NEARLY_ALL * allowed:
        return warning(
            "connections",
            what,
            "A worker without a connection cannot extend its leases.",
            "Raise max_connections, add a transaction pooler, or lower CONCURRENCY.",
        )
    return good("connections", what, "There are enough connections.")


def _on_the_server_of(alias: str) -> list[str]:
    """Return the shards on the same server, in other databases or in schemas of Citus."""
    address = itemgetter("HOST", "PORT")
    ours = address(connections[alias].settings_dict)
    others = [one for one in shards() if one != alias and address(connections.settings[one]) == ours]
    return [alias, *(one for one in others if not problem_with_tables(one))]
