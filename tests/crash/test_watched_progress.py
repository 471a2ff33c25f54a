"""Who looks at a running job sees its progress at once, and not with the next heartbeat."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from pulse_django.run.job_progress import progress_of
from tests.console.staff import staff
from tests.crash.workers import Workers, wait_until
from tests.worker.handlers import registered

pytestmark = pytest.mark.usefixtures("pulse_db")

NO_BEATS = {"LEASE_TTL": 3_000, "HEARTBEAT_INTERVAL": 1_000}


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_progress_of_a_job_that_is_looked_at_is_written_without_a_heartbeat(
    workers: Workers, processes: str
) -> None:
    worker = workers.ready("--processes", processes, settings=NO_BEATS)
    wait_until(lambda: worker.says("Listening for wake-ups"), lambda: worker.log)
    job = registered("thread.is_cancelled").enqueue().id
    wait_until(lambda: workers.trace.of(job, "works"))
    wait_until(lambda: progress_of(job).percent == 75, patience=30)


def test_a_page_of_the_admin_looks_and_asks_often_once_there_is_progress(workers: Workers) -> None:
    worker = workers.ready(settings=NO_BEATS)
    wait_until(lambda: worker.says("Listening for wake-ups"), lambda: worker.log)
    job = registered("thread.is_cancelled").enqueue().id
    wait_until(lambda: workers.trace.of(job, "works"))
    client = staff("pulse_view_jobs")
    page = reverse("admin:pulse_django_job_change", args=[job])
    try:
        wait_until(lambda: "data-pulse-often" in client.get(page).content.decode(), patience=30)
    finally:
        User.objects.all().delete()
