"""The hidden arguments of a call. They are stored, because the function may have changed when the job is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple

from pulse_django.exceptions import InvalidJob

MAX_MASKS = 2_000  # characters of the text: enough for about a hundred parameters


class Masks(NamedTuple):
    """The hidden arguments of a call. The job stores them as text."""

    positions: tuple[int, ...] = ()
    rest: int | None = None  # this position and all later ones; None: none
    names: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None  # the names that are shown; None: all except ``names``
    returned: bool = False  # the result is hidden
    encrypted: bool = False  # everything is hidden, and encrypted in the table

    @classmethod
    def read(cls, text: str | None) -> Masks:
        """Parse the text of a job. An unreadable text, as of a later release, hides everything."""
        if text is None:
            return NOTHING
        try:
            said = json.loads(text)
            if not all(_FITS[name](value) for name, value in said.items()):
                return EVERYTHING
            parts: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in said.items()}
            return cls(**parts)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            return EVERYTHING

    @property
    def text(self) -> str:
        """Return it as JSON, without empty parts."""
        said = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        text = json.dumps(said, separators=(",", ":"))
        return text if len(text) <= MAX_MASKS else EVERYTHING.text

    def hides_position(self, position: int) -> bool:
        return position in self.positions or (self.rest is not None and position >= self.rest)

    def hides_name(self, name: str) -> bool:
        return name in self.names or (self.only is not None and name not in self.only)


def _are_positions(values: object) -> bool:
    return isinstance(values, list) and all(type(one) is int and one >= 0 for one in values)  # True is an int, too


def _are_names(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(one, str) for one in values)


# Checks that each part of the text has the form that Masks.text writes.
_FITS: dict[str, Callable[[object], bool]] = {
    "positions": _are_positions,
    "rest": lambda said: said is None or _are_positions([said]),
    "names": _are_names,
    "only": lambda said: said is None or _are_names(said),
    "returned": lambda said: isinstance(said, bool),
    "encrypted": lambda said: isinstance(said, bool),
}

NOTHING = Masks()
EVERYTHING = Masks(rest=0, only=(), returned=True)
# An older release that does not know ``encrypted`` also hides everything.
ENCRYPTED = EVERYTHING._replace(encrypted=True)


def is_encrypted(text: str | None) -> bool:
    """Return whether arguments, progress and result of a job are encrypted, from its stored masks."""
    return text is not None and Masks.read(text).encrypted


# The fields of a job that may be encrypted. Positional and keyword arguments are one value, so that those of two jobs
# cannot be combined.
ARGUMENTS, PROGRESS, RESULT = "arguments", "progress", "result"

HIDDEN = "(encrypted)"  # shown on pages, in logs and in errors instead


# Search terms: ``name:value`` for each argument that the task declares with ``searchable``.


MOST_SEARCHED = 8  # arguments of one task: each is an index entry, which claim and settle write again
MAX_VALUE = 200  # characters that are compared

# The other prefixes of a search, as in ``tag:billing``.
TAG, PARENT, ERROR, TASK = "tag", "parent", "error", "task"
RESERVED = frozenset({TAG, PARENT, ERROR, TASK})

Terms = tuple[str, ...]


def why_not_searched(searched: Sequence[str], sensitive: Sequence[str]) -> str | None:
    """Return why a task cannot declare these arguments, or None."""
    for name in searched:
        if name in sensitive:
            return f"{name!r} is sensitive, and a search would reveal its value"
        if not name.isidentifier() or iskeyword(name):
            return f"{name!r} is not the name of an argument"
        if name in RESERVED:
            return f"{name!r} is a prefix of the search already; rename the argument"
    if len(searched) > MOST_SEARCHED:
        return f"{len(searched)} arguments, over the limit of {MOST_SEARCHED}"
    return None


def terms_of(searched: Sequence[str], names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Terms:
    """Return the search terms of a call. ``names`` are the names of the positional arguments.

    Arguments that were not given have no term. Only texts, numbers and booleans have one.
    """
    if not searched:
        return ()
    if len(args) > len(names):
        raise InvalidJob("searchable: the names of positional arguments are not known; pass the arguments by name")
    given = {**dict(zip(names, args)), **kwargs}  # noqa: B905 - fewer arguments may be given
    texts = ((name, text_of(given.get(name))) for name in searched)
    return tuple(term_of(name, text) for name, text in texts if text is not None)


def term_of(name: str, text: str) -> str:
    """Return the search term for an argument with this value."""
    return f"{name}:{text[:MAX_VALUE]}"


def text_of(value: object) -> str | None:
    """Return a value as a user types it. None: it cannot be searched for."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value) or None
    if isinstance(value, int):
        return int.__repr__(value)  # for Enums, too
    return float.__repr__(value) if isinstance(value, float) else None
