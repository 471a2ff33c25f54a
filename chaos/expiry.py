"""The rule of jobs that expire, for the judge: no job that has never been claimed starts after that instant."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.checker import History, Verdict

# A claim compares with the instant at which its statement arrived, and writes the one at which it got to the row.
SLACK = timedelta(seconds=2)


def judge(history: History, verdict: Verdict) -> None:
    for change in history.changes:
        before, after = change.before, change.after
        if before is None or after is None or before.attempts or before.expires_at is None:
            continue
        verdict.counts["expired"] += after.status == "CANCELLED"
        if after.attempts and after.started_at is not None and after.started_at > before.expires_at + SLACK:
            verdict.break_("no expired job starts", change.job, f"at {after.started_at}, not {before.expires_at}")
