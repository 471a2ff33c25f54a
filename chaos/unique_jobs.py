"""The rules of unique jobs, for the judge: who holds a key, when it runs, and whether the last caller's wish is met.

Pure, as the judge is. Which task has which rule is written down here once more.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from chaos.witness import Row

if TYPE_CHECKING:
    from chaos.checker import History, Verdict

OVER = ("COMPLETED", "DEAD_LETTERED", "CANCELLED")
UNTIL_END, UNTIL_START = ("chaos.kept",), ("chaos.gathered", "chaos.follower")
GATHERED, FOLLOWER, PERIODIC = "chaos.gathered", "chaos.follower", "chaos.periodic"
LONGEST, PERIOD = timedelta(seconds=2), timedelta(seconds=1)
# The instants of a job are read one after the other.
ROUNDING = timedelta(milliseconds=10)

Key = tuple[str, str]


def judge(history: History, verdict: Verdict) -> None:
    _one_holder(history, verdict)
    _no_unique_job_is_postponed_too_long(history, verdict)
    _one_in_a_period(history, verdict)
    _last_wishes_are_run(history, verdict)
    verdict.counts["wishes"] = len(history.wishes)


def _one_holder(history: History, verdict: Verdict) -> None:
    holders: dict[Key, set[int]] = defaultdict(set)
    for change in history.changes:
        row = change.after or change.before
        if row is None or row.task not in UNTIL_END + UNTIL_START:
            continue
        held = holders[row.task, row.key]
        if change.after is not None and _holds(change.after):
            held.add(change.job)
        else:
            held.discard(change.job)
        if len(held) > 1:
            verdict.break_("one holder of a key", change.job, f"{row.task} {row.key}: {sorted(held)} at {change.at}")


def _holds(row: Row) -> bool:
    return row.status not in OVER and (row.task in UNTIL_END or row.attempts == 0)


def _no_unique_job_is_postponed_too_long(history: History, verdict: Verdict) -> None:
    for change in history.changes:
        row = change.after
        if row is None or row.task != GATHERED or row.attempts or row.next_run_at is None or row.created_at is None:
            continue
        if (wait := row.next_run_at - row.created_at) > LONGEST + ROUNDING:
            verdict.break_(
                "no unique job is postponed for longer than allowed", change.job, f"by {wait.total_seconds():.1f} s"
            )


def _one_in_a_period(history: History, verdict: Verdict) -> None:
    created: dict[str, dict[int, datetime]] = defaultdict(dict)
    for change in history.changes:
        if change.after is not None and change.after.task == PERIODIC and change.after.created_at is not None:
            created[change.after.key][change.job] = change.after.created_at
    for key, jobs in created.items():
        for (_, before), (job, after) in pairwise(sorted(jobs.items(), key=lambda one: one[1])):
            if after - before < PERIOD - ROUNDING:
                verdict.break_("one in a period", job, f"{key}: {(after - before).total_seconds():.3f} s after another")


def _last_wishes_are_run(history: History, verdict: Verdict) -> None:
    """Of each job: what its last caller committed was given to it, or was there to be seen when it began."""
    done: dict[int, set[int]] = defaultdict(set)
    for one in history.executions:
        if one.wish is not None:
            done[one.job].add(one.wish)
    for job, wish in {wish.job: wish for wish in history.wishes}.items():
        changes, seen = history.changes_of.get(job, []), done[job]
        if any(change.after is not None and change.after.cancel_requested_at for change in changes):
            continue  # the job that would have run it was cancelled
        given, saw = wish.wish in seen, wish.wish <= max(seen, default=0)
        if (wish.task == GATHERED and not given) or (wish.task == FOLLOWER and not saw):
            says = f"{wish.task} {wish.key}: {wish.wish}, done: {sorted(seen)[-3:]}"
            verdict.break_("the last wish is run", job, says)
