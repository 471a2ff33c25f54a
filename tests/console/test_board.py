"""The board, the queues and the workers: what they tell, what they cost, and who may do what there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.health import conditions
from pulse_django.metrics import traffic
from pulse_django.models import Minute, Pause, Worker
from pulse_django.queue.words.counters import TrafficCounts, TrafficKind
from pulse_django.queue.words.states import Status
from tests.console.staff import staff, text
from tests.factories import AttemptFactory, PauseFactory, make_job, now
from tests.factories import presence as of_a_worker
from tests.faults import each_of
from tests.health.states import record as minute
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.django_db

BOARD = reverse("admin:pulse_django_board_changelist")
QUEUES = reverse("admin:pulse_django_queue_changelist")
ONE = reverse("admin:pulse_django_queue_one")
MEANWHILE = "Another user has paused or resumed the queue in the meantime. Nothing was changed."
PAUSE, RESUME = reverse("admin:pulse_django_queue_pause"), reverse("admin:pulse_django_queue_resume")


def presence(name: str = "host-7", **facts: Any) -> Worker:
    said = {"boot_id": "b1", "host": "h7", "pid": 7, "versions": {"pulse": "1.2.3"}, "in_flight": 3}
    Worker.objects.note(of_a_worker(name, **(said | facts)))
    return Worker.objects.get(name=name)


class LaggingReplica:
    """A database that nothing has reached yet: it is not even there."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica" if model._meta.app_label == "pulse_django" else "default"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"

    def allow_relation(self, *objects: Any, **hints: Any) -> bool:
        return True


