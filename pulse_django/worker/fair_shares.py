"""How the slots of a child are shared among the shards that it serves."""

from __future__ import annotations

from collections.abc import Sequence


def fair_share(slots: int, mine: int, others: Sequence[int]) -> int:
    """Return how many more slots a shard may take that has ``mine``. ``others`` are those of shards that want some.

    What is left over by the division goes to the shards that have the fewest.
    """
    share, rest = divmod(slots, len(others) + 1)
    fewer = sum(one < mine for one in others)
    return share + (fewer < rest) - mine
