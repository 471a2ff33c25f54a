"""On Citus, split a statement into several that each need only one node (docs/adr/0086).

Citus splits a statement that inserts rows that another part of it has deleted or locked. It sends the intermediate rows
to all nodes, and fails if one of them is down. So the first statement locks the rows, judges them and returns them. The
following statements, in the same transaction, get these rows as parameters. Each goes only to the node of the schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pulse_django.queue.database.transactions import Params, Row, run_in_turn
from pulse_django.queue.ending import CLOCK, ERA
from pulse_django.queue.statements import Compiled, array, quoted

# Citus does not send an INSERT ... SELECT to the node if it reads the clock or calls another function that is not
# IMMUTABLE. So the first statement reads the clock, after it has locked the rows.
NOW, TODAY = "written_at", "today"

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Given:
    """The rows of a CTE, as the first statement returned them."""

    name: str  # of the CTE
    types: Mapping[str, str]  # of its columns
    rows: list[dict[str, Any]] = field(repr=False)

    def any(self, column: str) -> bool:
        return any(row.get(column) for row in self.rows)

    def compiled(self, text: str) -> Compiled:
        """Replace ``{given}`` in a statement by the rows, with the columns that it uses."""
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
    """Read the rows of the last of these CTEs, which locks them, and then run the statements made from them.

    Return these rows, and the answers of the other statements. ``types`` are the types of the columns, ``lacks`` the
    columns that the CTE does not have, and ``also`` further values to read.
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
