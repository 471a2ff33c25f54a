"""What end users see of a job: a bar in a template, and its progress by a token that opens nothing else."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core import signing
from django.db import connection
from django.template import Context, Template
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from pulse_django import progress_token
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Job
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.run.job_progress import job_of_token
from tests.factories import make_job
from tests.faults import all_faults, each_of

pytestmark = pytest.mark.django_db


def rendered(source: str, job: object) -> str:
    return Template("{% load pulse %}" + source).render(Context({"job": job})).strip()


def bar(job: object) -> str:
    return rendered("{% pulse_job_progress job %}", job)


STAGES: list[tuple[Status, Any, str, int | None]] = [
    (Status.PENDING, None, "waiting", None),
    (Status.RETRYING, {"done": 1, "total": 4}, "waiting", 25),
    (Status.RUNNING, {"done": 1, "total": 3}, "running", 33),
    (Status.RUNNING, {"done": 5, "total": 3, "secret": "x"}, "running", 100),
    (Status.RUNNING, {"done": "<b>", "total": []}, "running", None),
    (Status.COMPLETED, None, "done", 100),
    (Status.DEAD_LETTERED, {"done": 1, "total": 2}, "failed", 50),
    (Status.CANCELLED, None, "cancelled", None),
]


def test_a_job_is_told_by_its_stage_and_its_share(client: Client) -> None:
    with all_faults() as about:
        for status, progress, stage, percent in STAGES:
            with about(f"{status} with {progress}"):
                job = make_job(status, progress=progress, last_error="ValueError: secret")
                answer = client.get(rendered("{% pulse_progress_url job %}", job))
                assert answer.json() == {"stage": stage, "percent": percent, "is_over": status in TERMINAL}
                assert answer["Cache-Control"].startswith("max-age=0, no-cache, no-store")
                page = bar(job)
                assert stage in page
                assert ("value=" in page) is (percent is not None or status in TERMINAL)
                assert "secret" not in page + answer.content.decode()


def test_a_script_gets_the_same_bar_and_stops_when_the_job_is_over(client: Client) -> None:
    job = make_job(Status.RUNNING, progress={"done": 1, "total": 2})
    url = rendered('{% pulse_progress_url job "job_progress_bar" %}', job)
    answer = client.get(url)
    assert (answer.status_code, answer.content.decode().strip()) == (200, bar(job))
    done = make_job(Status.COMPLETED)
    answer = client.get(rendered('{% pulse_progress_url job "job_progress_bar" %}', done.pk))
    assert (answer.status_code, answer.content.decode().strip()) == (286, bar(done))


class TestTheToken:
    def test_it_is_for_one_job(self) -> None:
        one, other = make_job(), make_job()
        assert job_of_token(progress_token(one)) == job_of_token(progress_token(str(one.pk))) == one.pk
        assert progress_token(one) != progress_token(other)

    def test_a_changed_one_opens_nothing(self, client: Client) -> None:
        job, other = make_job(), make_job()
        mine, theirs = progress_token(job), progress_token(other)
        mixed = ":".join([theirs.split(":")[0], *mine.split(":")[1:]])
        for token in (mixed, mine[:-1], "x", str(job.pk), signing.dumps([job.pk, 60.0]), signing.dumps("x")):
            for end in ("", "bar/"):
                assert client.get(f"/pulse/progress/{token}/{end}").status_code == 404

    def test_it_expires(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        token = progress_token(make_job(), expires_in=timedelta(hours=1))
        later = time.time() + 3_601
        monkeypatch.setattr("django.core.signing.time.time", lambda: later)
        assert client.get(f"/pulse/progress/{token}/").status_code == 404

    @each_of(timedelta(), timedelta(seconds=-1), -timedelta.resolution, timedelta.min)
    def test_one_that_has_expired_already_is_refused(self, *, expires_in: Any) -> None:
        with pytest.raises(InvalidJob, match="not in the future"):
            progress_token(1, expires_in=expires_in)

    def test_of_a_deleted_job_there_is_nothing(self, client: Client) -> None:
        token = progress_token(make_job())
        Job.objects.all().delete()
        assert client.get(f"/pulse/progress/{token}/").status_code == 404
        assert bar(1) == ""

    def test_it_can_only_be_read(self, client: Client) -> None:
        assert client.post(f"/pulse/progress/{progress_token(make_job())}/").status_code == 405


def test_progress_that_cannot_be_decrypted_is_a_bar_without_a_share(client: Client) -> None:
    """Web processes may have no key, and who can write to the table can change the value."""
    mask, key = '{"encrypted":true}', {"k1": "A" * 43 + "="}
    progress: list[tuple[str, dict[str, str], Any]] = [
        ("no key", {}, {"$pulse": "aes-gcm", "k": "k1", "c": "x" * 40}),
        ("another key", key, {"$pulse": "aes-gcm", "k": "k2", "c": "x" * 40}),
        ("changed", key, {"$pulse": "aes-gcm", "k": "k1", "c": "x" * 40}),
        ("in the clear", key, {"done": 1, "total": 2}),
        ("of no kind", key, [["x"]]),
    ]
    with all_faults() as about:
        for case, keys, value in progress:
            with about(case), override_settings(PULSE={"ENCRYPTION_KEYS": keys}):
                job = make_job(Status.RUNNING, sensitive=mask, progress=value)
                answer = client.get(rendered("{% pulse_progress_url job %}", job))
                assert answer.json() == {"stage": "running", "percent": None, "is_over": False}
                assert "running" in bar(job)


def test_it_needs_no_login_where_all_other_pages_do(client: Client, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    job = make_job()
    for view in ("job_progress", "job_progress_bar"):
        assert client.get(rendered(f'{{% pulse_progress_url job "{view}" %}}', job)).status_code == 200


def test_it_is_one_short_statement(client: Client) -> None:
    job = make_job(args=["x" * 100_000])
    url = rendered("{% pulse_progress_url job %}", job)
    with CaptureQueriesContext(connection) as asked:
        client.get(url)
        bar(job)
    assert len(asked) == 2
    assert not [one for one in asked if "args" in json.dumps(one)]
