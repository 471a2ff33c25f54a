"""No argument of a public call breaks the transaction of its caller: what cannot be is refused before any SQL."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest
from django.db import Error, connection, transaction
from django.test.utils import CaptureQueriesContext

import pulse_django
from pulse_django import Batch, Breaker, Workflow, api
from pulse_django.backend import PulseBackend
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Job, Limiter, Pause, Schedule
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_of_share
from pulse_django.queue.words.states import Status
from pulse_django.run.fencing import fence
from pulse_django.run.job_progress import progress_of, progress_token
from pulse_django.schedules.timings import Every
from pulse_django.workflows import rewind
from pulse_django.workflows.batches import event_link, read_link
from testproject.shop import tasks
from tests.factories import make_job
from tests.faults import all_faults

pytestmark = pytest.mark.usefixtures("pulse_db")

HOURLY = Every(timedelta(hours=1))
LONG = "x" * 100_000
ODD: list[Any] = [None, "", "x", LONG, "a\0b", "\ud800", b"", b"x", 0, 5, -1, 10**30, True, 1.5]
ODD += [float("nan"), float("inf"), timedelta.max, timedelta.min, timedelta(), timedelta(microseconds=1)]
ODD += [datetime(1, 1, 1), datetime.max.replace(tzinfo=UTC)]  # noqa: DTZ001 - a naive one is odd
ODD += [[], {}, [None], ["a\0b"], [10**30], {"x": 1}, {1: "\0"}, object()]

# In the API, and no call: types, declarations, values and exceptions. Those of handlers need a run.
NO_CALLS = {name for name in pulse_django.__all__ if isinstance(getattr(pulse_django, name), type)}
NO_CALLS |= {
    "NO_RETRIES",
    "UNLIMITED",
    "retry_on",
    "retry_unless",
    "task",
    "read_retry_after",
    "chain",
    "group",
    "chord",
    "fenced_update",
}


class Token:
    token = 5


def calls() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Every call of the API, with arguments that are right. ``args`` and ``kwargs`` stand for * and **."""
    job, dead = make_job(), make_job(Status.DEAD_LETTERED)
    batch = Batch.open("batch")
    schedule = Schedule.objects.create(name="odd", task=tasks.add, args=[1, 2], timing=HOURLY)
    limiters, paused, jobs, schedules = Limiter.objects, Pause.objects, Job.objects, Schedule.objects
    ids, lane = {"args": [job.pk]}, lane_of_share("7")
    breaker = Breaker(failures=3, window=timedelta(minutes=1), pause_for=timedelta(minutes=1))
    return {
        "amend": (pulse_django.amend, {"job_id": job.pk, "args": [1, 2]}),
        "cancel": (pulse_django.cancel, ids),
        "enqueue_many": (pulse_django.enqueue_many, {"task": tasks.add, "arguments": [(1, 2)]}),
        "event_link": (event_link, {"name": "x"}),
        "read_link": (read_link, {"token": "x"}),
        "explain": (pulse_django.explain, {"job_id": job.pk}),
        "fence": (fence, {"resource": "x", "context": Token()}),
        "get": (pulse_django.get, {"job_id": job.pk}),
        "jobs": (_jobs, {}),
        "pause_queue": (pulse_django.pause_queue, {"name": "q"}),
        "pause_task": (pulse_django.pause_task, {"task": "t"}),
        "progress": (pulse_django.progress, {"job_id": job.pk}),
        "progress_of": (progress_of, {"job_id": job.pk}),
        "progress_token": (progress_token, {"job": job.pk}),
        "release": (pulse_django.release, ids),
        "result_of_public_id": (pulse_django.result_of_public_id, {"public_id": tasks.add.enqueue(1, 2).public_id}),
        "resume_queue": (pulse_django.resume_queue, {"name": "q"}),
        "resume_task": (pulse_django.resume_task, {"task": "t"}),
        "retry": (pulse_django.retry, {"args": [dead.pk]}),
        "send_event": (pulse_django.send_event, {"name": "x"}),
        "shard_of": (pulse_django.shard_of, {"task": tasks.add, "args": [1, 2]}),
        "enqueue": (tasks.echo.enqueue, {"args": [1]}),
        "using": (_enqueued_with, {}),
        "get_result": (PulseBackend("default", {}).get_result, {"result_id": str(job.pk)}),
        "preview": (rewind.preview, {"job_id": dead.pk, "step": "s"}),
        "retry_from": (rewind.retry_from, {"job_id": dead.pk, "step": "s"}),
        "fork": (rewind.fork, {"job_id": dead.pk, "step": "s"}),
        "Batch": (lambda id, alias: Batch(id, alias).progress(), {"id": batch.id, "alias": "default"}),
        "Batch row": (lambda id, alias: Batch(id, alias).row, {"id": batch.id, "alias": "default"}),
        "Batch cancel": (lambda id, alias: Batch(id, alias).cancel(), {"id": batch.id, "alias": "default"}),
        "Batch context": (lambda id, alias: Batch(id, alias).context, {"id": batch.id, "alias": "default"}),
        "Batch jobs": (lambda id, alias: list(Batch(id, alias).jobs), {"id": batch.id, "alias": "default"}),
        "Batch resume": (lambda id, alias: Batch(id, alias).resume(), {"id": batch.id, "alias": "default"}),
        "Batch pause": (lambda id, alias: Batch(id, alias).pause(), {"id": batch.id, "alias": "default"}),
        "Batch.open": (Batch.open, {"name": "x"}),
        "Batch.open within": (lambda id: Batch.open("x", parent=Batch(id, "default")), {"id": batch.id}),
        "Batch.get": (Batch.get, {"batch_id": batch.id}),
        "Batch.add": (batch.add, {"call": tasks.add.prepare(1, 2)}),
        "Batch.add_many": (batch.add_many, {"task": tasks.add, "arguments": [(1, 2)]}),
        "Batch.cancel": (batch.cancel, {}),
        "Batch.seal": (batch.seal, {}),
        "Workflow": (_workflow, {}),
        "Limiter.override": (limiters.override, {"name": "x", "numbers": {"max_running": 1}}),
        "Limiter.pause": (limiters.pause, {"name": "x", "duration": timedelta(hours=1)}),
        "Limiter.resume": (limiters.resume, {"name": "x"}),
        "Limiter.failed": (limiters.failed, {"name": "x", "breaker": breaker, "reason": "x"}),
        "a pause of a key": (paused.pause, {"lane_key": lane}),
        "its end": (paused.resume, {"lane_key": lane}),
        "a pause of a task": (paused.pause, {"args": ["t"]}),
        "the end of it": (paused.resume, {"args": ["t"]}),
        "Schedule.create": (_schedule, {}),
        "Schedule.pause": (schedules.pause, {"args": [schedule.pk]}),
        "Schedule.resume": (schedules.resume, {"args": [schedule.pk]}),
        "Schedule.change": (schedules.change, {"schedule_id": schedule.pk, "fields": {"priority": 1}}),
        "Schedule.follow_code": (schedules.follow_code, {"schedule_id": schedule.pk}),
        "NewJob": (_new_job, {}),
        "Job.request_cancel": (jobs.request_cancel, {"job_ids": [job.pk]}),
        "Job.reschedule": (jobs.reschedule, {"job_ids": [job.pk]}),
        "Job.move": (jobs.move, {"job_ids": [job.pk], "queue": "q"}),
        "Job.retry": (jobs.retry, {"job_ids": [dead.pk]}),
        "tagged": (lambda tag: list(api.jobs().tagged(tag)), {"tag": "x"}),
        "found_by": (lambda terms: list(api.jobs().found_by(terms)), {"terms": ["x"]}),
    }


