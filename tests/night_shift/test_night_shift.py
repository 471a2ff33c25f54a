"""A room from outside: its gate, its reason, its field of new jobs and its work for watchdogs are the package's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.test import RequestFactory
from django.urls import reverse

from pulse_django import Chunk, capabilities
from pulse_django.admin import JobAdmin
from pulse_django.health.explanation import explain
from pulse_django.models import Job
from pulse_django.queue import capability
from pulse_django.queue.capability import AtEnd, Capability, Gate, Internals, Satellite
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.run.codec import Codec, codec
from pulse_django.run.execute import perform
from pulse_django.run.run import Run
from pulse_django.shards.moving import movable
from pulse_django.tasks import task
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.watchdog import Watchdog
from tests.faults import all_faults
from tests.health.states import live_worker
from tests.night_shift import CAPABILITY, TABLE
from tests.queue.steps import sql

pytestmark = [pytest.mark.usefixtures("night_shift"), pytest.mark.alters_statements]

REPORT = "night.report"


@task(name=REPORT)
def report() -> None: ...


@task(name="rooms.any_time")
def any_time() -> None: ...


@task(name="rooms.in_chunks", chunk=10)
def in_chunks(chunk: Chunk) -> None: ...


@pytest.fixture
def night_shift(pulse_db: None) -> Iterator[None]:
    sql(TABLE)
    capability.install(*capability.installed(), CAPABILITY)
    try:
        yield
    finally:
        capabilities.install()
        sql("DROP TABLE night_shift")


def night_falls() -> None:
    sql("INSERT INTO night_shift VALUES (now(), 'infinity')")


def day_breaks() -> None:
    sql("UPDATE night_shift SET ends_at = now()")


def started() -> list[str]:
    return sorted(one.task for one in Job.objects.claim(Identity("me"), limit=9))


def test_jobs_of_the_night_start_at_night_only() -> None:
    Job.objects.enqueue_many([NewJob(task=REPORT), NewJob(task="other")])
    assert started() == ["other"]
    night_falls()
    assert started() == [REPORT]


def test_a_day_that_breaks_between_the_look_and_the_claim_lets_nothing_start() -> None:
    Job.objects.enqueue(NewJob(task=REPORT))
    night_falls()
    [waiting] = Job.objects.waiting()
    assert waiting.due_in <= 0
    day_breaks()
    assert started() == []


def test_by_day_they_are_set_aside_and_explained_and_at_night_they_come_back() -> None:
    Job.objects.enqueue(NewJob(task=REPORT))
    live_worker(tasks=None)
    dog = Watchdog(GuardedConnection("default", "watchdog"))
    dog.sweep()
    assert Job.objects.get().ready is None
    [reason] = explain(Job.objects.get().pk).reasons
    assert (reason.code, reason.sentence) == ("by-day", f"{REPORT} starts at night only.")
    night_falls()
    dog.sweep()
    dog.database.hang_up()
    assert started() == [REPORT]


def test_new_jobs_get_the_field_that_it_hands_in() -> None:
    report.enqueue()
    any_time.enqueue()
    assert dict(Job.objects.values_list("task", "give_up_after")) == {
        REPORT: timedelta(days=2), "rooms.any_time": None
    }  # fmt: skip


def test_watchdogs_do_its_work() -> None:
    sql("INSERT INTO night_shift VALUES (now() - interval '2 days', now() - interval '1 day'), (now(), 'infinity')")
    dog = Watchdog(GuardedConnection("default", "watchdog"))
    swept = dog.sweep()
    dog.database.hang_up()
    assert swept.said["nights"] == 1
    assert sql("SELECT ends_at = 'infinity' FROM night_shift") == [(True,)]


def test_a_column_of_the_job_list_is_plain_admin(rf: RequestFactory, admin_user: Any) -> None:
    class NightJobAdmin(JobAdmin):
        list_display = (*JobAdmin.list_display, "starts_at_night")

        @admin.display(description="night")
        def starts_at_night(self, job: Job) -> bool:
            return job.task == REPORT

    Job.objects.enqueue_many([NewJob(task=REPORT), NewJob(task="other")])
    request = rf.get(reverse("admin:pulse_django_job_changelist"))
    request.user = admin_user
    page = NightJobAdmin(Job, admin.site).changelist_view(request)
    cells = re.findall(r'class="field-starts_at_night">(\w+)<', page.render().content.decode())  # type: ignore[attr-defined]
    assert cells == ["False", "True"]


def test_a_point_that_does_not_exist_is_refused_with_a_sentence() -> None:
    with pytest.raises(TypeError, match=r"night: there is no extension point 'lane'\. There are: exists, gates, reads"):
        Capability(name="night", lane="night")  # type: ignore[call-arg]


def test_a_point_that_only_one_can_have_is_refused_to_a_second() -> None:
    with pytest.raises(ValueError, match="encryption and other both provide 'Codec'"):
        capability.install(*capability.installed(), Capability(name="other", internals=Internals(parts=(codec(),))))
    with pytest.raises(TypeError, match="Codec'> is not an instance of a class that derives from Single"):
        capability.install(Capability(name="other", internals=Internals(parts=(Codec,))))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two capabilities or steps have the same name"):
        capability.install(*capability.installed(), CAPABILITY)


def test_what_would_break_a_statement_is_refused_when_it_is_declared() -> None:
    gate = Gate(code="g", sentence="", job="{job}.id > 0", by_id=True)
    end = AtEnd({"lane_key": "text"}, over="", stayed="", is_noted="true")
    cases: list[tuple[str, dict[str, Any]]] = [
        ("columns that an ended job does not keep", {"at_end": end}),
        ("a gate with by_id cannot use the relation of reads", {"gates": (gate,), "reads": "SELECT 1"}),
        (
            "the SQL contains %, which would be read as a parameter",
            {"satellites": (Satellite(table="t", of_day="x LIKE 'a%'"),)},
        ),
    ]
    with all_faults() as about:
        for message, parts in cases:
            with about(message), pytest.raises(ValueError, match=message):
                Capability(name="night", **parts)


def test_a_task_uses_what_is_installed_now() -> None:
    """Though it was enqueued before, by an app that comes first."""
    capability.install(*(one for one in capability.installed() if one.name != CAPABILITY.name))
    report.enqueue()
    capability.install(*capability.installed(), CAPABILITY)
    report.enqueue()
    assert list(Job.objects.order_by("id").values_list("give_up_after", flat=True)) == [None, timedelta(days=2)]


def test_the_ready_of_an_app_that_comes_first_may_enqueue() -> None:
    """Models are loaded before any of them."""
    capability._installed = None
    apps.get_app_config("pulse_django").import_models()
    assert any_time.enqueue()


def test_rows_that_do_not_move_keep_their_job() -> None:
    sql("CREATE TABLE staying (job_id bigint)")
    job, other = (Job.objects.enqueue(NewJob(task="other")) for _ in range(2))
    sql("INSERT INTO staying VALUES (%s)", job.pk)
    capability.install(*capability.installed(), Capability(name="stays", satellites=(Satellite(table="staying"),)))
    assert list(movable(Job.objects.all())) == [other]
    sql("DROP TABLE staying")


def test_a_job_of_a_chunk_fails_as_any_other_without_its_capability() -> None:
    """And no StopIteration ends the loop that waits for its report."""
    capability.install(*(one for one in capability.installed() if one.name != "chunks"))
    in_chunks.enqueue(number=1)
    [claim] = Job.objects.claim(Identity("me"))
    performed = perform(Run(claim))
    assert performed.error is not None
