"""Do in several statements on Citus what is one on a plain server, so that no other node is needed (docs/adr/0086).

Citus takes a statement apart that inserts what another part of it has deleted or locked. It sends what is between the
parts to all of its nodes, and fails if one is down. So the first statement locks the rows, judges them and answers what
it found. Those that follow, in the same transaction, are given that. Each goes to the node of the schema alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pulse_django.queue.database.transactions import Params, Row, run_in_turn
from pulse_django.queue.statements import Compiled, array, quoted

# Citus sends no INSERT of selected rows to its node if that reads the clock or calls any other function that is not
# IMMUTABLE. So the first statement reads the clock, behind the locks.
CLOCK, NOW = "clock_timestamp()", "written_at"
# As a sub-select it is worked out once for a statement.
ERA, TODAY = "(SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int)", "today"

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Given:
    """Rows of a CTE as the statement before answered them."""

    name: str  # of the CTE
    types: Mapping[str, str]  # of its columns
    rows: list[dict[str, Any]] = field(repr=False)

    def any(self, column: str) -> bool:
        return any(row.get(column) for row in self.rows)

    def compiled(self, text: str) -> Compiled:
        """Put the rows where the statement says ``{given}``, with the columns that it names."""
        has = set().union(*self.rows)
        types = {c: kind for c, kind in self.types.items() if re.search(rf"\b{c}\b", text)}
        values = tuple(array(_spelt(row.get(c)) for row in self.rows) for c in types if c in has)
        arrays = ", ".join(f"pg_catalog.unnest(%s::{kind}[])" for c, kind in types.items() if c in has)
        names = ", ".join(c for c in types if c in has)
        every = ", ".join(c if c in has else f"NULL::{kind} AS {c}" for c, kind in types.items())
        source = f"SELECT {every} FROM ROWS FROM ({arrays}) AS given ({names})"  # noqa: S608 - made of constants
        return text.replace("{given}", f"({source}) AS {self.name}"), values * text.count("{given}")


def act_on(
    alias: str,
    ctes: tuple[str, Params],
    name: str,
    types: Mapping[str, str],
    then: Callable[[Given], Sequence[Compiled]],
    *,
    lacks: Collection[str] = (),
    also: Mapping[str, str] = NOTHING,
    lock_timeout: float | None = None,
) -> tuple[list[dict[str, Any]], list[list[Row]]]:
    """Read the rows of the last of these CTEs, which locks them, and then do what follows from them.

    Return these rows, and what the other statements answered. ``types`` are those of the columns, ``lacks`` the columns
    that it does not have, and ``also`` is what else is read.
    """
    found: list[dict[str, Any]] = []

    def follow(texts: list[Row]) -> Sequence[Compiled]:
        found.extend(json.loads(text) for (text,) in texts)
        return then(Given(name, {**types, NOW: "timestamptz", TODAY: "int"}, found)) if found else []

    values = {column: column for column in types if column not in lacks} | {NOW: CLOCK, TODAY: ERA} | {**also}
    pairs = ", ".join(f"'{column}'::text, {value}" for column, value in values.items())
    spelt = f"pg_catalog.json_strip_nulls(pg_catalog.json_build_object({pairs}))::text"
    first = f"{ctes[0]}\nSELECT {spelt} FROM {name}", ctes[1]
    _, answers = run_in_turn(alias, first, follow, lock_timeout=lock_timeout)
    return found, answers


def _spelt(value: str | float | bool | None) -> str:
    if value is None:
        return "NULL"
    return quoted(value) if isinstance(value, str) else str(value)