class TestTheBoard:
    def test_it_says_that_all_is_well_only_if_somebody_watches(self, admin_client: Client) -> None:
        assert "No recent data" in text(admin_client, BOARD)
        minute()
        page = text(admin_client, BOARD)
        assert "No problems" in page
        assert "No recent data" not in page
        Minute.objects.all().delete()
        minute(ago=10)
        page = text(admin_client, BOARD)
        assert "No problems" not in page, "that was ten minutes ago"
        assert "minutes-missing" in page
        Minute.objects.all().delete()
        minute(ago=-60 * 24 * 30, conditions={})
        assert "No recent data" in text(admin_client, BOARD), "a minute of the future says nothing"

    def test_what_cannot_be_checked_is_said(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        minute()
        slow = replace(conditions.named("table-bloat"), name="slow", sql="SELECT 1, pg_sleep(20)::text LIMIT %(limit)s")
        monkeypatch.setattr("pulse_django.health.conditions.catalogue._known", {"slow": slow})
        monkeypatch.setattr("pulse_django.health.conditions.asking.STATEMENT_TIMEOUT", "50ms")
        page = " ".join(text(admin_client, BOARD).split())
        assert "could not be checked: canceling statement due to statement timeout" in page
        assert "No problems" not in page

    def test_a_risk_alone_is_a_warning(self, admin_client: Client) -> None:
        minute()
        make_job(queue="mail", next_run_at=now(timedelta(hours=-1)))
        Pause.objects.pause(queue="mail")
        page = text(admin_client, BOARD)
        assert '<h2 id="pulse-verdict">Warnings</h2>' in page
        Pause.objects.resume(queue="mail")
        assert '<h2 id="pulse-verdict">Problems</h2>' in text(admin_client, BOARD)

    def test_an_hour_in_which_nobody_wrote_is_not_an_hour_in_which_nothing_happened(self, admin_client: Client) -> None:
        minute(ago=100, jobs_enqueued_total={"mail": 60}, runs_total={"a": {"TIMED_OUT": 1}})
        make_job(queue="mail")
        page = text(admin_client, BOARD)
        assert page.count("<dd><strong>–</strong>") == 8
        assert "latest –" in page

    @each_of(
        "null",
        "[]",
        "5",
        '{"conditions": null, "queues": {"mail": []}}',
        '{"conditions": [], "jobs_enqueued_total": null}',
        '{"death_to_requeue_seconds": {"buckets": {"x": 1}}, "unasked": 5}',
        '{"runs_total": {"a": 5}}',
        around=undone,
    )
    def test_a_minute_of_another_release_breaks_no_page(self, admin_client: Client, *, odd: Any) -> None:
        make_job(queue="mail")
        worker = presence()
        sql("UPDATE pulse_django_worker SET queues = 'null', versions = '[]', vitals = '{\"prefetched\": \"x\"}'")
        sql(
            "INSERT INTO pulse_django_minute (minute, signs)"
            " SELECT date_trunc('minute', clock_timestamp()) - interval '1 min', %s::jsonb",
            odd,
        )
        assert worker.name in text(admin_client, BOARD)
        assert "mail" in text(admin_client, QUEUES)
        assert "mail" in text(admin_client, ONE, name="mail")

    def test_a_thousand_queues_are_one_page(self, admin_client: Client) -> None:
        sql(
            "INSERT INTO pulse_django_job (task, queue)"
            " SELECT 'tests.add', 'queue-' || n FROM generate_series(1, 1000) AS n"
        )
        page = text(admin_client, BOARD)
        assert page.count('<th scope="row">') == 50
        assert "and 950 more queues" in page
        page = text(admin_client, QUEUES)
        assert page.count('<th scope="row">') == 200
        assert "and 800 more queues" in page

    def test_it_tells_what_is_wrong_and_what_to_do(self, admin_client: Client) -> None:
        minute(conditions={"of-another-app": 1, "task-unknown": 5})
        make_job(queue="<mail>", next_run_at=now(timedelta(hours=-1)))
        page = " ".join(text(admin_client, BOARD).split())
        assert "<strong>queue-without-worker</strong> (stuck, 1): <a href=" in page
        assert "&lt;mail&gt;</a>: due for 01:00:0" in page
        assert "Start a worker for the queue" in page
        assert "task-unknown" not in page, "that was a minute ago"
        assert "of-another-app" in page
        assert "This condition is not registered in this process" in page
        assert "No problems" not in page

    def test_queues_are_told_with_their_depths_rates_and_pauses(self, admin_client: Client) -> None:
        for ago in range(1, 6):
            minute(ago=ago, jobs_enqueued_total={"mail": 60}, jobs_ended_total={"mail": {"COMPLETED": 20}})
            counts = TrafficCounts(enqueued=60, started=50, succeeded=20, failed=30, died=10)
            traffic.write("default", Minute.objects.order_by("minute")[0].minute, {(TrafficKind.QUEUE, "mail"): counts})
        for _ in range(2):
            make_job(Status.DEAD_LETTERED, queue="mail")
        for _ in range(3):
            make_job(queue="mail", next_run_at=now(timedelta(seconds=-90)))
        make_job(queue="mail", next_run_at=now(timedelta(hours=1)))
        make_job(Status.RUNNING, queue="mail")
        Pause.objects.pause(queue="mail", reason="the provider is down")
        page = text(admin_client, BOARD)
        row = page.split('<th scope="row">')[1].split("</tr>")[0]
        numbers = re.findall(r'<td class="pulse-number[^"]*">(?:<a[^>]*>)?([^<]*)', row)
        assert numbers == ["3", "1m 30s", "1", "1", "2", "60", "50", "20", "30", "10"], "what died is no output"
        assert "Paused" in row
        assert "the provider is down" in row
        assert 'class="pulse-spark-first"' in row

    @each_of("dead", "paused", "quiet", around=undone)
    def test_a_queue_does_not_vanish_when_its_last_job_is_over(self, admin_client: Client, *, state: Any) -> None:
        """6,343 dead letters once lay in a queue that no page showed."""
        if state == "dead":
            make_job(Status.DEAD_LETTERED, queue="mail", finished_at=now(timedelta(days=-20)))
        elif state == "paused":
            Pause.objects.pause(queue="mail", reason="x")
        else:
            minute()
            last = Minute.objects.get().minute - timedelta(days=1)
            counts = {(TrafficKind.QUEUE, "mail"): TrafficCounts(succeeded=1)}
            # The second completes the two hours.
            for begin in (last, last + timedelta(hours=2, minutes=10)):
                traffic.write("default", begin, counts)
            traffic.forget("default")
        for url in (BOARD, QUEUES, f"{reverse('admin:pulse_django_job_changelist')}?status__exact=PENDING"):
            assert "name=mail" in text(admin_client, url) or "queue=mail" in text(admin_client, url)

    def test_the_page_of_a_queue_has_charts(self, admin_client: Client) -> None:
        minute()
        counts = {(TrafficKind.QUEUE, "mail"): TrafficCounts(succeeded=3, failed=1)}
        traffic.write("default", Minute.objects.get().minute, counts)
        page = text(admin_client, ONE, name="mail", window="hour")
        assert page.count("<svg role=") == 3
        assert "3 succeeded, 1 failed" in page

    def test_a_hundred_queues_without_a_worker_are_one_line_with_links(self, admin_client: Client) -> None:
        for number in range(10):
            make_job(queue=f"queue-{number}", next_run_at=now(timedelta(hours=-1)))
        page = text(admin_client, BOARD)
        assert page.count("<strong>queue-without-worker</strong>") == 1
        [line] = re.findall(r'<li class="pulse-alarm pulse-alarm-stuck">(.*?)</details>', page, re.S)
        first, others = line.split("<details>")
        links = {re.search(r"name=(queue-\d)", url)[1] for url in re.findall(r'href="([^"]+)"', first)}  # type: ignore[index]
        assert len(links) == 3
        assert "and 7 more" in first
        assert len(re.findall(r'href="[^"]+name=queue-\d"', others)) == 7
        for number in range(10, 21):
            make_job(queue=f"queue-{number}", next_run_at=now(timedelta(hours=-1)))
        page = text(admin_client, BOARD)
        assert "(stuck, 20+)" in page, "no more were counted"
        assert "and 17+ more" in page

    def test_an_alarm_leads_to_the_page_that_mends_it(self, admin_client: Client) -> None:
        for _ in range(101):
            make_job(Status.DEAD_LETTERED, queue="mail", task="shop.send", attempts=0)
        job = make_job(Status.RUNNING, lease_until=now(timedelta(minutes=-10)))
        presence(stuck_slots=2)
        page = text(admin_client, BOARD)
        urls = re.findall(r'href="([^"]+)"', page.split('class="pulse-troubles"')[1].split("</section>")[0])
        for url in (
            f"{ONE}?name=mail",
            f"{reverse('admin:pulse_django_taskoverview_one')}?name=shop.send",
            reverse("admin:pulse_django_deadletter_changelist"),
            reverse("admin:pulse_django_job_change", args=[job.pk]),
            f"{reverse('admin:pulse_django_worker_changelist')}?name=host-7",
        ):
            assert url in urls
            assert admin_client.get(url).status_code == 200

    def test_a_deep_queue_is_told_by_the_watchdogs_count(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pulse_django.health.snapshot.GLANCED", 10)
        for _ in range(12):
            make_job(queue="mail")
        assert '<td class="pulse-number">11+</td>' in text(admin_client, BOARD)
        minute(queues={"mail": [4_200_000, 0, 1.0]}, conditions={})
        assert "about 4200000" in text(admin_client, BOARD)

    def test_workers_are_told_with_what_is_odd_about_them(self, admin_client: Client) -> None:
        presence(stuck_slots=2)
        presence("host-8")
        sql("UPDATE pulse_django_worker SET last_beat_at = clock_timestamp() - interval '1 h' WHERE name = 'host-8'")
        page = text(admin_client, BOARD)
        assert "pulse 1.2.3" in page
        assert '<strong class="pulse-warning">2</strong>' in page
        assert '<strong class="pulse-warning">silent</strong>' in page

    def test_recovery_is_told_in_numbers(self, admin_client: Client) -> None:
        beats = {"answered": 199, "failed": 1}
        waits = {"mail": {"count": 10, "sum": 1.0, "buckets": {"10": 10}}}
        minute(ago=4, heartbeats_total=beats, lease_acquisition_seconds=waits, heartbeat_delay_seconds=waits["mail"])
        took = {"count": 4, "sum": 100.0, "buckets": {"29": 3, "30": 1}}
        runs = {"a": {"WORKER_LOST": 3, "TIMED_OUT": 1}, "b": {"WORKER_LOST": 1, "STALLED": 1}}
        minute(ago=2, runs_total=runs, death_to_requeue_seconds=took)
        rejected = {"settle": 2, "heartbeat": 1}
        minute(ago=3, fencing_rejections_total=rejected, jobs_ended_total={"mail": {"DEAD_LETTERED": 5}})
        minute(ago=5, lease_expirations_total=6, recovery_requeues_total=7)
        minute(ago=90, runs_total={"a": {"WORKER_LOST": 100}})
        make_job(Status.RUNNING, lease_until=now(timedelta(minutes=-5)))
        page = text(admin_client, BOARD)
        values = [one.split("</strong>")[0] for one in page.split("<dd><strong>")[1:]]
        waited, died = "p50 0.0s, p99 0.0s", "p50 23s, p99 32s"
        assert values == ["1", waited, "99.50%", "6", "7", died, "3", "2", "5"]

    def test_it_renews_itself_and_can_be_held_still(self, admin_client: Client) -> None:
        assert '<meta http-equiv="refresh" content="10">' in text(admin_client, BOARD)
        assert "http-equiv" not in text(admin_client, BOARD, still="").split("</head>")[0].replace("Content-Type", "")

    def test_it_takes_a_dozen_queries_with_those_for_the_user(self, admin_client: Client) -> None:
        for number in range(20):
            make_job(queue=f"queue-{number}")
            presence(f"host-{number}")
        minute(conditions={})
        with CaptureQueriesContext(connection) as queries:
            text(admin_client, BOARD)
        assert len([one for one in queries if one["sql"].lstrip().startswith(("SELECT", "WITH", "(SELECT"))]) <= 12

    def test_it_links_only_to_what_may_be_seen(self) -> None:
        make_job(queue="mail", next_run_at=now(timedelta(hours=-1)))
        worker = presence(queues=["other"])
        links = (ONE, reverse("admin:pulse_django_worker_change", args=[worker.pk]))
        page = text(staff("pulse_view_board"), BOARD)
        assert "mail: due for" in " ".join(page.split())
        assert not [link for link in links if link in page]
        User.objects.all().delete()
        page = text(staff("pulse_view_board", "pulse_view_queues", "pulse_view_workers"), BOARD)
        assert [link for link in links if link in page] == list(links)


class TestQueues:
    def pause(self, client: Client, **data: Any) -> Any:
        wanted = {"name": "mail", "reason": "the provider is down", "duration": 3600} | data
        return client.post(PAUSE, wanted, follow=True)

    def shown(self, client: Client, name: str = "mail") -> dict[str, str]:
        """The hidden fields of the form on a queue's page."""
        form = text(client, ONE, name=name).split('class="pulse-acts"')[1].split("</form>")[0]
        return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))

    def test_those_that_hold_jobs_and_those_that_are_paused_are_listed(self, admin_client: Client) -> None:
        make_job(queue="full")
        make_job(Status.RUNNING, queue="running")
        Pause.objects.pause(queue="paused")
        page = text(admin_client, QUEUES)
        names = ["full", "running", "paused"]
        assert [name for name in names if f"?name={name}" in page] == names

    def test_pausing_takes_a_reason_and_an_end_and_is_logged(self) -> None:
        client = staff("pulse_view_queues", "pulse_operate_queues")
        page = self.pause(client).content.decode()
        queue = Pause.objects.get()
        assert queue.reason == "the provider is down"
        assert abs(queue.paused_until - queue.paused_at - timedelta(hours=1)) < timedelta(seconds=1)
        assert "Paused (1 hour): the provider is down. It stops 0 waiting jobs." in page
        entry = LogEntry.objects.get()
        assert (entry.user.username, entry.object_repr) == ("operator", "mail")
        assert "the provider is down" in entry.change_message
        history = reverse("admin:pulse_django_queue_history", args=["mail"])
        assert "the provider is down" in text(client, history)

    def test_a_name_that_ends_in_a_space_is_another_queue(self, admin_client: Client) -> None:
        for name in ("mail", "mail "):
            make_job(queue=name)
        assert f'href="{ONE}?name=mail%20"' in text(admin_client, QUEUES)
        assert 'name="name" value="mail "' in text(admin_client, ONE, name="mail ")
        self.pause(admin_client, name="mail ", duration=0)
        paused = Pause.objects.get()
        assert (paused.queue, paused.paused_until) == ("mail ", None)

    def test_resuming_is_logged_too_and_happens_once(self, admin_client: Client) -> None:
        self.pause(admin_client)
        seen = self.shown(admin_client)
        page = admin_client.post(RESUME, seen | {"reason": "it is back"}, follow=True).content.decode()
        assert "Resumed: it is back" in page
        assert not Pause.objects.exists()
        page = admin_client.post(RESUME, seen, follow=True).content.decode()
        assert MEANWHILE in page
        assert LogEntry.objects.count() == 2

    def test_another_pause_than_the_page_showed_is_not_ended(self, admin_client: Client) -> None:
        Pause.objects.pause(queue="mail", reason="a deploy")
        seen = self.shown(admin_client)
        Pause.objects.resume(queue="mail")
        Pause.objects.pause(queue="mail", reason="customers are charged twice")
        page = admin_client.post(RESUME, seen | {"reason": "the deploy is over"}, follow=True).content.decode()
        assert MEANWHILE in page
        assert Pause.objects.exists()
        assert not LogEntry.objects.exists()

    def test_a_pause_that_the_page_did_not_show_is_not_changed(self, admin_client: Client) -> None:
        Pause.objects.pause(queue="mail", reason="customers are charged twice", duration=timedelta(minutes=1))
        page = self.pause(admin_client, duration=600).content.decode()
        assert MEANWHILE in page
        assert Pause.objects.get(paused_until__lt=now(timedelta(minutes=2))).reason == "customers are charged twice"

    def test_a_pause_that_ended_is_none_whether_or_not_it_was_cleared(self, admin_client: Client) -> None:
        for cleared in (True, False):
            PauseFactory(queue=f"mail-{cleared}", paused_at=now(timedelta(-2)), paused_until=now(timedelta(-1)))
            seen = self.shown(admin_client, f"mail-{cleared}")
            if cleared:
                Pause.objects.forget_ended()
            assert "Paused (1 hour)" in self.pause(admin_client, **seen | {"seen": ""}).content.decode()

    @each_of("", "x", "2026-13-01", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", around=undone)
    def test_a_form_that_does_not_say_what_it_showed_changes_nothing(self, admin_client: Client, *, seen: Any) -> None:
        Pause.objects.pause(queue="mail")
        data = {"name": "mail", "reason": "x", "seen": seen}
        assert MEANWHILE in admin_client.post(RESUME, data, follow=True).content.decode()
        assert Pause.objects.exists()

    @each_of(
        {"reason": ""},
        {"duration": 5},
        {"name": ""},
        {"name": "x" * 500},
        {"name": "a\0"},
        {"name": "a\u200bb"},
        {"name": "a\tb"},
        {"name": "a\nb"},
        {"name": "a\xa0b"},
        {"name": "\u202ex"},
        around=undone,
    )
    def test_nonsense_is_refused_with_a_reason(self, admin_client: Client, *, data: Any) -> None:
        page = self.pause(admin_client, **data).content.decode()
        assert 'class="error"' in page
        assert not Pause.objects.exists()

    @each_of(PAUSE, RESUME, around=undone)
    def test_only_operators_may_and_only_by_a_form_of_ours(self, *, url: Any) -> None:
        Pause.objects.pause(queue="mail")
        data = {"name": "mail", "reason": "x", "duration": 0, "seen": "none"}
        assert Client().post(url, data).status_code == 302, "to the login"
        looking = staff("pulse_view_queues")
        assert looking.post(url, data).status_code == 403
        assert url not in text(looking, ONE, name="mail")
        User.objects.all().delete()
        assert staff("pulse_operate_queues").post(url, data).status_code == 403, "who may not see it"
        User.objects.all().delete()
        client = staff("pulse_view_queues", "pulse_operate_queues", enforce_csrf_checks=True)
        assert client.post(url, data).status_code == 403
        assert client.get(url, data).status_code == 405
        assert Pause.objects.get().reason == ""

    def test_a_queue_is_shown_by_name_also_if_nothing_is_known_of_it(self, admin_client: Client) -> None:
        page = text(admin_client, ONE, name="never seen")
        assert "Not paused" in page
        for query in ({}, {"name": ""}, {"name": "\0"}):
            assert admin_client.get(ONE, query).url == QUEUES  # type: ignore[attr-defined]

    def test_it_is_read_where_it_is_written(self, admin_client: Client, settings: Any) -> None:
        """A replica may lag behind: what was just written is not there yet."""
        settings.DATABASE_ROUTERS = [LaggingReplica()]
        assert "Paused (1 hour)" in self.pause(admin_client).content.decode()
        assert LogEntry.objects.get().object_repr == "mail"
        page = admin_client.post(RESUME, self.shown(admin_client) | {"reason": "it is back"}, follow=True)
        assert "Resumed: it is back" in page.content.decode()

    def test_the_log_leads_to_its_page(self, admin_client: Client) -> None:
        Pause.objects.pause(queue="a & b")
        change = reverse("admin:pulse_django_queue_change", args=[quote("a & b")])
        assert admin_client.get(change).url == f"{ONE}?name=a+%26+b"  # type: ignore[attr-defined]


class TestWorkers:
    def page(self, client: Client, worker: Worker) -> str:
        return text(client, reverse("admin:pulse_django_worker_change", args=[worker.pk]))

    def test_the_list_tells_who_lives(self, admin_client: Client) -> None:
        presence("alive-1")
        presence("gone-1")
        Worker.objects.farewell("gone-1", "b1")
        page = text(admin_client, reverse("admin:pulse_django_worker_changelist"))
        assert '<td class="field-state">alive</td>' in page
        assert '<td class="field-state">stopped</td>' in page

    def test_a_page_tells_what_it_runs_and_what_died_with_it(self, admin_client: Client) -> None:
        worker = presence(vitals={"beats": 90, "beat_failures": 2, "beat_delays": {"2": 88, "20": 2}})
        mine = make_job(Status.RUNNING, locked_by="host-7:b1.2:3", progress={"done": 1, "total": 4})
        alone = make_job(Status.RUNNING, locked_by="host-7:b1:9", task="tests.alone")
        other = make_job(Status.RUNNING, locked_by="host-7:b10:3", task="tests.other")
        lost = make_job(Status.RETRYING, task="tests.lost")
        AttemptFactory(job=lost, outcome="WORKER_LOST", worker="host-7:b1.1:1", late_outcome="FAILED", late_at=now())
        ended = make_job(Status.COMPLETED, task="tests.ended")
        AttemptFactory(job=ended, worker="host-7:b1:2")
        page = self.page(admin_client, worker)
        for job, is_shown in ((mine, True), (alone, True), (other, False), (lost, True), (ended, False)):
            assert (reverse("admin:pulse_django_job_change", args=[job.pk]) in page) == is_shown, job
        assert '<progress max="1" value="0.2500"' in page
        assert "reported Failed at" in page
        assert "90 successful, 2 failed" in page

    @each_of(
        ("queues", None),
        ("queues", "all"),
        ("queues", {"mail": 1}),
        ("queues", 5),
        ("versions", None),
        ("versions", []),
        ("tasks", None),
        ("tasks", {}),
        ("tasks", 5),
        ("vitals", None),
        ("vitals", []),
        ("vitals", 5),
        ("vitals", {"beats": "many", "beat_failures": None}),
        ("vitals", {"beat_delays": None}),
        ("vitals", {"beat_delays": {"x": 1}}),
        ("vitals", {"beat_delays": {"1": "x"}}),
        ("vitals", {"beat_delays": {"1" * 9: 1}}),
        around=undone,
    )
    def test_what_another_release_said_in_another_shape_closes_no_page(
        self, admin_client: Client, *, column: Any, said: Any
    ) -> None:
        worker = presence()
        sql(f"UPDATE pulse_django_worker SET {column} = %s::jsonb", json.dumps(said))
        text(admin_client, reverse("admin:pulse_django_worker_changelist"))
        self.page(admin_client, worker)

    def test_a_host_that_cannot_be_is_refused_as_django_does(self, admin_client: Client) -> None:
        response = admin_client.get(reverse("admin:pulse_django_worker_changelist"), {"host": "\0"})
        assert response.url.endswith("?e=1")  # type: ignore[attr-defined]

    def test_jobs_are_links_only_for_those_who_may_see_jobs(self) -> None:
        worker = presence()
        job = make_job(Status.RUNNING, locked_by="host-7:b1:3")
        page = self.page(staff("pulse_view_workers"), worker)
        assert str(job) in page
        assert reverse("admin:pulse_django_job_change", args=[job.pk]) not in page
