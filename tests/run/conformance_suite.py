"""Django's own tests of its Tasks framework, run against PulseBackend by subclassing.

They come from Django's source distribution: DJANGO_TESTS names its ``tests`` folder. ``conformance.py`` fetches it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

sys.path.insert(0, os.environ["DJANGO_TESTS"])

from django.test import TransactionTestCase, override_settings
from tasks import test_dummy_backend, test_tasks

from pulse_django.backend import PulseBackend
from pulse_django.models import Job, StoredAttempt


class WatchedBackend(PulseBackend):
    """What Django's tests ask of a backend beside the API."""

    @property
    def results(self) -> list[Any]:
        return [self.get_result(str(pk)) for pk in Job.objects.order_by("pk").values_list("pk", flat=True)]

    def clear(self) -> None:
        Job.objects.all().delete()
        StoredAttempt.objects.all().delete()


def pulse_as_default(queues: list[str]) -> Any:
    """The settings that Django's own classes have, with Pulse in the place of the dummy backend."""
    return override_settings(
        TASKS={
            "default": {"BACKEND": "tests.run.conformance_suite.WatchedBackend", "QUEUES": queues},
            "immediate": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend", "QUEUES": []},
            "missing": {"BACKEND": "does.not.exist"},
        },
        USE_TZ=True,
    )


@pulse_as_default(["default", "queue_1"])
class TasksOnPulse(test_tasks.TaskTestCase, TransactionTestCase):
    pass


@pulse_as_default([])
class BackendOnPulse(test_dummy_backend.DummyBackendTestCase, TransactionTestCase):
    pass


del test_tasks.TaskTestCase, test_dummy_backend.DummyBackendTestCase
