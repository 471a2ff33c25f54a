"""What is hidden of a call, without its function: it may have changed, or be gone, when the job is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple

from pulse_django.exceptions import InvalidJob

MAX_MASKS = 2_000  # characters of the text; a function needs a hundred parameters to come near


class Masks(NamedTuple):
    """The hidden places of a call. The text of it stands on the job."""

    positions: tuple[int, ...] = ()
    rest: int | None = None  # this position and all that follow; None: none of them
    names: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None  # the names that are shown; None: all that ``names`` does not hold
    returned: bool = False  # what the handler returns
    encrypted: bool = False  # all of it, in the table too

    @classmethod
    def read(cls, text: str | None) -> Masks:
        """Return what a job says. What cannot be read, as by a later release or by hand, hides everything."""
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
        """Spell it as JSON, without what is hidden nowhere."""
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


# Whether each part of the text is what Masks.text writes.
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
# A release that does not know the last part hides everything.
ENCRYPTED = EVERYTHING._replace(encrypted=True)


def is_encrypted(text: str | None) -> bool:
    """Say whether the arguments, the progress and the result of a job are encrypted, by what stands on it."""
    return text is not None and Masks.read(text).encrypted


# The fields of a job that may be encrypted. Arguments by position and by name are one value, so that those of two jobs
# cannot be mixed.
ARGUMENTS, PROGRESS, RESULT = "arguments", "progress", "result"

HIDDEN = "(encrypted)"  # what pages, logs and errors show instead


# By which arguments a job is found: ``name:value`` for each that its task declares with ``search``.


MOST_SEARCHED = 8  # arguments of one task: each is an entry of an index, which a claim and an end write again
MAX_VALUE = 200  # characters that are compared

# What else one searches for, as in ``tag:billing``.
TAG, PARENT, ERROR, TASK = "tag", "parent", "error", "task"
RESERVED = frozenset({TAG, PARENT, ERROR, TASK})

Terms = tuple[str, ...]


def why_not_searched(searched: Sequence[str], sensitive: Sequence[str]) -> str | None:
    """Say why a task cannot declare these arguments."""
    for name in searched:
        if name in sensitive:
            return f"{name!r} is sensitive, and a search would tell its value"
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
        raise InvalidJob("searchable: cannot tell the names of arguments by position; pass them by name")
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
