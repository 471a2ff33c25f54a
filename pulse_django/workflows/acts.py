"""The actions of operators on a batch: retry its dead letters."""

from __future__ import annotations

from typing import NamedTuple

from pulse_django.operations.acts import ACTS

from .reading import dead_letters_in

AT_ONCE = 1_000  # dead letters in one statement
MOST_ROUNDS = 10


class RetriedBatch(NamedTuple):
    revived: int
    key_taken: int  # left: another job has their unique key
    of_cancelled: int  # left: their batch was cancelled
    has_more: bool  # call it again


def retry_dead_letters(alias: str, batch_id: int, *, runs: int = 1, cancelled_too: bool = False) -> RetriedBatch:
    """Retry the dead letters of a batch and of those within it: at most ten thousand of them."""
    revived = key_taken = left = after = 0
    for _ in range(MOST_ROUNDS):
        ids = dead_letters_in(alias, batch_id, after=after, most=AT_ONCE)
        if ids:
            answer = ACTS["retry"].do(alias, ids, {"runs": runs, "cancelled_too": cancelled_too})
            revived, key_taken, after = revived + len(answer["revived"]), key_taken + len(answer["key_taken"]), ids[-1]
            left += len(answer["of_cancelled"])
        if len(ids) < AT_ONCE:
            return RetriedBatch(revived, key_taken, left, has_more=False)
    return RetriedBatch(revived, key_taken, left, has_more=True)
