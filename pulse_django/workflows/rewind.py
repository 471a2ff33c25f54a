"""Run a job again from one of its durable steps: the dead letter itself, or a copy of a job."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django.db import transaction

from pulse_django.encryption.values import searched
from pulse_django.exceptions import InvalidWorkflow
from pulse_django.models import Job, Step
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.masks import Masks
from pulse_django.queue.words.options import JOB_OPTIONS
from pulse_django.queue.words.own_tasks import ONLY_PULSE, OWN_TASKS
from pulse_django.queue.words.states import Status
from pulse_django.run import make_due
from pulse_django.run.calls import names_of
from pulse_django.run.notify import wake_workers
from pulse_django.run.registry import registry
from pulse_django.shards.placement import Located, locate

from .steps import copy_steps, forget_steps


class Rewound(NamedTuple):
    """The steps that run again, and those that are kept."""

    job_id: int
    repeated: list[str]  # steps that are repeated
    kept: list[str]  # steps that are kept


def preview(job_id: int | str, step: str, *, using: str | None = None) -> Rewound:
    """Return the steps that ``retry_from`` or ``fork`` would repeat, and those that they would keep."""
    where = locate(job_id, using)
    return _split(where, step)


def retry_from(
    job_id: int | str, step: str, *, attempt: int | None = None, cancelled_too: bool = False, using: str | None = None
) -> Rewound:
    """Retry a dead letter, and repeat a step and all steps after it.

    ``attempt``: retry only if the job has been claimed this many times. It protects against acting on an old page.
    ``cancelled_too``: also if its batch was cancelled.
    """
    where = locate(job_id, using)
    with transaction.atomic(using=where.alias):
        job = Job.objects.using(where.alias).select_for_update(of=("self",)).get(pk=where.id)
        if job.status != Status.DEAD_LETTERED:
            raise InvalidWorkflow(f"job {where.id} is {job.status}. Only a dead letter is retried; fork() makes a copy")
        if attempt not in (None, job.attempts):
            raise InvalidWorkflow(f"job {where.id} has changed in the meantime: {job.attempts} attempts were claimed")
        rewound = _split(where, step)
        forget_steps(Job.objects.db_manager(where.alias), where.id, first=len(rewound.kept) + 1)
        answer = make_due.retry(where.alias, [where.id], cancelled_too=cancelled_too)
        if where.id in answer.of_cancelled:
            raise InvalidWorkflow(f"job {where.id} was not revived: its batch was cancelled. Use cancelled_too=True")
        if where.id not in answer.revived:
            raise InvalidWorkflow(f"job {where.id} was not revived: another job holds its unique key")
    return rewound


def fork(job_id: int | str, step: str, *, using: str | None = None) -> Rewound:
    """Enqueue a copy of a job that keeps the steps before this one, and repeats this one and all later ones."""
    where = locate(job_id, using)
    jobs = Job.objects.db_manager(where.alias)
    with transaction.atomic(using=where.alias):
        job = Job.objects.using(where.alias).get(pk=where.id)
        if Masks.read(job.sensitive).encrypted:
            raise InvalidWorkflow(f"job {where.id} is encrypted: its steps can be read by no other job")
        rewound = _split(where, step)
        copy = jobs.enqueue(_copy_of(job))
        copy_steps(jobs, where.id, to=copy.pk, first=len(rewound.kept) + 1)
    wake_workers(where.alias, [copy.queue])
    return rewound._replace(job_id=copy.pk)


def _split(where: Located, step: str) -> Rewound:
    if Job.objects.using(where.alias).filter(pk=where.id, task__in=OWN_TASKS).exists():
        raise InvalidWorkflow(f"job {where.id}: {ONLY_PULSE}")
    steps = Step.objects.using(where.alias).filter(job_id=where.id).order_by("number")
    names = list(steps.values_list("name", flat=True))
    if step not in names:
        raise InvalidWorkflow(f"job {where.id} has done no step {step!r}; it has done {', '.join(names) or 'none'}")
    place = names.index(step)
    return Rewound(where.id, names[place:], names[:place])


def _copy_of(job: Job) -> NewJob:
    same = ("task", "args", "kwargs", "queue", "priority", "parent_id", "sensitive", "lane_key")
    values: dict[str, Any] = {name: getattr(job, name) for name in same}
    values |= {one.name: getattr(job, one.column) for one in JOB_OPTIONS if one.name != "idempotency_key"}
    if job.on_dead is not None:
        values["on_dead"] = json.dumps(job.on_dead)
    task = registry.get(job.task)
    names = names_of(task) if task else ()
    return NewJob(tags=tuple(job.tags or ()), names=names, searchable=searched(task), **values)
