"""Options and attributes of Celery and other queues, and the line to write with Pulse instead."""

from __future__ import annotations

from argparse import Action, ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

# Options of tasks and calls: the option that is meant, and the line. ``{given}`` is the given value.
OPTIONS = {
    "bind": ("takes_context", "takes_context=True, and context instead of self"),
    "autoretry_for": ("retry", "retry=retry_on({given})"),
    **dict.fromkeys(("dont_autoretry_for", "throws"), ("retry", "retry=retry_unless({given})")),
    "retry_backoff": ("retry", "retry=RetryPolicy(backoff=Backoff.exponential())"),
    "retry_backoff_max": ("retry", "retry=RetryPolicy(backoff=Backoff.exponential(cap={given}))"),
    "retry_kwargs": ("max_attempts", "max_attempts=..., and retry=RetryPolicy(backoff=Backoff.fixed(...))"),
    "default_retry_delay": ("retry", "retry=RetryPolicy(backoff=Backoff.fixed({given}))"),
    **dict.fromkeys(("max_retries", "retries"), ("max_attempts", "max_attempts={one_more}")),
    "acks_late": ("", "nothing. A job is done when its run has ended, never before"),
    "reject_on_worker_lost": ("", "nothing. The job of a lost worker runs again"),
    "base": ("on_dead", 'on_dead=a_task, or name a function in PULSE["MIDDLEWARE"]'),
    "link": ("", "chain(this.prepare(...), that.prepare(...)).enqueue() instead"),
    "track_started": ("", "nothing. The result of a job says when it started"),
    "serializer": ("", "nothing. Arguments and results are JSON"),
    **dict.fromkeys(("link_error", "on_failure"), ("on_dead", "on_dead=a_task")),
    "ignore_result": ("", "nothing. A function that returns None stores no result"),
    "soft_time_limit": ("timeout", "timeout={given}"),
    "time_limit": ("isolation", "timeout={given}, isolation='process'"),
    "rate_limit": ("limit", "limit=Limit(rate=Rate.parse({given}))"),
    "run_every": ("schedule", "schedule=Every({given})"),
    "queue": ("queue_name", "queue_name={given}"),
    **dict.fromkeys(("countdown", "delay", "eta"), ("run_after", "run_after={given}")),
    "task_id": ("idempotency_key", "idempotency_key={given}"),
}

# Attributes, by the object that they are read from. ``{0}`` is that object.
OF_TASKS = {
    "delay": "{0.func.__name__}.enqueue(...)",
    "apply_async": "{0.func.__name__}.using(run_after=..., queue_name=..., priority=...).enqueue(...)",
    **dict.fromkeys(("apply", "run"), "{0.func.__name__}.call(...)"),
    **dict.fromkeys(("s", "si", "signature", "subtask"), "{0.func.__name__}.prepare(...)"),
    "AsyncResult": "{0.func.__name__}.get_result(...)",
    **dict.fromkeys(("map", "starmap"), "enqueue_many({0.func.__name__}, [(first,), (second,)])"),
    "chunks": "enqueue_many({0.func.__name__}, [...]), or @task(chunk=100) for a handler of many jobs",
    "update_state": "@task(takes_context=True), then context.progress(done, total)",
}
OF_CALLS = dict.fromkeys(("delay", "apply_async"), ".enqueue()")
OF_CONTEXTS = {
    "retry": "raise RetryLater(delay), or let the exception out",
    "request": "context.job_id, context.attempt, context.task_result",
    "update_state": "context.progress(done, total)",
    "retries": "context.attempt - 1",
}
OF_RESULTS = {
    "get": "result.wait(timeout).return_value",
    "result": "result.refresh(), then result.return_value",
    "ready": "result.refresh(), then result.is_finished",
    "state": "result.refresh(), then result.status",
    "successful": "result.refresh(), then result.status == TaskResultStatus.SUCCESSFUL",
    "failed": "result.refresh(), then result.status == TaskResultStatus.FAILED",
    "task_id": "result.id",
    "revoke": "pulse_django.cancel(result.id)",
    "info": "pulse_django.progress(result.id), or result.refresh() and result.return_value",
    "children": "pulse_django.get(result.id).children.all()",
}
OF_BATCHES = {
    "join": "a last job that needs the others, and reads context.results",
    **dict.fromkeys(("ready", "successful", "failed", "completed_count"), "batch.progress()"),
    "children": "batch.jobs",
    "revoke": "batch.cancel()",
}
OF_IMPORTS = {
    **dict.fromkeys(("shared_task", "Task"), "from pulse_django import task"),
    "crontab": 'from pulse_django import Cron, then @task(schedule=Cron("0 3 * * *"))',
    "AsyncResult": "the_task.get_result(id)",
}
# Flags of ``celery worker`` whose names no command of Pulse or Django has.
OF_WORKERS = {
    "-Q": "write --queues {0}",
    "-c": "write --processes {0} --concurrency 1, or --concurrency {0} for threads",
    "-n": "write --name {0}",
    "-l": "set the level in LOGGING",
    "-B": "leave it out. There is no beat",
}


def says_instead(lines: Mapping[str, str]) -> Callable[[Any, str], Any]:
    """Return a ``__getattr__`` for a class. Hide it from type checkers, which would then accept every name."""

    def refuse(asked: Any, name: str) -> Any:
        if name in lines:
            raise AttributeError(f"{name} is Celery's: write {lines[name].format(asked)}")
        return object.__getattribute__(asked, name)  # raise Python's own error, or that of a property

    return refuse


def no_pipe(this: object, that: object) -> NoReturn:
    raise TypeError("| is Celery's: write chain(this, that).enqueue()")


def no_call(line: str) -> Callable[..., NoReturn]:
    """Return a ``__call__`` for a class whose objects Celery calls."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"this call is Celery's: write {line}")

    return refuse


class FlagInstead(Action):
    """A flag that is refused with the one to write."""

    def __call__(self, parser: ArgumentParser, _: object, value: Any, flag: str | None = None) -> NoReturn:
        parser.error(f"{flag} is Celery's: {OF_WORKERS[f'{flag}'].format(value or '...')}")


def option_instead(name: str, given: Any) -> tuple[str, str] | None:
    """Return the option that is meant and the line to write, or None."""
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
