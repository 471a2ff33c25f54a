"""The rule of amendments, for the judge: the arguments of a job change only while it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.checker import History, Verdict

WAITING = ("PENDING", "RETRYING")


def judge(history: History, verdict: Verdict) -> None:
    for change in history.changes:
        before, after = change.before, change.after
        if before is None or after is None or before.args == after.args:
            continue
        verdict.counts["changes of arguments"] += 1
        if before.status not in WAITING or after.status not in WAITING:
            says = f"{before.args} became {after.args} while {before.status} became {after.status}"
            verdict.break_("arguments change only while a job waits", change.job, says)
