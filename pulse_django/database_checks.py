"""System checks that connect to the servers. Their ids are listed in ``checks.py``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.db import connections

from .checks import HINT_POSTGRESQL, check_shards, check_vendor, known_shards
from .queue.database.tables import problem_with_tables
from .queue.words.documentation import page
from .shards.ids import problem_with_numbers

OLDEST_POSTGRESQL = 150_000


def check_database(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check the servers. It runs in ``migrate`` and ``check --database``, which connect anyway."""
    if check_vendor() or check_shards():
        return []
    return [
        message
        for alias, number in known_shards().items()
        if alias in (databases or ())
        for message in _check_shard(alias, number)
    ]


def _check_shard(alias: str, shard_number: int | None) -> list[CheckMessage]:
    missing = "" if _is_migrating() else problem_with_tables(alias)
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT name, setting FROM pg_settings"
            " WHERE name IN ('server_version_num', 'server_version', 'fsync', 'full_page_writes',"
            " 'synchronous_commit', 'default_transaction_isolation')"
        )
        found = dict(cursor.fetchall())
    return [
        *_check_tables(missing),
        *_check_numbers(alias, shard_number, missing),
        *_check_version(found),
        *_check_durability(found),
        *_check_session(found),
    ]


def _is_migrating() -> bool:
    """Return whether this is ``migrate``, which runs these checks first and needs no advice to run it."""
    return "migrate" in sys.argv[1:2]


def _check_tables(missing: str) -> list[CheckMessage]:
    # A warning: an error would stop commands with another name that migrate.
    return (
        [Warning(missing, hint="Workers do not start until this is fixed.", id="pulse_django.W006")] if missing else []
    )


def _check_numbers(alias: str, shard_number: int | None, missing: str) -> list[CheckMessage]:
    if missing or shard_number is None or _is_migrating():
        return []
    if not (problem := problem_with_numbers(alias, shard_number)):
        return []
    return [Error(f"{problem}.", hint=f"See {page('how-to/shards.md')}.", id="pulse_django.E017")]


def _check_version(found: dict[str, str]) -> list[CheckMessage]:
    if int(found["server_version_num"]) >= OLDEST_POSTGRESQL:
        return []
    message = f"Pulse needs PostgreSQL 15 or newer; this server is {found['server_version']}."
    return [Error(message, hint=HINT_POSTGRESQL, id="pulse_django.E008")]


def _check_durability(found: dict[str, str]) -> list[CheckMessage]:
    off = [name for name in ("fsync", "full_page_writes") if found[name] == "off"]
    if not off:
        return []
    message = f"{' and '.join(off)} is off on the server: a crash can lose committed jobs."
    return [Warning(message, hint="Turn it on. Pulse cannot guarantee durability without it.", id="pulse_django.W002")]


def _check_session(found: dict[str, str]) -> list[CheckMessage]:
    """Check the defaults of the role: transactions of the project, which enqueue, use them."""
    wrong = []
    if found["synchronous_commit"] in ("off", "local"):
        wrong.append(f"synchronous_commit is {found['synchronous_commit']}")
    if found["default_transaction_isolation"] != "read committed":
        wrong.append(f"default_transaction_isolation is {found['default_transaction_isolation']}")
    if not wrong:
        return []
    message = f"{' and '.join(wrong)} for this role, which affects jobs enqueued in your transactions."
    hint = "A job is lost if a crash loses its commit. Reset both settings for the role, or accept the risk."
    return [Warning(message, hint=hint, id="pulse_django.W003")]
