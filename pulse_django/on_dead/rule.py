"""Which tasks can be hooks."""

from __future__ import annotations

from typing import Any

from pulse_django.run.calls import misfit
from pulse_django.run.registry import GenericTask

# What depends on the call, or on the time of it. The database makes the job of a hook, and knows the row alone.
_OF_CALLS = ("unique", "idempotency_key", "limit_key", "fair_by", "expires", "run_after", "runs_in", "database")


def why_no_hook(hook: Any) -> str:
    """Say why this cannot be the hook of a task. Empty: it can be."""
    if not isinstance(hook, GenericTask):
        return f"{hook!r} is not a task. Write on_dead=a_task, with a function that @task decorates"
    if getattr(hook, "chunk", None) or misfit(hook, ({},), {}):
        return f"{hook.func.__name__} must take one argument: the facts about the dead job"
    for field in _OF_CALLS:
        if getattr(hook, field, None) is not None:
            option = "run_after" if field == "runs_in" else field
            return f"{hook.func.__name__} has {option}, which is not possible for a hook. Use another task"
    return ""
