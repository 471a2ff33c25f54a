"""By which arguments a job is found: ``name:value`` for each that its task declares with ``search``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import Any

from pulse_django.exceptions import InvalidJob

MOST_SEARCHED = 8  # arguments of one task: each is an entry of an index, which a claim and an end write again
MAX_VALUE = 200  # characters that are compared

# What else one searches for, as in ``tag:billing``.
TAG, PARENT, ERROR, TASK = "tag", "parent", "error", "task"
RESERVED = frozenset({TAG, PARENT, ERROR, TASK})

Terms = tuple[str, ...]


def why_not_searched(searched: Sequence[str], masked: Sequence[str]) -> str | None:
    """Say why a task cannot declare these arguments."""
    for name in searched:
        if name in masked:
            return f"{name!r} is masked, and a search would tell its value"
        if not name.isidentifier() or iskeyword(name):
            return f"{name!r} is no name of an argument"
        if name in RESERVED:
            return f"{name!r} means something else in the search; give the argument another name"
    if len(searched) > MOST_SEARCHED:
        return f"{len(searched)} arguments, over the limit of {MOST_SEARCHED}"
    return None


def terms_of(searched: Sequence[str], names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Terms:
    """Return the terms of a call. ``names`` are those of the arguments by position.

    An argument that was not given has none. Nor has one that is neither a text nor a number nor a boolean.
    """
    if not searched:
        return ()
    if len(args) > len(names):
        raise InvalidJob("search: cannot tell the names of arguments by position; pass them by name")
    given = {**dict(zip(names, args)), **kwargs}  # noqa: B905 - fewer may be given than there are
    texts = ((name, text_of(given.get(name))) for name in searched)
    return tuple(term_of(name, text) for name, text in texts if text is not None)


def term_of(name: str, text: str) -> str:
    """Return what is stored for an argument of this value, and what finds it."""
    return f"{name}:{text[:MAX_VALUE]}"


def text_of(value: object) -> str | None:
    """Return a value as one types it; None: it is not searched for."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value) or None
    if isinstance(value, int):
        return int.__repr__(value)  # of an Enum too
    return float.__repr__(value) if isinstance(value, float) else None