def _enqueued_with(
    queue_name: Any = "q", priority: Any = 0, run_after: Any = None, expires: Any = None, tags: Any = (),
    meta: Any = None, database: Any = None, idempotency_key: Any = None, max_attempts: Any = None,
) -> Any:  # fmt: skip
    given = {name: value for name, value in locals().items() if value is not None}
    return tasks.echo.using(**given).enqueue(1)


def _jobs(status: Any = None, queue: Any = None, task: Any = None, using: Any = None) -> list[Job]:
    return list(pulse_django.jobs(status=status, queue=queue, task=task, using=using))


def _workflow(
    name: Any = "x", context: Any = None, on_need_failed: Any = "wait", node: Any = "n", needs: Any = ()
) -> Any:
    return (
        Workflow(name, context=context, on_need_failed=on_need_failed)
        .add(node, tasks.add.prepare(1, 2), needs=needs)
        .enqueue()
    )


def _new_job(
    task: Any = "t", args: Any = (), kwargs: Any = None, queue: Any = "q", priority: Any = 0, run_after: Any = None,
    parent_id: Any = None, expires: Any = None, tags: Any = (),
) -> Any:  # fmt: skip
    """What Pulse itself spells is left out: masks, traces, labels and keys of lanes."""
    given = {name: value for name, value in locals().items() if value is not None}
    return Job.objects.enqueue(NewJob(**given))


