"""Which database the jobs of a call live in, and how their ids say so: the one place that decides.

``using=`` of the call comes first, then the database of the job whose handler makes the call, then the router's.

The same number names another job in each database. So a job outside of the router's database has the id
``"alias:17"`` in its ``TaskResult``. An id of type str therefore means the same job wherever it is read; one of type
int is a row of the database that the call works on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.models import Model

from pulse_django.exceptions import InvalidJob
from pulse_django.models import Job
from pulse_django.words.job_ids import job_id_of, shown

from .run import Run, current_run

OUR_APP = "pulse_django"
_SEPARATOR = ":"


class Located(NamedTuple):
    """Ids of jobs, and the database that all of them live in."""

    alias: str
    ids: frozenset[int]

    @property
    def id(self) -> int:
        [only] = self.ids
        return only


def routers_alias() -> str:
    """Return the database to which the router sends writes of jobs: the default of every call."""
    if not router.routers:
        return DEFAULT_DB_ALIAS
    alias: str = router.db_for_write(Job)
    return alias


def alias_of_jobs(using: str | None = None) -> str:
    """Return the database that a call works on."""
    if using is not None:
        return _checked(using, "database")
    run = current_run()
    return routers_alias() if run is None else alias_of_run(run)


def alias_of_run(run: Run) -> str:
    """Return the database that the job of a run lives in."""
    return run.alias or routers_alias()


def result_id(job_id: int, alias: str | None) -> str:
    """Return the id of a job as its ``TaskResult`` has it."""
    return str(job_id) if alias is None or alias == routers_alias() else f"{alias}{_SEPARATOR}{job_id}"


def located(values: Iterable[object], using: str | None = None) -> Located:
    """Read ids, and refuse those of several databases in one call."""
    values = list(values)
    found = {_alias_of(value, using): None for value in values} or {alias_of_jobs(using): None}
    if len(found) > 1:
        raise InvalidJob(
            f"job ids: they belong to several databases ({', '.join(map(repr, found))}); call once for each database"
        )
    return Located(next(iter(found)), frozenset(map(_number_of, values)))


def locate(value: object, using: str | None = None) -> Located:
    """Read one id."""
    return located([value], using)


def _alias_of(value: object, using: str | None) -> str:
    if not isinstance(value, str):
        return alias_of_jobs(using)
    named, separator, _number = value.rpartition(_SEPARATOR)
    alias = _checked(named, "job id") if separator else routers_alias()
    if using not in (None, alias):
        raise InvalidJob(
            f"job id: {shown(value)} is a job in {alias!r}, and using= names {using!r}. "
            f"Pass the number alone for the job in {using!r}."
        )
    return alias


def _number_of(value: object) -> int:
    return job_id_of(value.rpartition(_SEPARATOR)[2] if isinstance(value, str) else value)


def _checked(alias: object, said_by: str) -> str:
    """Refuse a database that is not there, or that the router keeps free of jobs."""
    if not isinstance(alias, str) or alias not in connections:
        raise InvalidJob(f"{said_by}: {shown(alias)} is not in DATABASES")
    if not router.allow_migrate_model(alias, Job):
        raise InvalidJob(f"{said_by}: the router does not allow jobs in {alias!r}")
    return alias


def why_not_one_transaction(alias: str) -> str:
    """Say why jobs of this database share no transaction with the project's data, or return an empty str."""
    others = set()
    for model in _models_with_data():
        if (data := router.db_for_write(model)) == alias:
            return ""
        others.add(data)
    if not others:
        return ""
    return (
        f"the jobs are stored in {alias!r}, but the project's models are written to "
        f"{', '.join(map(repr, sorted(others)))}"
    )


def _models_with_data() -> list[type[Model]]:
    """Return the project's models; where it has none of its own, those of Django's apps, such as users."""
    found = [one for one in apps.get_models() if one._meta.app_label != OUR_APP]
    return [one for one in found if not one.__module__.startswith("django.")] or found


def alias_of_completion(run: Run, using: str | None) -> str:
    """Return the database of a transaction that completes the job of a run, or refuse if it cannot hold the data."""
    alias = alias_of_run(run)
    if using is None and (problem := why_not_one_transaction(alias)):
        raise ImproperlyConfigured(
            f"{problem}: one transaction cannot span both. To write only to {alias!r}, use "
            f"context.atomic(using={alias!r})."
        )
    if using not in (None, alias):
        raise ImproperlyConfigured(
            f"the job is stored in {alias!r}: a transaction on {using!r} cannot complete it. Omit using=."
        )
    return alias
