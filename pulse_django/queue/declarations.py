"""Decide which worker's code declares: of the workers with one settings module, the last one that started."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings

from .database.sql_functions import aware
from .database.transactions import joined, run_joined

MAX_SCOPE = 200

_FIRST = """
INSERT INTO pulse_django_declaration (scope, worker, booted_at, fingerprint)
VALUES (%s, '', 'epoch', '') ON CONFLICT (scope) DO NOTHING RETURNING scope
"""

_STANDING = """
SELECT declaration.fingerprint, declaration.booted_at, declaration.worker::text = %s,
    declaration.declared_at > statement_timestamp() - %s::interval
    OR EXISTS (
        SELECT 1 FROM pulse_django_worker AS worker
        WHERE worker.stopped_at IS NULL AND worker.last_beat_at > statement_timestamp() - %s::interval
            AND pg_catalog.concat(worker.name, ':', worker.boot_id) = declaration.worker::text
    )
FROM pulse_django_declaration AS declaration
WHERE declaration.scope::text = %s
FOR NO KEY UPDATE
"""

# ``_STANDING`` has locked the row.
_DECLARED = """
WITH now AS MATERIALIZED (
    SELECT clock_timestamp() AS declared_at
),
written AS (
    UPDATE pulse_django_declaration AS declaration
    SET worker = %s, booted_at = %s, fingerprint = %s, declared_at = now.declared_at
    FROM now
    WHERE declaration.scope::text = %s
    RETURNING declaration.scope
)
SELECT scope FROM written
"""


class Declarer(NamedTuple):
    """The worker whose code declares."""

    scope: str  # the settings module: other projects in this database declare for themselves
    worker: str  # its name and boot id
    booted_at: datetime  # by the server's clock


def scope_of_code() -> str:
    """Return the settings module of this process, or an empty text if it has none."""
    return settings.SETTINGS_MODULE or ""


def declare_once(
    alias: str,
    declarer: Declarer,
    wanted: Mapping[str, Any],
    *,
    silence: timedelta,
    stored: Callable[[], int],
    store: Callable[[], object],
) -> bool:
    """Store what this code declares, unless a worker that started later has declared. Return whether it did.

    A worker with the old version that restarts in the middle of a deploy has started later. Once it is gone, the next
    worker that asks declares instead. ``silence`` is the time after which a silent worker counts as gone. ``stored``
    counts the declared rows that exist: one may have been deleted by hand.
    """
    fingerprint = hashlib.blake2b(json.dumps(wanted, sort_keys=True).encode(), digest_size=32).hexdigest()
    with joined(alias):
        run_joined(alias, _FIRST, [declarer.scope])
        params = [declarer.worker, silence, silence, declarer.scope]
        [(last, booted_at, is_own, lives)] = run_joined(alias, _STANDING, params)
        if lives and not is_own and aware(booted_at) > aware(declarer.booted_at):
            return False
        if last != fingerprint or not is_own or stored() < len(wanted):
            store()
        if last != fingerprint or not is_own:
            run_joined(alias, _DECLARED, [declarer.worker, declarer.booted_at, fingerprint, declarer.scope])
    return True
