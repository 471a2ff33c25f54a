"""What people write who come from Celery or another queue, and the line to write here instead."""

from __future__ import annotations

from typing import Any

# Options of tasks and calls: the option that is meant, and the line. ``{given}`` is what was given.
OPTIONS = {
    "bind": ("takes_context", "takes_context=True, and context instead of self"),
    "autoretry_for": ("retry", "retry=retry_on({given})"),
    "dont_autoretry_for": ("retry", "retry=retry_unless({given})"),
    "retry_backoff": ("retry", "retry=RetryPolicy(backoff=Backoff.exponential())"),
    "default_retry_delay": ("retry", "retry=RetryPolicy(backoff=Backoff.fixed({given}))"),
    "max_retries": ("max_attempts", "max_attempts={one_more}"),
    "retries": ("max_attempts", "max_attempts={one_more}"),
    "acks_late": ("", "nothing. A job is done when its run has ended, never before"),
    "reject_on_worker_lost": ("", "nothing. The job of a lost worker runs again"),
    "base": ("on_dead", 'on_dead=a_task, or name a function in PULSE["MIDDLEWARE"]'),
    "throws": ("retry", "retry=retry_unless({given})"),
    "link": ("", "chain(this.prepare(...), that.prepare(...)).enqueue() instead"),
    "serializer": ("", "nothing. Arguments and results are JSON"),
    "link_error": ("on_dead", "on_dead=a_task"),
    "on_failure": ("on_dead", "on_dead=a_task"),
    "ignore_result": ("", "nothing. A function that returns None stores no result"),
    "soft_time_limit": ("timeout", "timeout={given}"),
    "time_limit": ("isolation", "timeout={given}, isolation='process'"),
    "rate_limit": ("limit", "limit=Limit(rate=Rate.parse({given}))"),
    "queue": ("queue_name", "queue_name={given}"),
    "countdown": ("run_after", "run_after={given}"),
    "delay": ("run_after", "run_after={given}"),
    "eta": ("run_after", "run_after={given}"),
    "task_id": ("idempotency_key", "idempotency_key={given}"),
}

# Methods of tasks.
METHODS = {
    "delay": "{task}.enqueue(...)",
    "apply_async": "{task}.using(run_after=..., queue_name=..., priority=...).enqueue(...)",
    **dict.fromkeys(("apply", "run"), "{task}.call(...)"),
    **dict.fromkeys(("s", "si", "signature", "subtask"), "{task}.prepare(...)"),
}


def option_instead(name: str, given: Any) -> tuple[str, str] | None:
    """Return the option that is meant, and the line to write."""
    if name not in OPTIONS:
        return None
    option, line = OPTIONS[name]
    return option, line.format(given=_spelt(given), one_more=given + 1 if type(given) is int else "...")


def _spelt(given: Any) -> str:
    if isinstance(given, list | tuple):
        return ", ".join(map(_spelt, given))
    if isinstance(given, type):
        return given.__name__
    return repr(given) if isinstance(given, int | float | str) else "..."
