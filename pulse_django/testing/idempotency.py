"""Run a handler, let its worker die right before its report, run it again, and compare with one clean run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import models, router, transaction

from pulse_django.identity import Identity
from pulse_django.models import Job
from pulse_django.performing import perform
from pulse_django.runs import Run
from pulse_django.states import Status

from .clock import expire_lease, jump_to_next_run
from .drain import Ran, beat, run_job
from .jobs import fresh

if TYPE_CHECKING:
    from pulse_django.taskapi import Task

Row = tuple[tuple[str, str], ...]
Rows = Counter[tuple[str, Row]]
OUR_APP = "pulse_django"


def assert_idempotent(task: Task, /, *args: Any, ignore: Collection[str] = (), **kwargs: Any) -> None:
    """Fail, naming the rows that differ, if a run that is repeated after a crash leaves another database than one run.

    Everything happens in a transaction that is rolled back. Keys that the database chose, and fields that are set by
    ``auto_now``, are not compared; name others in ``ignore`` as "app.Model.field", or "result"
    for what the handler returns. Jobs that the handler enqueues are compared by task, arguments, queue and key.
    """
    with _rolled_back():
        result = _run_cleanly(task, args, kwargs)
        once = _rows(ignore)
    with _rolled_back():
        repeated_result = _run_with_a_crash(task, args, kwargs)
        twice = _rows(ignore)
    if result != repeated_result and "result" not in ignore:
        raise AssertionError(
            f"{task.module_path} is not idempotent. It returns {result!r}, repeated after a crash {repeated_result!r}."
        )
    if once != twice:
        raise AssertionError(_difference(task, once, twice))


def _run_cleanly(task: Task, args: Any, kwargs: Any) -> Any:
    ran = run_job(_rehearsed(task).enqueue(*args, **kwargs))
    return _completed(ran, "A clean run")


def _run_with_a_crash(task: Task, args: Any, kwargs: Any) -> Any:
    result = _rehearsed(task).enqueue(*args, **kwargs)
    [claim] = Job.objects.claim_these(Identity("crashing"), [int(result.id)])
    performed = perform(Run(claim, beat=beat))
    if performed.run.completed:
        # Its report was part of its own transaction: there is no moment between the two to die in.
        return fresh(claim.job_id).result
    expire_lease(claim.job_id)
    Job.objects.reap()
    jump_to_next_run(claim.job_id)
    return _completed(run_job(claim.job_id), "A run repeated after a crash")


def _rehearsed(task: Task) -> Task:
    """A task that may have one attempt only still needs two for a rehearsal."""
    if (getattr(task, "max_attempts", None) or 2) >= 2:
        return task
    rehearsed: Task = task.using(max_attempts=2)  # type: ignore[call-arg]  # only ours have the option
    return rehearsed


def _completed(ran: Ran, which: str) -> Any:
    job = fresh(ran.job_id)
    if ran.status != Status.COMPLETED:
        raise AssertionError(f"{which} of {ran.task} did not complete: {job.last_error or job.cancel_reason}")
    return job.result


@contextmanager
def _rolled_back() -> Iterator[None]:
    block = transaction.atomic(using=router.db_for_write(Job))
    block._from_testcase = True  # type: ignore[attr-defined]  # the mark by which verbs know a test's transaction
    with block:
        yield
        transaction.set_rollback(True, using=router.db_for_write(Job))


def _rows(ignore: Collection[str]) -> Rows:
    rows: Rows = Counter()
    numbers = _Numbers()
    for job in Job.objects.filter(parent__isnull=False):
        facts = {
            "task": job.task,
            "args": job.args,
            "kwargs": job.kwargs,
            "queue": job.queue,
            "key": job.idempotency_key,
        }
        rows["a job it enqueued", tuple((name, repr(value)) for name, value in facts.items())] += 1
    for model in apps.get_models(include_auto_created=True):
        if model._meta.app_label != OUR_APP and model._meta.managed and not model._meta.proxy:
            for row in model._base_manager.order_by("pk").values():
                rows[model._meta.label, _comparable(model, row, ignore, numbers)] += 1
    return rows


class _Numbers:
    """Keys that the database chose differ from run to run: what counts is which row of its table they name."""

    def __init__(self) -> None:
        self._known: dict[str, dict[Any, int]] = {}

    def of(self, model: type[models.Model], pk: Any) -> str:
        if (known := self._known.get(model._meta.label)) is None:
            pks = model._base_manager.order_by("pk").values_list("pk", flat=True)
            known = self._known[model._meta.label] = {pk: number for number, pk in enumerate(pks, start=1)}
        return f"#{known.get(pk, pk)}"


def _comparable(model: type[models.Model], row: dict[str, Any], ignore: Collection[str], numbers: _Numbers) -> Row:
    values = []
    for field in model._meta.concrete_fields:
        value = row[field.attname]
        if getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False):
            continue
        if f"{model._meta.label}.{field.name}" in ignore or isinstance(field, models.AutoField):
            continue
        if value is not None and isinstance(field, models.ForeignKey):
            target = field.related_model
            if isinstance(target, type) and isinstance(target._meta.pk, models.AutoField):
                value = numbers.of(target, value)
        values.append((field.name, repr(value)))
    return tuple(values)


def _difference(task: Task, once: Rows, twice: Rows) -> str:
    lines = [f"{task.module_path} is not idempotent. A run repeated after a crash leaves, beside one clean run:"]
    lines += [f"  + {count} x {label} {dict(row)}" for (label, row), count in (twice - once).items()]
    lines += [f"  - {count} x {label} {dict(row)}" for (label, row), count in (once - twice).items()]
    return "\n".join(lines)
