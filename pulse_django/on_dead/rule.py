"""Check that a task can be a hook of dead letters."""

from __future__ import annotations

from typing import Any

from pulse_django.run.calls import misfit
from pulse_django.run.registry import Task

# Options that depend on the call or its time, and a hook of the hook. The database creates the job of a hook, and knows
# only the row.
_NOT_OF_HOOKS = (
    *("unique", "idempotency_key", "limit_key", "fair_by", "expires", "run_after", "runs_in", "database", "on_dead"),
)


def why_no_hook(hook: Any) -> str:
    """Return why this cannot be the hook of a task; empty if it can."""
    if not isinstance(hook, Task):
        return f"{hook!r} is not a task. Write on_dead=a_task, with a function that @task decorates"
    if getattr(hook, "chunk", None) or misfit(hook, ({},), {}):
        return f"{hook.func.__name__} must take one argument: the facts about the dead job"
    for field in _NOT_OF_HOOKS:
        if getattr(hook, field, None) is not None:
            option = "run_after" if field == "runs_in" else field
            return f"{hook.func.__name__} has {option}, which is not possible for a hook. Use another task"
    return ""
