"""What somebody types into the search box: the id of a job, or words."""

from __future__ import annotations

from itertools import islice

from django.utils.text import smart_split

MOST_WORDS = 8  # each is looked for in every row of a window
_NOBODY = 0


def id_in(text: str) -> int | None:
    """Return the id that is meant by ``123`` or ``#123``; None: these are words."""
    digits = text.strip().removeprefix("#")
    if not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits) if len(digits) < 19 else _NOBODY  # the column holds no more


def words_in(text: str) -> str:
    """Return as many words as are looked for."""
    return " ".join(islice(smart_split(text), MOST_WORDS))
