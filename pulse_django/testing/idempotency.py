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

from .clock import expire_lease, jump_to_next_run
from .drain import beat, run_job
from .jobs import fresh

if TYPE_CHECKING:
    from pulse_django.taskapi import Task

Row = tuple[tuple[str, str], ...]
Rows = Counter[tuple[str, Row]]
OUR_APP = "pulse_django"


def assert_idempotent(task: Task, *args: Any, ignore: Collection[str] = (), **kwargs: Any) -> None:
    """Fail, naming the rows that differ, if a run that is repeated after a crash leaves another database than one run.

    Everything happens in a transaction that is rolled back. Keys that the database chose, and fields that are set by
    ``auto_now``, are not compared; name others in ``ignore`` as "app.Model.field".
    """
    with _rolled_back():
        _run_cleanly(task, args, kwargs)
        once = _rows(ignore)
    with _rolled_back():
        _run_with_a_crash(task, args, kwargs)
        twice = _rows(ignore)
    if once != twice:
        raise AssertionError(_difference(task, once, twice))


def _run_cleanly(task: Task, args: Any, kwargs: Any) -> None:
    ran = run_job(task.enqueue(*args, **kwargs))
    if not ran.status.is_terminal or fresh(ran.job_id).last_error:
        raise AssertionError(f"A clean run of {ran.task} did not complete: {fresh(ran.job_id).last_error}")


def _run_with_a_crash(task: Task, args: Any, kwargs: Any) -> None:
    result = task.enqueue(*args, **kwargs)
    [claim] = Job.objects.claim_these(Identity("crashing"), [int(result.id)])
    performed = perform(Run(claim, beat=beat))
    if performed.run.completed:
        return  # its report was part of its own transaction: there is no moment between the two to die in
    expire_lease(claim.job_id)
    Job.objects.reap()
    jump_to_next_run(claim.job_id)
    run_job(claim.job_id)


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
    for model in apps.get_models():
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
