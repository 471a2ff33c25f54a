"""Start an operation: open its batch, and enqueue the job that finds the others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.signing import BadSignature, Signer
from django.db import transaction

from pulse_django import conf
from pulse_django.console.shards import Shards
from pulse_django.exceptions import PayloadError
from pulse_django.execution.notify import wake_workers
from pulse_django.models import Job
from pulse_django.store.sql_functions import StatementTimestamp
from pulse_django.words.job_options import MAX_BATCH_NAME, NewJob, Place
from pulse_django.words.limits import HIGHEST_PRIORITY
from pulse_django.words.own_tasks import PLAN
from pulse_django.words.payloads import canonical
from pulse_django.workflows.batches import Batch

from .criteria import Criteria
from .verbs import BY_NAME, Given, Verb

KIND = "mass operation"
_SALT = "pulse_django.operation"


def start_operation(alias: str, verb: Verb, criteria: Criteria, given: Given, user: Any) -> Batch:
    """Start it in the name of a user. Jobs that are enqueued from now on are not meant."""
    name = "".join(sign if sign.isprintable() else "?" for sign in f"{verb.label}: {criteria.words}")
    with transaction.atomic(using=alias):
        until, asked_at = _newest(alias)
        context = {
            "verb": verb.name,
            "query": criteria.query,
            "given": dict(given),
            "user": str(user.pk),
            "by": user.get_username(),
            "until": until,
            "asked_at": asked_at,
        }
        batch = Batch.open(name[:MAX_BATCH_NAME], kind=KIND, context=context, using=alias)
        enqueue(batch, batch.context, PLAN, [{}])
    return batch


def start_operations(
    everywhere: Shards, aliases: Sequence[str], verb: Verb, criteria: Criteria, given: Given, user: Any
) -> list[Batch]:
    """Start one operation in each of these shards: it is a batch, and acts in the transactions of its shard.

    What was said about the pace holds for all of them together: each has an equal part of it, also below one job per
    minute.
    """
    if given.get("per_minute") and len(aliases) > 1:
        given = {**given, "per_minute": given["per_minute"] / len(aliases)}
    chosen = [everywhere.only(alias) for alias in aliases]
    found = [one.ask(lambda alias: start_operation(alias, verb, criteria, given, user)) for one in chosen]
    return [batch for started in found for batch in started.values()]


def enqueue(
    batch: Batch,
    operation: dict[str, Any],
    task: str,
    arguments: list[dict[str, Any]],
    *,
    per_minute: float | None = None,
) -> None:
    """Add jobs to an operation. With ``per_minute``, each is due when as many jobs as it is after have had their time.

    They do not need a backend of Django's tasks, which a project may not have. ``operation`` is the context of the
    batch as the database returns it."""
    queue = conf.current().console_queue
    news = [
        NewJob(
            task=task,
            kwargs=one | {"signature": Signer(salt=_SALT).signature(_signed_text(batch, operation, task, one))},
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
    """Whether ``enqueue`` wrote this job for this batch, and its task and arguments are unchanged.

    A role that can only write rows could add such a job to any batch.
    """
    try:
        Signer(salt=_SALT).unsign(f"{_signed_text(batch, operation, task, arguments)}:{signature}")
    except (BadSignature, PayloadError):
        return False
    return True


def _signed_text(batch: Batch, operation: dict[str, Any], task: str, arguments: dict[str, Any]) -> str:
    return canonical([batch.id, operation, task, arguments], what="operation")


def permission_of(batch: Batch) -> str:
    """Return the permission that an operation needs. Who has it may stop the operation as well."""
    verb = BY_NAME.get(batch.context.get("verb", ""))
    return "" if verb is None else verb.permission


def why_not(context: dict[str, Any]) -> str:
    """Say why an operation must not go on, or return an empty str: its user may have lost the permission."""
    verb, users = BY_NAME.get(context["verb"]), get_user_model()._default_manager
    user: Any = users.filter(pk=context["user"], is_active=True).first()
    if verb is None:
        return f"there is no operation {context['verb']!r} any more"
    if user is None or not user.has_perm(f"pulse_django.{verb.permission}"):
        return f"{context['by']} has no permission for it any more"
    return ""


def _newest(alias: str) -> tuple[int, str]:
    """Return the id of the newest job, and the instant by the server's clock."""
    newest = (
        Job.objects.using(alias).order_by("-id").annotate(now=StatementTimestamp()).values_list("id", "now").first()
    )
    return (0, "1970-01-01T00:00:00+00:00") if newest is None else (newest[0], newest[1].isoformat())
