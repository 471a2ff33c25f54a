"""Which database the jobs of a call live in: the one place that decides.

``using=`` of the call comes first, then the shard of the job whose id is given, then that of the job whose handler
makes the call, then the router's database. ``placement.py`` decides where new jobs go.

An id is given only once over all shards, and says which of them gave it. A job that was moved has kept its id. So where
there are several shards, the one that gave the id is asked for the job first, and then the others. Calls wait for a job
that is being moved.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.models import Model

from pulse_django import conf
from pulse_django.exceptions import InvalidJob, JobOnItsWay
from pulse_django.models import Departure, Job
from pulse_django.words.job_ids import job_id_of, job_ids_of, shard_number_of, shown

from .run import Run, current_run

OUR_APP = "pulse_django"
LONGEST_WAIT, BETWEEN_LOOKS = 1.0, 0.05  # seconds, for a job that is being moved


class Located(NamedTuple):
    """Ids of jobs, and the database that all of them live in."""

    alias: str
    ids: frozenset[int]

    @property
    def id(self) -> int:
        [only] = self.ids
        return only


def routers_alias() -> str:
    """Return the database to which the router sends writes of jobs: the default of calls that name no job."""
    if not router.routers:
        return DEFAULT_DB_ALIAS
    alias: str = router.db_for_write(Job)
    return alias


def shards() -> Mapping[str, int]:
    """Return the databases that hold jobs, with their numbers."""
    return conf.current().shards or {routers_alias(): 0}


def has_several_shards() -> bool:
    return len(conf.current().shards) > 1


def alias_of_jobs(using: str | None = None) -> str:
    """Return the database that a call works on which names no job."""
    if using is not None:
        return checked_shard(using)
    run = current_run()
    return routers_alias() if run is None else alias_of_run(run)


def aliases_of_jobs(using: str | None = None) -> list[str]:
    """Return all databases that a call works on which concerns every shard unless it names one."""
    return list(shards()) if using is None else [checked_shard(using)]


def alias_of_run(run: Run) -> str:
    """Return the database that the job of a run lives in."""
    return run.alias or routers_alias()


def alias_of_id(row_id: int, using: str | None = None) -> str:
    """Return the shard that gave an id: of a batch, for example, which never moves."""
    if using is not None or not has_several_shards():
        return alias_of_jobs(using)
    number = shard_number_of(row_id)
    return next((alias for alias, one in shards().items() if one == number), routers_alias())


def located_by_shard(values: Iterable[object], using: str | None = None) -> list[Located]:
    """Read ids of jobs, and find the database of each. What is in none of them is said to be where it was born."""
    ids = job_ids_of(values)
    if using is not None or not has_several_shards():
        return [Located(alias_of_jobs(using), ids)]
    born: dict[str, set[int]] = {}
    for one in ids:
        born.setdefault(alias_of_id(one), set()).add(one)
    homes = {alias: _present(alias, some) for alias, some in born.items()}
    missing = ids.difference(*homes.values())
    if missing:
        for alias, found in _search(missing).items():
            homes[alias] = homes.get(alias, set()) | found
    for one in ids.difference(*homes.values()):
        homes.setdefault(alias_of_id(one), set()).add(one)
    return [Located(alias, frozenset(some)) for alias, some in homes.items() if some] or [
        Located(alias_of_jobs(), frozenset())
    ]


def locate(value: object, using: str | None = None) -> Located:
    """Read the id of one job, and find its database."""
    [found] = located_by_shard([job_id_of(value)], using)
    return found


def _search(ids: Iterable[int]) -> dict[str, set[int]]:
    """Look for jobs in all shards, and wait for those that are on their way between two of them."""
    homes: dict[str, set[int]] = {alias: set() for alias in shards()}
    missing, travelling = set(ids), set(ids)
    until = time.monotonic() + LONGEST_WAIT
    while missing and travelling:
        for alias in homes:
            homes[alias] |= _present(alias, missing)
        missing = missing.difference(*homes.values())
        travelling = set().union(*(_travelling(alias, missing) for alias in homes)) if missing else set()
        if travelling and time.monotonic() > until:
            raise JobOnItsWay(
                f"{_named(travelling)} left one shard and did not arrive in another: a move was interrupted. "
                "Nothing was done. Finish the move by pulse_shards move"
            )
        if travelling:
            time.sleep(BETWEEN_LOOKS)
    # A job may have arrived in a shard after that shard was read.
    for alias in homes if missing else ():
        homes[alias] |= _present(alias, missing)
    return homes


def _named(job_ids: Iterable[int]) -> str:
    first, *more = sorted(job_ids)
    return f"job {first} and {len(more)} more" if more else f"job {first}"


def _travelling(alias: str, ids: Iterable[int]) -> set[int]:
    return set(Departure.objects.using(alias).filter(job_id__in=list(ids)).values_list("job_id", flat=True))


def _present(alias: str, ids: Iterable[int]) -> set[int]:
    ids = list(ids)
    return set(Job.objects.using(alias).filter(pk__in=ids).values_list("pk", flat=True)) if ids else set()


def checked_shard(alias: object, said_by: str = "database") -> str:
    """Refuse a database that is not there, or that holds no jobs."""
    if not isinstance(alias, str) or alias not in connections:
        raise InvalidJob(f"{said_by}: {shown(alias)} is not in DATABASES")
    if not router.allow_migrate_model(alias, Job):
        raise InvalidJob(f"{said_by}: the router does not allow jobs in {alias!r}")
    if alias not in shards():
        raise InvalidJob(f"{said_by}: PULSE['SHARDS'] does not name {alias!r}")
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
