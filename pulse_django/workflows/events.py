"""Tell waiting jobs that something happened."""

from __future__ import annotations

from typing import Any

from pulse_django import conf
from pulse_django.backend import PulseBackend
from pulse_django.exceptions import InvalidWorkflow
from pulse_django.execution.placement import alias_of_jobs, has_several_shards, shards
from pulse_django.execution.registry import task_backends
from pulse_django.execution.resolving import resolve_when_committed
from pulse_django.execution.run import current_run
from pulse_django.execution.waits import EVENT_NAME
from pulse_django.models import Job
from pulse_django.protocol.events import send_event as send
from pulse_django.store.transactions import is_in_callers_transaction
from pulse_django.words.limits import MAX_USER
from pulse_django.words.option_kinds import Note
from pulse_django.words.payloads import encode_arguments

SENT_BY = Note(MAX_USER)


def send_event(name: str, payload: Any = None, *, by: str = "", using: str | None = None) -> bool:
    """Say that something happened, in the transaction of the caller. Jobs that wait for it run after the commit.

    It is kept for a while, so a job that asks later finds it. The first event with a name counts: False says that there
    was one before, and nothing was changed. ``by`` is who sent it, for the record.

    A handler tells the shard of its own job, and any other caller every shard. ``using`` names one. Where no backend of
    TASKS is PulseBackend, as in tests with ImmediateBackend, no job can wait for it, and nothing is written.
    """
    EVENT_NAME.check("name", name)
    by = SENT_BY.cleaned("by", by)
    encoded = None
    if payload is not None:
        encoded = encode_arguments(payload, limit=conf.current().max_payload_bytes, what="payload")
    if not any(isinstance(task_backends[alias], PulseBackend) for alias in task_backends):
        return True
    is_new = False
    for alias in _shards_of_event(using):
        if send(Job.objects.db_manager(alias), name, encoded, by=by):
            is_new = True
            resolve_when_committed(alias)
    return is_new


def _shards_of_event(using: str | None) -> list[str]:
    """Return where it is kept: in the shard of the handler that sends it, or else in each.

    In each it can be sent again if a shard was away, and is still one event. It could be taken back in none of them.
    """
    if using is not None or current_run() is not None or not has_several_shards():
        return [alias_of_jobs(using)]
    if any(is_in_callers_transaction(alias) for alias in shards()):
        raise InvalidWorkflow(
            "send_event() tells every shard, which no transaction spans. Name the shard of the job that waits with "
            "using=..., or send the event after the commit"
        )
    return list(shards())
