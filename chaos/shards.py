"""The history of several shards as one, and the rules of jobs that move between them, for the judge. Pure, as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.checker import Verdict
    from chaos.witness import Change


def joined(histories: Iterable[Sequence[Change]]) -> list[Change]:
    """Put the changes of all shards in the order of the clock that their servers share.

    A row that is deleted, and inserted later on, was moved: that is one change of the job.
    """
    found: list[Change | None] = []
    left: dict[int, int] = {}  # where in ``found`` the deletion of a job is
    for change in sorted((change for one in histories for change in one), key=lambda change: change.at):
        if change.op == "DELETE":
            left[change.job] = len(found)
        elif change.op == "INSERT" and change.job in left:
            place = left.pop(change.job)
            if (gone := found[place]) is not None:
                change = replace(change, op="MOVE", before=gone.before)
            found[place] = None
        found.append(change)
    return [change for change in found if change is not None]


def judge(job: int, changes: Sequence[Change], verdict: Verdict) -> None:
    """A job is in one shard at a time, and a move changes nothing but that."""
    shard = ""
    for change in changes:
        if change.op == "INSERT" and shard:
            verdict.break_("a job is in one shard", job, f"in {shard}, and inserted in {change.shard}")
        if change.op == "UPDATE" and shard not in ("", change.shard):
            verdict.break_("a job is in one shard", job, f"in {shard}, and changed in {change.shard}")
        if change.op == "MOVE":
            verdict.counts["moves"] += 1
            if change.before != change.after:
                verdict.break_("a move changes nothing", job, f"{change.before} became {change.after}")
        shard = "" if change.op == "DELETE" else change.shard