def _schedule(
    name: Any = "new", task: Any = tasks.add, kwargs: Any = None, queue: Any = None, priority: Any = 0,
    timing: Any = HOURLY, overlap: Any = "skip", missed: Any = "one",
) -> Any:  # fmt: skip
    given = {name: value for name, value in locals().items() if value is not None}
    return Schedule.objects.create(args=[1, 2], **given)


def variants(call: Callable[..., Any], right: dict[str, Any]) -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    """Yield the call once for each parameter and odd value, which takes the place of the right one."""
    parameters = inspect.signature(call).parameters.values()
    takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    for one, odd in product(parameters, ODD):
        if one.kind is one.VAR_KEYWORD:
            continue
        named = dict(right)
        positional = named.pop("args", []) if takes_any else []
        if one.kind is one.VAR_POSITIONAL:
            positional = [odd]
        elif one.kind is one.POSITIONAL_ONLY:
            positional, _ = [odd, *positional], named.pop(one.name)
        else:
            named[one.name] = odd
        first = [
            named.pop(each.name) for each in parameters if each.kind is each.POSITIONAL_ONLY and each.name in named
        ]
        yield one.name, odd, partial(call, *first, *positional, **named)


def test_every_call_of_the_package_is_walked() -> None:
    assert set(pulse_django.__all__) - NO_CALLS - calls().keys() == set()


def test_what_cannot_be_is_refused_before_any_sql() -> None:
    pause, long = Limiter.objects.pause, timedelta(days=999_999)
    examples: dict[str, Callable[[], object]] = {
        "by=None": lambda: pulse_django.send_event("x", by=None),  # type: ignore[arg-type]
        "a long by": lambda: pulse_django.send_event("x", by=LONG),
        "a number for a queue": lambda: pulse_django.resume_queue(5),  # type: ignore[arg-type]
        "a text for a batch": lambda: Batch("a", "default").progress(),  # type: ignore[arg-type]
        "no limit": lambda: Limiter.objects.override(None, {}),  # type: ignore[arg-type]
        "no numbers of a limit": lambda: Limiter.objects.override("x", {"runs": 5}),
        "closed for too long": lambda: pause("x", duration=long),
        "closed for a text": lambda: pause("x", duration="5"),  # type: ignore[arg-type]
        "closed for less than nothing": lambda: pause("x", duration=timedelta(seconds=-1)),
        "no database": lambda: pulse_django.enqueue_many(tasks.add, [(1, 2)], using=""),
    }
    with all_faults() as about:
        for name, example in examples.items():
            with about(name):
                with CaptureQueriesContext(connection) as sent, pytest.raises(InvalidJob):
                    example()
                assert len(sent) == 0


@pytest.mark.alters_statements
def test_no_odd_value_breaks_the_transaction_of_the_caller() -> None:
    walked = 0
    with all_faults() as about:
        for name, (call, right) in calls().items():
            for parameter, odd, attempt in variants(call, right):
                walked += 1
                with about(f"{name}({parameter}={ascii(odd)[:40]})"), transaction.atomic():
                    refused: Exception | None = None
                    try:
                        attempt()
                    except Exception as error:
                        refused = error
                    try:
                        with connection.cursor() as cursor:
                            cursor.execute("SELECT 1")
                    finally:
                        transaction.set_rollback(True)
                    assert not isinstance(refused, Error), refused
                    if parameter == "using" and odd is not None:
                        assert refused is not None, "no database has that name"
    assert walked > 3_000
