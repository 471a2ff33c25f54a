"""One line of advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from django.db import connections, transaction

STATEMENT_TIMEOUT = "5s"


class Level(StrEnum):
    GOOD = "good"
    HINT = "hint"  # an improvement
    WARNING = "warning"  # a problem now or soon
    UNKNOWN = "unknown"  # too few facts


@dataclass(frozen=True, slots=True)
class Advice:
    level: Level
    topic: str
    what: str
    why: str
    to_do: str = ""  # empty if there is nothing to do

    def to_json(self) -> dict[str, Any]:
        return {name: str(value) for name, value in asdict(self).items()}


good, hint, warning, unknown = (partial(Advice, level) for level in Level)


def rows(alias: str, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run a query, read-only and with a timeout."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'")
        cursor.execute(sql, list(params) or None)
        return list(cursor.fetchall())
