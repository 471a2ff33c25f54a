"""The actions of operators on a batch: retry its dead letters."""

from __future__ import annotations

from collections import Counter

from pulse_django.operations.acts import ACTS

from .reading import dead_letters_in

AT_ONCE = 1_000  # dead letters in one statement
MOST_ROUNDS = 10


def retry_dead_letters(
    alias: str, batch_id: int, *, runs: int = 1, cancelled_too: bool = False
) -> tuple[Counter[str], bool]:
    """Retry the dead letters of a batch and of those within it: at most ten thousand of them.

    Return the number of jobs for each result of the act, and whether there are more.
    """
    act, counts, after = ACTS["retry"], Counter[str](), 0
    for _ in range(MOST_ROUNDS):
        ids = dead_letters_in(alias, batch_id, after=after, most=AT_ONCE)
        answer = act.do(alias, ids, {"runs": runs, "cancelled_too": cancelled_too}) if ids else {}
        counts += Counter(act.counts(answer, len(ids)))
        if len(ids) < AT_ONCE:
            return counts, False
        after = ids[-1]
    return counts, True
