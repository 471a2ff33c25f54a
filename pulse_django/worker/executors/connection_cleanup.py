"""What a handler leaves behind on its thread's connections is cleaned up before the next one sees it."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

_here = threading.local()


def tidy_connections() -> None:
    """Close or reset this thread's connections, as Django does at the end of a request, and more thoroughly.

    With CONN_MAX_AGE = 0, Django's default, they are closed. A connection that is to live longer must be idle, in
    autocommit, healthy and young enough, and is reset: search_path, role, prepared statements, advisory locks,
    LISTENs and temporary tables of one handler are no business of the next.
    """
    if not getattr(_here, "opened", False):
        return  # nothing was, on this thread
    _tidy()
    _here.opened = any(wrapper.connection is not None for wrapper in connections.all(initialized_only=True))


def _note_opened(**_: Any) -> None:
    _here.opened = True


connection_created.connect(_note_opened)


def _tidy() -> None:
    for wrapper in connections.all(initialized_only=True):
        if wrapper.connection is None and not wrapper.in_atomic_block and wrapper.autocommit in (True, False):
            if wrapper.run_on_commit or wrapper.savepoint_ids:
                _discard(wrapper)
        elif not _is_reusable(wrapper):
            _discard(wrapper)


def _is_reusable(wrapper: BaseDatabaseWrapper) -> bool:
    options = wrapper.settings_dict
    raw = wrapper.connection
    if wrapper.vendor != "postgresql":
        wrapper.close_if_unusable_or_obsolete()
        return wrapper.connection is not None and not wrapper.in_atomic_block
    if (
        raw is None
        or raw.closed
        or wrapper.in_atomic_block
        or not wrapper.get_autocommit()
        or raw.info.transaction_status != TransactionStatus.IDLE
    ):
        return False
    pooled = bool(options["OPTIONS"].get("pool"))
    if options["CONN_MAX_AGE"] == 0 and not pooled:
        return False
    try:
        raw.execute("DISCARD ALL")
        wrapper.ensure_timezone()
        wrapper.ensure_role()  # type: ignore[attr-defined]  # PostgreSQL's has it
    except Exception:  # whatever it is: a new one will be better
        return False
    if pooled:
        wrapper.close()  # back to the pool, clean
    else:
        wrapper.close_if_unusable_or_obsolete()
    return True


def _discard(wrapper: BaseDatabaseWrapper) -> None:
    with suppress(Exception):
        if wrapper.connection is not None:
            wrapper.connection.close()
        if wrapper.settings_dict.get("OPTIONS", {}).get("pool"):
            wrapper.in_atomic_block = False
            wrapper.close()  # the pool must know that this one is gone
    with suppress(AttributeError):
        del connections[wrapper.alias]
