"""Records releases: the moments at which the newest worker had another version than the newest one before."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from .sql_functions import read
from .transactions import run_joined

MAX_VERSION = 200
PROJECT = "project"  # the key of PULSE["PROJECT_VERSION"] in the versions of a worker
KEPT = timedelta(days=100)

# If the newest worker started before the last release was seen, its version is back now: the workers of the last
# release have stopped.
_NEWEST = """
SELECT
    versions::text,
    CASE WHEN started_at < last.seen_at THEN statement_timestamp() ELSE started_at END,
    last.version
FROM pulse_django_worker
LEFT JOIN (SELECT version, seen_at FROM pulse_django_release ORDER BY seen_at DESC, id DESC LIMIT 1) AS last ON true
WHERE stopped_at IS NULL AND started_at <= statement_timestamp()
ORDER BY started_at DESC, pulse_django_worker.id DESC
LIMIT 1
"""

_WRITE = "INSERT INTO pulse_django_release (version, seen_at) VALUES (%s, %s) RETURNING id"

_FORGET = """
DELETE FROM pulse_django_release WHERE seen_at < statement_timestamp() - %s::interval RETURNING id
"""


def note_release(alias: str) -> None:
    """Store the version of the newest worker, if it differs from the last one."""
    for versions, seen_at, before in run_joined(alias, _NEWEST, []):
        version = version_of(read(versions))
        if version and version != before:
            run_joined(alias, _WRITE, [version, seen_at])


def forget(alias: str) -> int:
    return len(run_joined(alias, _FORGET, [KEPT]))


def version_of(versions: Any) -> str:
    """Return the project's version, or else the versions of its packages, in one line."""
    if not isinstance(versions, Mapping):
        return ""
    project = versions.get(PROJECT)
    names = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()) if name != PROJECT)
    return str(project or names)[:MAX_VERSION]
