"""What a user types, into the search box or an address: a number, the id of a job, or words."""

from __future__ import annotations

from itertools import islice

from django.utils.text import smart_split

from pulse_django.words.job_ids import MAX_ID

MOST_WORDS = 8  # each is looked for in every row of a window
_NOBODY = 0
_TAG = "tag:"
_MOST_DIGITS = len(str(MAX_ID))


def number_in(text: str) -> int | None:
    """Return a number of digits that a bigint holds; anything else counts as nothing."""
    is_short = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return number if is_short and (number := int(text)) <= MAX_ID else None


def id_in(text: str) -> int | None:
    """Return the id that is meant by ``123`` or ``#123``; None: these are words."""
    digits = text.strip().removeprefix("#")
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = number_in(digits)
    return _NOBODY if number is None else number


def tags_in(text: str) -> tuple[list[str], str]:
    """Return the tags that are meant by words such as ``tag:billing``, and the other words."""
    words = list(smart_split(text))
    tags = [word.removeprefix(_TAG) for word in words if word.startswith(_TAG) and word != _TAG]
    return tags, " ".join(word for word in words if not word.startswith(_TAG) or word == _TAG)


def words_in(text: str) -> str:
    """Return as many words as are looked for."""
    return " ".join(islice(smart_split(text), MOST_WORDS))
