"""The number of a shard, in front of each id that its database gives.

An id is a whole number of 63 bits: 15 of the shard, and 48 that the database counts up. So an id is given only once
over all shards, and it says which database gave it. That of shard 0 looks like that of a single database.
"""

from __future__ import annotations

BITS_OF_COUNT = 48
MOST_SHARD_NUMBER = 2**15 - 1


def shard_number_of(row_id: int) -> int:
    """Return the number of the shard that gave an id. A job that was moved since has kept it."""
    return row_id >> BITS_OF_COUNT


def floor_of_ids(shard_number: int) -> int:
    """Return what the ids of a shard are larger than."""
    return shard_number << BITS_OF_COUNT
