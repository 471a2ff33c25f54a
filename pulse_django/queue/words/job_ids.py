"""Parse job ids, attempt numbers and other whole numbers of callers before any SQL is sent.

PostgreSQL would refuse a number that does not fit, and abort the caller's transaction. ``int()`` would read 1.9 and
True as 1, and "1_0" as 10.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pulse_django.exceptions import InvalidJob

from .display import shown
from .options import Whole

MAX_ID = 2**63 - 1
MAX_ATTEMPT = 2**31 - 1
_CANONICAL = re.compile("[1-9][0-9]{0,18}")


def job_id_of(value: object) -> int:
    """Return a job id from a whole number or a text of its digits."""
    if isinstance(value, str) and _CANONICAL.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ID:
        raise InvalidJob(f"job id: {shown(value)} is not a whole number from 1 to {MAX_ID}, or a str of its digits")
    return int(value)


def job_ids_of(values: Iterable[object]) -> frozenset[int]:
    """Return the ids of several jobs."""
    if isinstance(values, str | bytes):
        raise InvalidJob(f"job ids: {shown(values)} is a single value; write [{shown(values)}] for a single job")
    return frozenset(map(job_id_of, values))


def check_attempt(value: object) -> None:
    """Refuse a value that PostgreSQL could not compare with an attempt number. None means any attempt."""
    if value is not None:
        Whole(-MAX_ATTEMPT, MAX_ATTEMPT).check("attempt", value)


# The number of a shard, which is part of each id that its database gives.
#
# An id is a whole number of 63 bits: 15 for the shard, and 48 that the database counts up. So an id is unique over all
# shards, and shows which database gave it. Ids of shard 0 look like those of a single database.


BITS_OF_COUNT = 48
MOST_SHARD_NUMBER = 2**15 - 1


def shard_number_of(row_id: int) -> int:
    """Return the number of the shard that gave an id. A job keeps it when it moves to another shard."""
    return row_id >> BITS_OF_COUNT


def floor_of_ids(shard_number: int) -> int:
    """Return the number that all ids of a shard are larger than."""
    return shard_number << BITS_OF_COUNT


def range_of_ids(shard_number: int) -> tuple[int, int]:
    """Return the first id of a shard, and the first id after its range."""
    return floor_of_ids(shard_number), min(floor_of_ids(shard_number + 1), MAX_ID)
