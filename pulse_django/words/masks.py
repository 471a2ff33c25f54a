"""What is hidden of a call, without its function: it may have changed, or be gone, when the job is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

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
            return cls(**{name: _READ[name](value) for name, value in json.loads(text).items()})
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


def _position(value: object) -> int:
    if type(value) is not int or value < 0:  # True is an int, too
        raise TypeError
    return value


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _each(read: Callable[[object], T], values: object) -> tuple[T, ...]:
    if not isinstance(values, list):  # a str has items as well
        raise TypeError
    return tuple(map(read, values))


# How each part of the text is read. TypeError: it is not what Masks.text writes.
_READ: dict[str, Callable[[object], Any]] = {
    "positions": lambda said: _each(_position, said),
    "rest": lambda said: None if said is None else _position(said),
    "names": lambda said: _each(_name, said),
    "only": lambda said: None if said is None else _each(_name, said),
    "returned": _yes_or_no,
    "encrypted": _yes_or_no,
}

NOTHING = Masks()
EVERYTHING = Masks(rest=0, only=(), returned=True)
# A release that does not know the last part hides everything.
ENCRYPTED = EVERYTHING._replace(encrypted=True)


def is_encrypted(text: str | None) -> bool:
    """Say whether the arguments, the progress and the result of a job are encrypted, by what stands on it."""
    return text is not None and Masks.read(text).encrypted
