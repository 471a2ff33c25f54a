"""A task of another backend than Pulse's is left to it, and so are the events that its jobs cannot wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from pulse_django import api, enqueue_many, send_event, task
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Event, Job
from pulse_django.run.registry import BaseTaskBackend

pytestmark = pytest.mark.usefixtures("pulse_db")

IMMEDIATE = f"{BaseTaskBackend.__module__.removesuffix('.base')}.immediate.ImmediateBackend"
SAW: list[Any] = []


@task(name="other_backends.see")
def see(number: int, *, note: str = "") -> None:
    SAW.append((number, note))


@pytest.fixture
def _immediate() -> Iterator[None]:
    SAW.clear()
    with override_settings(TASKS={"default": {"BACKEND": IMMEDIATE, "QUEUES": []}}):
        yield


@pytest.mark.usefixtures("_immediate")
def test_many_are_enqueued_by_the_backend_of_their_task_and_none_if_one_cannot_be() -> None:
    told: list[int] = []
    with pytest.raises(InvalidJob):
        enqueue_many(see, [[1], "2"])
    ids = enqueue_many(see, [[1], {"number": 2, "note": "x"}], progress=told.append)
    assert SAW == [(1, ""), (2, "x")]
    assert len(set(ids)) == 2
    assert told == [2]
    assert not Job.objects.exists()


@pytest.mark.usefixtures("_immediate")
def test_an_event_that_no_job_can_wait_for_is_not_written() -> None:
    assert send_event("approved", {"by": "ada"})
    with pytest.raises(InvalidJob):
        send_event("", {"by": "ada"})
    assert not Event.objects.exists()


def test_on_pulse_they_are_jobs() -> None:
    with override_settings(
        TASKS={
            "default": {"BACKEND": "pulse_django.backend.PulseBackend"},
            "now": {"BACKEND": IMMEDIATE, "QUEUES": []},
        }
    ):
        SAW.clear()
        enqueue_many(see, [[1], [2]])
        assert api.jobs().count() == 2
        enqueue_many(see.using(backend="now"), [[3]])
        assert SAW == [(3, "")]
        assert send_event("approved")
        assert Event.objects.count() == 1
