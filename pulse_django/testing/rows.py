"""What a database holds, in a form in which two runs of the same handler can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from django.apps import apps
from django.db import connections, models, router

from pulse_django.models import Job

from .telling import arguments_of, is_told_in_full

Row = tuple[tuple[str, str], ...]
Rows = Counter[tuple[str, Row]]
OUR_APP = "pulse_django"


def rows_of(aliases: Sequence[str], ignore: Collection[str]) -> Rows:
    """Count the rows of the project's models in these databases, and the jobs that a handler enqueued."""
    rows: Rows = Counter()
    for job in Job.objects.using(router.db_for_write(Job)).filter(parent__isnull=False):
        rows["a job it enqueued", _facts_of(job)] += 1
    for alias in aliases:
        _count(alias, ignore, rows)
    return rows


def _facts_of(job: Job) -> Row:
    facts = {"task": job.task, "arguments": arguments_of(job), "queue": job.queue, "key": job.idempotency_key}
    if not is_told_in_full(job):  # they are compared all the same
        facts["hash of the arguments"] = f"{hash(repr((job.args, job.kwargs))):x}"
    return tuple((name, str(value)) for name, value in facts.items())


def _count(alias: str, ignore: Collection[str], rows: Rows) -> None:
    tables = set(connections[alias].introspection.table_names())
    numbers = _Numbers(alias, tables)
    for model in apps.get_models(include_auto_created=True):
        if model._meta.app_label == OUR_APP or not model._meta.managed or model._meta.proxy:
            continue
        is_home = alias == router.db_for_write(model)
        if not is_home and not (model._meta.db_table in tables and router.allow_migrate_model(alias, model)):
            continue
        label = model._meta.label if is_home else f"{model._meta.label} in database {alias!r}"
        for row in model._base_manager.using(alias).order_by("pk").values():
            rows[label, _comparable(model, row, ignore, numbers)] += 1


class _Numbers:
    """Keys that the database chose differ from run to run: what counts is which row of its table they name."""

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
