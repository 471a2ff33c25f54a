"""Rows as the text that COPY reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

# A backslash begins an escape, and the others end a column or a row.
_ESCAPED = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_NULL = r"\N"


class Json(NamedTuple):
    """A value of a jsonb column, as its text."""

    text: str


def copy_from(table: str, columns: Iterable[str]) -> str:
    """Return the statement that reads rows of these columns."""
    return f"COPY {table} ({', '.join(columns)}) FROM STDIN"


def copied(value: Any) -> str:
    """Spell a value of a column."""
    if value is None:
        return _NULL
    if isinstance(value, str):
        return value.translate(_ESCAPED)
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return int.__repr__(value)  # of an Enum too
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Json):
        return copied_json(value.text)
    if isinstance(value, tuple):
        return _array(value).translate(_ESCAPED)
    if isinstance(value, timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    raise TypeError(f"{type(value).__name__} has no text for COPY")


def _array(texts: Iterable[str]) -> str:
    """Spell an array of texts as PostgreSQL reads it."""
    quoted = ['"' + text.replace("\\", r"\\").replace('"', r"\"") + '"' for text in texts]
    return f"{{{','.join(quoted)}}}"


def copied_json(text: str) -> str:
    """Spell a JSON text. It contains no tabs and no line ends: JSON escapes them."""
    return text.replace("\\", r"\\") if "\\" in text else text


def copied_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the columns in which any row has a value, and the text of each row in these columns."""
    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    return columns, ["\t".join(copied(row[name]) for name in columns) for row in rows]
