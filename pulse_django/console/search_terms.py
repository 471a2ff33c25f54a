"""Parse text from the search box or an address: numbers, ids of jobs, words, names with values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.utils.text import smart_split, unescape_string_literal

from pulse_django.encryption.values import MASK
from pulse_django.queue.words.job_ids import MAX_ID
from pulse_django.queue.words.masks import ERROR, PARENT, RESERVED, TAG, TASK

MOST_WORDS = 8  # each is searched in every row of a window
_NOBODY = 0
_MOST_DIGITS = len(str(MAX_ID))


def number_in(text: str) -> int | None:
    """Return the number if the text has only digits and fits into a bigint, or None."""
    is_short = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return number if is_short and (number := int(text)) <= MAX_ID else None


def id_in(text: str) -> int | None:
    """Return the id of ``123`` or ``#123``, or None if the text is not a number."""
    digits = text.strip().removeprefix("#")
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = number_in(digits)
    return _NOBODY if number is None else number


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Microseconds are unambiguous. Without USE_TZ, Django would return an instant without a time zone.
PLACED = "(EXTRACT(epoch FROM {}) * 1000000.0)::bigint"


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a job in a list that is ordered by instants."""

    at: datetime | str
    id: int

    @classmethod
    def of(cls, microseconds: int, job_id: int) -> Place:
        return cls(_EPOCH + microseconds * _MICROSECOND, job_id)

    @classmethod
    def named(cls, text: str) -> Place | None:
        """Return the place in a parameter of an address or a form, or None if it is invalid."""
        numbers = [number_in(part) for part in text.removeprefix("-").split("_")]
        if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
            return None
        try:
            return cls.of(-numbers[0] if text.startswith("-") else numbers[0], numbers[1])
        except OverflowError:  # outside of Python's range of dates
            return None

    @property
    def name(self) -> str:
        assert isinstance(self.at, datetime), "only the place of a job has a name"  # noqa: S101
        return f"{(self.at - _EPOCH) // _MICROSECOND}_{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A parsed search. A job matches if all parts match."""

    job_id: int | None = None  # from "#123" or a bare number
    number: str = ""  # a bare number may be the value of an argument as well
    tags: tuple[str, ...] = ()
    parents: tuple[int, ...] = ()
    errors: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()  # parts of names, of known and unknown tasks
    arguments: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # names and values
    words: tuple[str, ...] = ()


def search_in(text: str) -> Search:
    """Parse a search, such as ``4711``, ``#4711``, ``order_id:4711``, ``tag:billing`` or ``error:"no route"``."""
    job_id = id_in(text)
    if job_id is not None:
        return Search(job_id=job_id, number="" if "#" in text else text.strip())
    found: dict[str, list[str]] = {TAG: [], PARENT: [], ERROR: [], TASK: [], "": []}
    arguments = []
    for token in smart_split(text):
        name, value = _named(token)
        if name in found:
            found[name].append(value)
        else:
            arguments.append((name, value))
    parents = (number_in(one.removeprefix("#")) for one in found[PARENT])
    return Search(
        tags=tuple(found[TAG]),
        parents=tuple(_NOBODY if one is None else one for one in parents),
        errors=tuple(found[ERROR][:MOST_WORDS]),
        tasks=tuple(found[TASK][:MOST_WORDS]),
        arguments=tuple(arguments[:MOST_WORDS]),
        words=tuple(one for one in found[""] if one)[:MOST_WORDS],
    )


def without_values(text: str) -> str:
    """Return the search with masked values of arguments, for text that other users read."""
    named = [(token, _named(token)[0]) for token in smart_split(text)]
    return " ".join(f"{name}:{MASK}" if name and name not in RESERVED else token for token, name in named)


def _named(token: str) -> tuple[str, str]:
    """Return the name before the colon, and the value without its quotes. Words have an empty name."""
    name, colon, value = token.partition(":")
    if colon and value and name.isidentifier():
        return name, _unquoted(value)
    return "", _unquoted(token)


def _unquoted(text: str) -> str:
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return unescape_string_literal(text) if is_quoted else text
