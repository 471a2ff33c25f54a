"""Run a handler, let its worker die before the report, run it again, and compare the database with a clean run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Set
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from django.apps import apps
from django.db import connections, models, router

from pulse_django.encryption.values import MASK, hides_result
from pulse_django.models import Job
from pulse_django.queue.words.masks import RESULT
from pulse_django.queue.words.states import Status
from pulse_django.run.codec import codec
from pulse_django.shards.placement import OUR_APP, routers_alias

from .databases import rolled_back
from .drain import (
    Ran,
    arguments_of,
    claimed,
    expire_lease,
    fresh,
    is_shown_in_full,
    jump_to_next_run,
    performed,
    reported,
)

if TYPE_CHECKING:
    from pulse_django.run.registry import Task, TaskResult

T = TypeVar("T")
R = TypeVar("R")


def assert_idempotent(task: Task, /, *args: Any, ignore: Collection[str] = (), **kwargs: Any) -> None:
    """Fail, naming the rows that differ, if a run that is repeated after a crash changes the result of one run.

    Everything happens in transactions that are rolled back, one on each database that the test may use. Callbacks of
    ``on_commit`` are called when the handler has ended, and their effects count.

    Keys that the database chose, and fields that are set by ``auto_now``, are not compared; name others in ``ignore``
    as "app.Model.field", or "result" for what the handler returns. Jobs that the handler enqueues are compared by task,
    arguments, queue and key, on each of those databases.
    """
    rehearse = partial(rehearsed, lambda: _with_two_attempts(task).enqueue(*args, **kwargs), ignore, {})
    result, once = rehearse(_run_cleanly)
    repeated_result, twice = rehearse(_run_with_a_crash)
    if result != repeated_result and "result" not in ignore:
        one, other = (MASK, MASK) if hides_result(task, None) else (repr(result), repr(repeated_result))
        raise AssertionError(f"{task.module_path} is not idempotent. It returns {one}, repeated after a crash {other}.")
    if once != twice:
        why = f"{task.module_path} is not idempotent. A run repeated after a crash leaves, beside one clean run:"
        raise AssertionError(difference(why, once, twice))


def rehearsed(
    enqueue: Callable[[], T], ignore: Collection[str], sensitive: MaskedValues, run: Callable[[T], R]
) -> tuple[R, Rows]:
    """Return the results of jobs that are run in this way, and the rows afterwards. Roll back."""
    with rolled_back() as aliases:
        enqueued = enqueue()
        before = {  # these jobs are no effect of their handlers
            (alias, job.pk) for alias in aliases if _has_jobs(alias) for job in Job.objects.using(alias).only("pk")
        }
        result = run(enqueued)
        rows: Rows = Counter()
        for alias in aliases:
            if _has_jobs(alias):
                _count_jobs(alias, before, sensitive, rows)
            _count(alias, ignore, rows)
        return result, rows


def _run_cleanly(job: TaskResult) -> Any:
    return _completed(job, reported(performed(claimed(job))), "A clean run")


def _run_with_a_crash(job: TaskResult) -> Any:
    run = claimed(job, holder="crashing")
    if performed(run).run.completed:
        # Its report was part of its own transaction, so it cannot die between the two.
        return codec().value_of(fresh(job), RESULT)
    expire_lease(job)
    Job.objects.db_manager(run.alias).reap()
    jump_to_next_run(job)
    return _completed(job, reported(performed(claimed(job))), "A run repeated after a crash")


def _with_two_attempts(task: Task) -> Task:
    """Allow a task with a single attempt a second one."""
    if getattr(task, "at_most_once", False):
        why = "with at_most_once=True no crash makes it run again, so there is nothing to compare"
        raise ValueError(f"{task.module_path}: {why}. Test it with run_job().")
    if (getattr(task, "max_attempts", None) or 2) >= 2:
        return task
    again: Task = task.using(max_attempts=2)
    return again


def _completed(result: TaskResult, ran: Ran, which: str) -> Any:
    job = fresh(result)
    if ran.status != Status.COMPLETED:
        raise AssertionError(f"{which} of {ran.task} did not complete: {job.last_error or job.cancel_reason}")
    return codec().value_of(job, RESULT)


def difference(why: str, once: Rows, other: Rows) -> str:
    """Return a message that shows the additional and the missing rows."""
    lines = [
        f"  {sign} {count} x {label} {dict(row)}"
        for sign, rows in (("+", other - once), ("-", once - other))
        for (label, row), count in rows.items()
    ]
    return "\n".join([why, *lines])


# The rows of a database, in a form that allows a comparison of two runs of the same handler.


Row = tuple[tuple[str, str], ...]
Rows = Counter[tuple[str, Row]]
Places = Set[tuple[str, int]]  # aliases and ids of jobs


# Values that no message may show, each with a number in the order in which they are met. A hash would do the same, and
# a short secret could be guessed from it.
MaskedValues = dict[str, int]


def _has_jobs(alias: str) -> bool:
    """Say whether the tables of Pulse exist."""
    return Job._meta.db_table in connections[alias].introspection.table_names()


def _count_jobs(alias: str, before: Places, sensitive: MaskedValues, rows: Rows) -> None:
    """Count those with another parent as well, or none: a job that is sent to another database has none there."""
    label = _label("a job it enqueued", alias, routers_alias())
    for job in Job.objects.using(alias).order_by("pk"):
        if (alias, job.pk) not in before:
            rows[label, _facts_of(job, sensitive)] += 1


def _label(what: str, alias: str, home: str) -> str:
    return what if alias == home else f"{what} in database {alias!r}"


def _facts_of(job: Job, sensitive: MaskedValues) -> Row:
    facts = {"task": job.task, "arguments": arguments_of(job), "queue": job.queue, "key": job.idempotency_key}
    if not is_shown_in_full(job):  # they are compared all the same
        number = sensitive.setdefault(repr(codec().arguments_of(job)), len(sensitive) + 1)
        facts["arguments in full"] = f"masked value #{number}"
    return tuple((name, str(value)) for name, value in facts.items())


def _count(alias: str, ignore: Collection[str], rows: Rows) -> None:
    tables = set(connections[alias].introspection.table_names())
    numbers = _Numbers(alias, tables)
    for model in apps.get_models(include_auto_created=True):
        if model._meta.app_label == OUR_APP or not model._meta.managed or model._meta.proxy:
            continue
        home = router.db_for_write(model)
        if alias != home and not (model._meta.db_table in tables and router.allow_migrate_model(alias, model)):
            continue
        label = _label(model._meta.label, alias, home)
        for row in model._base_manager.using(alias).order_by("pk").values():
            rows[label, _comparable(model, row, ignore, numbers)] += 1


class _Numbers:
    """Replace a key that the database chose by the position of its row: keys differ from run to run."""

    def __init__(self, alias: str, tables: Collection[str]) -> None:
        self._alias, self._tables = alias, tables
        self._known: dict[str, dict[Any, int]] = {}

    def of(self, model: type[models.Model], pk: Any) -> str:
        if (known := self._known.get(model._meta.label)) is None:
            alias = self._alias if model._meta.db_table in self._tables else router.db_for_read(model)
            pks = model._base_manager.using(alias).order_by("pk").values_list("pk", flat=True)
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
