"""Rules for the judge: each death has one hook, and what runs at most once begins again for an operator alone.

The server refuses the hook of one task, and is too slow for that of another. Their jobs die without it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.checker import History, Verdict

HOOK, ONCE = "chaos.note_death", "chaos.once"
WITH_HOOK = (ONCE, "chaos.failing", "chaos.poison")
WITH_SLOW_HOOK = "chaos.dies_with_slow_hook"
WITHOUT_HOOK = ("chaos.dies_with_refused_hook", WITH_SLOW_HOOK)
FAILING_HOOKS = (
    """
CREATE FUNCTION chaos_hook() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.task = 'chaos.refused_hook' THEN
        RAISE 'refused' USING ERRCODE = '23514';
    END IF;
    PERFORM pg_catalog.pg_sleep(5);
    RETURN NEW;
END
$$
""",
    """
CREATE TRIGGER chaos_hook BEFORE INSERT ON pulse_django_job_hot FOR EACH ROW
    WHEN (NEW.task IN ('chaos.refused_hook', 'chaos.slow_hook')) EXECUTE FUNCTION chaos_hook()
""",
)


def judge(history: History, verdict: Verdict) -> None:
    deaths: Counter[int] = Counter()
    hooks: Counter[int] = Counter()
    allowed: Counter[int] = Counter()  # begins
    for change in history.changes:
        before, after = change.before, change.after
        if after is None:
            continue
        if after.task == HOOK and change.op == "INSERT":
            hooks[int(after.args[0]["job_id"])] += 1
        if after.task in WITH_HOOK and before is not None and before.status != after.status:
            deaths[change.job] += after.status == "DEAD_LETTERED"
        if after.task == ONCE:
            allowed[change.job] += before is None or (before.status, after.status) == ("DEAD_LETTERED", "PENDING")
        dies = after.task in WITHOUT_HOOK and before is not None and before.status != after.status == "DEAD_LETTERED"
        verdict.counts["deaths whose hook fails"] += dies
    verdict.counts["hooks"] = hooks.total()
    for job in sorted((deaths - hooks) | (hooks - deaths)):
        verdict.break_("each death has one hook", job, f"{deaths[job]} deaths, {hooks[job]} hooks")
    begun = Counter(one.job for one in history.executions if one.job in allowed)
    for job in sorted(begun - allowed):
        verdict.break_("at most once", job, f"began {begun[job]} times, {allowed[job]} were allowed")
