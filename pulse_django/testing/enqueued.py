"""Assert that a job was enqueued. A failure shows the jobs that were enqueued instead."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pulse_django.backend import PulseBackend, new_job
from pulse_django.models import Job
from pulse_django.queue.database.sql_functions import aware
from pulse_django.queue.words.states import CLAIMABLE
from pulse_django.run.calls import checked, names_of
from pulse_django.run.codec import codec
from pulse_django.run.registry import registry
from pulse_django.shards.placement import routers_alias, shard_of_call

from .drain import arguments_of, is_shown_in_full

if TYPE_CHECKING:
    from pulse_django.queue.words.job_options import NewJob
    from pulse_django.run.registry import Task

MOST_SHOWN = 20
# A job's first instants are two readings of the server's clock in one statement.
CLOSE_ENOUGH = timedelta(seconds=1)

Said = dict[str, Any]


def assert_enqueued(task: Task, /, *args: Any, **kwargs: Any) -> Job:
    """Return the waiting job of this task with these arguments, or fail with a list of waiting jobs.

    Arguments are compared by the names of the function's parameters. Options of ``task.using(...)`` that differ from
    those of the task as it is declared are compared as well: queue, priority, ``run_after``, limits and idempotency
    key. A task as it is declared matches jobs with any options.

    Only the database to which the job would go is searched.
    """
    if not isinstance(task.get_backend(), PulseBackend):
        raise AssertionError(f"The backend {task.backend!r} is no PulseBackend: its jobs are not in Pulse's table.")
    given = checked(task, args, kwargs)
    alias = shard_of_call(task, *given)
    wanted = new_job(task, *given, alias)
    said = _said_by_using(wanted, alias)
    waiting = Job.objects.using(alias).filter(status__in=CLAIMABLE).order_by("id")
    called = _called(task, wanted.args, wanted.kwargs)
    alike = [job for job in waiting.filter(task=wanted.task) if _called(task, *codec().arguments_of(job)) == called]
    fitting: list[Job] = [job for job in alike if all(_fits(job, option, value) for option, value in said.items())]
    if fitting:
        return fitting[0]
    lines = [_line(job, wanted, said) for job in waiting[:MOST_SHOWN]]
    where = "" if alias == routers_alias() else f" in database {alias!r}"
    raise AssertionError(
        f"No waiting job {wanted.task} {arguments_of(wanted)}{_spelt(said)}{where}. Waiting are:\n"
        + ("\n".join(lines) or "  none")
    )


def _called(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return arguments by the names of the function's parameters, if they have one: f(1) and f(x=1) are one call."""
    names = names_of(task)
    return json.dumps([list(args[len(names) :]), {**dict(zip(names, args, strict=False)), **kwargs}], sort_keys=True)


def _said_by_using(wanted: NewJob, alias: str) -> Said:
    """Return the options of a job that are not those of its task as it is declared."""
    declared = registry.get(wanted.task)
    if declared is None:
        return {}
    plain = new_job(declared, (), {}, alias).by_column()
    return {option: value for option, value in wanted.by_column().items() if value != plain.get(option)}


def _fits(job: Job, option: str, value: Any) -> bool:
    has = _value_of(job, option)
    if isinstance(value, datetime):
        return bool(aware(has) == value)
    if option == "run_after" or (option == "expires" and value is not None):
        return has is not None and abs(has - job.created_at - (value or timedelta())) < CLOSE_ENOUGH
    if option == "meta" and value is not None:
        return bool(has == json.loads(value))
    return bool(has == (list(value or ()) if option == "tags" else value))


def _value_of(job: Job, option: str) -> Any:
    return getattr(job, {"run_after": "next_run_at", "expires": "expires_at"}.get(option, option))


def _line(job: Job, wanted: NewJob, said: Said) -> str:
    has = {option: _value_of(job, option) for option in said}
    line = f"  {job.task} {arguments_of(job)}{_spelt(has)}"
    if is_shown_in_full(job) or arguments_of(job) != arguments_of(wanted) or job.task != wanted.task:
        return line
    return f"{line} (its arguments may differ in what is masked)"


def _spelt(options: Said) -> str:
    return "".join(f" {option}={value!r}" for option, value in options.items())
