"""Start an operation: open its batch, and enqueue the job that finds the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction

from pulse_django import conf
from pulse_django.exceptions import PayloadError
from pulse_django.models import Job
from pulse_django.operations.acts import ACTS, Act, Given
from pulse_django.queue.words.bounds import HIGHEST_PRIORITY
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.own_tasks import PLAN
from pulse_django.queue.words.payloads import canonical
from pulse_django.run.notify import wake_workers
from pulse_django.signed_texts import has_signature, signature_of
from pulse_django.workflows.batches import Batch
from pulse_django.workflows.rules import MAX_BATCH_NAME, Place

from .criteria import Criteria, newest

KIND = "mass operation"
_SALT = "pulse_django.operation"


def start_operation(alias: str, act: Act, criteria: Criteria, given: Given, user: Any) -> Batch:
    """Start an operation for a user. Jobs that are enqueued from now on are not included, nor those that ended after
    ``asked_at`` of ``given``, or now.
    """
    name = "".join(sign if sign.isprintable() else "?" for sign in f"{act.label_of_all}: {criteria.words}")
    with transaction.atomic(using=alias):
        until, now = newest(alias)
        context = {
            "act": act.name,
            "query": criteria.query,
            "given": {name: value for name, value in given.items() if name != "asked_at"},
            "user": str(user.pk),
            "by": user.get_username(),
            "until": until,
            "asked_at": given.get("asked_at") or now,
        }
        batch = Batch.open(name[:MAX_BATCH_NAME], kind=KIND, context=context, using=alias)
        enqueue(batch, batch.context, PLAN, [{}])
    return batch


def enqueue(
    batch: Batch,
    operation: dict[str, Any],
    task: str,
    arguments: list[dict[str, Any]],
    *,
    per_minute: float | None = None,
) -> None:
    """Add jobs to an operation. With ``per_minute``, each job waits for the time of the jobs before it (``met``).

    The jobs do not need a backend of Django's tasks, which a project may not have. ``operation`` is the context of the
    batch as the database returns it."""
    queue = conf.current().admin_queue
    news = [
        NewJob(
            task=task,
            kwargs=one | {"signature": signature_of(_SALT, _signed_text(batch, operation, task, one))},
            queue=queue,
            priority=HIGHEST_PRIORITY,
            run_after=timedelta(minutes=one["met"] / per_minute) if per_minute else None,
            place=Place(batch.id),
        )
        for one in arguments
    ]
    if news:
        Job.objects.db_manager(batch.alias).enqueue_many(news)
        wake_workers(batch.alias, [queue])


def is_signed(batch: Batch, operation: dict[str, Any], task: str, arguments: dict[str, Any], signature: object) -> bool:
    """Return whether ``enqueue`` wrote this job for this batch, with the same task and arguments.

    A role that can only write rows could add such a job to any batch.
    """
    try:
        return has_signature(_SALT, _signed_text(batch, operation, task, arguments), signature)
    except PayloadError:
        return False


def _signed_text(batch: Batch, operation: dict[str, Any], task: str, arguments: dict[str, Any]) -> str:
    return canonical([batch.id, operation, task, arguments], what="operation")


def permission_of(batch: Batch) -> str:
    """Return the permission for an operation. Users with it may also stop the operation."""
    act = ACTS.get(batch.context.get("act", ""))
    return "" if act is None else act.permission


def why_not(context: dict[str, Any]) -> str:
    """Return why an operation must stop, such as a lost permission of its user, or "" if it may continue."""
    act, users = ACTS.get(context["act"]), get_user_model()._default_manager
    user: Any = users.filter(pk=context["user"], is_active=True).first()
    if act is None:
        return f"the operation {context['act']!r} no longer exists"
    if user is None or not user.has_perm(f"pulse_django.{act.permission}"):
        return f"{context['by']} no longer has the permission {act.permission!r}"
    return ""
