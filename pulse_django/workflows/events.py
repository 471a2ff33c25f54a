"""Tell waiting jobs that something happened."""

from __future__ import annotations

from typing import Any

from pulse_django import conf
from pulse_django.execution.databases import alias_of_jobs
from pulse_django.execution.resolving import resolve_when_committed
from pulse_django.execution.waits import EVENT_NAME
from pulse_django.models import Job
from pulse_django.protocol.events import send_event as send
from pulse_django.words.payloads import encode_arguments


def send_event(name: str, payload: Any = None, *, by: str = "", using: str | None = None) -> bool:
    """Say that something happened, in the transaction of the caller. Jobs that wait for it run after the commit.

    It is kept for a while, so a job that asks later finds it. The first event with a name counts: False says that there
    was one before, and nothing was changed. ``by`` is who sent it, for the record.
    """
    EVENT_NAME.check("name", name)
    encoded = None
    if payload is not None:
        encoded = encode_arguments(payload, limit=conf.current().max_payload_bytes, what="payload")
    alias = alias_of_jobs(using)
    is_new = send(Job.objects.db_manager(alias), name, encoded, by=by)
    if is_new:
        resolve_when_committed(alias)
    return is_new
