"""The page for Prometheus: who may see it, and that what it says are the numbers of the tables."""

from __future__ import annotations

import ast
import importlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection
from django.http import HttpRequest
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import pulse_django
from pulse_django import conf
from pulse_django.metrics import vital_signs
from pulse_django.metrics.exporters import prometheus, readings
from pulse_django.metrics.exporters.exposition import BOUNDARIES, folded
from pulse_django.metrics.exporters.readings import Reading
from pulse_django.metrics.vital_signs import ALL, JOBS_ENQUEUED
from pulse_django.models import Job, Minute, Pause, Release, Schedule, Worker
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import SMALLEST, Histogram, SignKind
from pulse_django.queue.words.states import Status
from tests.factories import AttemptFactory, WorkerFactory, make_job, now, presence
from tests.faults import each_of
from tests.queue.steps import sql
from tests.schedules.test_declaring import declare, defined

pytestmark = pytest.mark.django_db

TOKEN = "a long token, with spaces and ümlauts"
HOSTILE = 'a"b\\c\nd{e="f"},\r\u2028é \x1b[2J1\n# TYPE x counter'
AS_LABEL = 'a"b\\\\c\\nd{e="f"},\\r\\u2028é \\x1b[2J1\\n# TYPE x counter'
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def token() -> Iterator[dict[str, str]]:
    """What a scraper sends that knows the token."""
    with override_settings(PULSE={"METRICS_TOKEN": TOKEN}):
        yield {"Authorization": f"Bearer {TOKEN.encode().decode('latin-1')}"}


def user(*permissions: str, **facts: Any) -> Client:
    known = User.objects.create_user("somebody", **facts)
    known.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(known)
    return client


def scrape(client: Client, **headers: str) -> dict[str, Metric]:
    response = client.get("/metrics", headers=headers)
    assert response.status_code == 200
    return families(response.content.decode())


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples(found: Mapping[str, Metric]) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in found.values()
        for sample in family.samples
    }


def number(found: Mapping[str, Metric], name: str, **labels: str) -> float:
    return samples(found)[name, frozenset(labels.items())]


def minute(ago: int = 1, signs: Mapping[str, Any] | None = None, **totals: Any) -> None:
    sql(
        "INSERT INTO pulse_django_minute (minute, signs, totals)"
        " SELECT date_trunc('minute', statement_timestamp()) - %s * interval '1 min', %s, %s",
        ago,
        json.dumps(signs or {}),
        json.dumps(totals),
    )


WRONG = [
    "Bearer wrong",
    "Bearer ",  # nothing
    "Bearer",
    f"Bearer {TOKEN}x",
    f"Basic {TOKEN}",
    TOKEN,
    "Bearer \udcff€",
]


class TestWhoMaySeeThem:
    def test_who_says_nothing_is_asked_who_he_is_and_learns_nothing(self, client: Client) -> None:
        make_job(queue="the-secret-project")
        response = client.get("/metrics")
        assert response.status_code == 401
        assert response["WWW-Authenticate"] == "Bearer"
        assert response.content == b"Authentication required.\n"

    def test_the_right_token_opens_them_without_a_session(self, client: Client, token: dict[str, str]) -> None:
        with CaptureQueriesContext(connection) as queries:
            assert "pulse_slots" in scrape(client, **token)
        assert len(queries) == 3

    @each_of(*WRONG)
    def test_a_wrong_token_opens_nothing(self, client: Client, token: dict[str, str], *, said: Any) -> None:
        response = client.get("/metrics", headers={"Authorization": said})
        assert response.status_code == 403
        assert b"pulse_" not in response.content

    @pytest.mark.parametrize("said", ["Bearer", "Bearer ", "Bearer x", ""])
    def test_no_token_opens_them_unless_one_is_set(self, client: Client, said: str) -> None:
        assert client.get("/metrics", headers={"Authorization": said}).status_code in (401, 403)

    def test_the_permission_opens_them_also_to_who_is_no_staff_until_he_leaves(self) -> None:
        response = user("pulse_view_jobs", is_staff=True).get("/metrics")
        assert response.status_code == 403
        assert b"pulse_" not in response.content
        User.objects.all().delete()
        client = user("pulse_view_board")
        assert "pulse_slots" in scrape(client)
        User.objects.filter(username="somebody").update(is_active=False)
        assert client.get("/metrics").status_code == 401

    def test_without_djangos_users_the_token_alone_counts(self, token: dict[str, str]) -> None:
        for said, status in (({}, 401), ({"HTTP_AUTHORIZATION": token["Authorization"]}, 200)):
            request = HttpRequest()
            request.method, request.META = "GET", said
            assert prometheus.metrics(request).status_code == status

    def test_a_site_that_wants_everybody_logged_in_lets_the_token_pass(self, token: dict[str, str]) -> None:
        assert prometheus.metrics.login_required is False  # type: ignore[attr-defined]

    def test_they_are_read_and_nothing_else(self, client: Client, token: dict[str, str]) -> None:
        head = client.head("/metrics", headers=token)
        assert (head.status_code, head.content) == (200, b"")
        assert client.post("/metrics", headers=token).status_code == 405
        assert client.put("/metrics", headers=token).status_code == 405

    @pytest.mark.parametrize("status", [200, 401, 403])
    def test_nobody_keeps_a_copy(self, client: Client, token: dict[str, str], status: int) -> None:
        said = {200: token, 401: {}, 403: {"Authorization": "Bearer wrong"}}[status]
        response = client.get("/metrics", headers=said)
        assert response.status_code == status
        assert "no-store" in response["Cache-Control"]

    def test_the_token_is_told_nowhere(self) -> None:
        parsed, problems = conf.parse({"METRICS_TOKEN": TOKEN})
        assert (parsed.metrics_token, problems) == (TOKEN, [])
        assert TOKEN not in repr(parsed)
        parsed, [problem] = conf.parse({"METRICS_TOKEN": TOKEN.encode()})
        assert parsed.metrics_token == ""
        assert "of type bytes" in problem.message
        assert "long token" not in repr(problem)


class TestWhatTheySay:
    def test_every_sign_has_its_name_its_meaning_and_its_type(self, client: Client, token: dict[str, str]) -> None:
        found = scrape(client, **token)
        for sign in ALL:
            family = found[f"pulse_{sign.name.removesuffix('_total')}"]
            assert (family.type, family.documentation) == (str(sign.kind), f"{sign.means} {sign.to_do}")
        assert len(found) == len(ALL)

    def test_depths_are_those_of_the_queues(self, client: Client, token: dict[str, str]) -> None:
        for _ in range(3):
            make_job(queue="mail", next_run_at=now(timedelta(seconds=-90)))
        make_job(queue="mail", next_run_at=now(timedelta(hours=1)))
        make_job(Status.RUNNING, queue="mail")
        make_job(Status.RUNNING, queue="reports")
        found = scrape(client, **token)
        assert number(found, "pulse_queue_due", queue="mail") == 3
        assert number(found, "pulse_queue_later", queue="mail") == 1
        assert 90 <= number(found, "pulse_queue_oldest_due_seconds", queue="mail") < 100
        assert number(found, "pulse_active_leases", queue="mail") == 1
        assert number(found, "pulse_active_leases", queue="reports") == 1
        assert number(found, "pulse_queue_due", queue="reports") == 0

    def test_a_paused_queue_is_told_also_if_it_is_empty(self, client: Client, token: dict[str, str]) -> None:
        make_job(queue="mail")
        for name, lasting in (("empty", None), ("ended", timedelta(hours=1))):
            Pause.objects.pause(queue=name, duration=lasting)
        make_job(queue="ended")
        Pause.objects.filter(queue="ended").update(paused_until=now(timedelta(seconds=-1)))
        found = scrape(client, **token)
        told = {name: number(found, "pulse_queue_paused", queue=name) for name in ("mail", "empty", "ended")}
        assert told == {"mail": 0, "empty": 1, "ended": 0}

    def test_the_rest_of_many_queues_counts_as_paused_only_if_all_are(
        self, client: Client, token: dict[str, str]
    ) -> None:
        for number_of_queue in range(counters.MOST_VALUES + 5):
            Pause.objects.pause(queue=f"customer-{number_of_queue}")
        assert number(scrape(client, **token), "pulse_queue_paused", queue=counters.OTHER) == 1
        make_job(queue="zebra", next_run_at=now(timedelta(hours=1)))
        assert number(scrape(client, **token), "pulse_queue_paused", queue=counters.OTHER) == 0

    def test_a_lost_worker_is_not_a_silent_one(self, client: Client, token: dict[str, str]) -> None:
        ago = now(timedelta(hours=-1))
        for name in ("lost", "acknowledged"):
            WorkerFactory(name=name, boot_id="b", last_beat_at=ago, started_at=ago)
        Worker.objects.mark_lost(timedelta(minutes=1))
        Worker.objects.acknowledge("acknowledged", "b", by="anna")
        WorkerFactory(last_beat_at=ago)
        WorkerFactory(stopped_at=ago)
        found = scrape(client, **token)
        told = {state: number(found, "pulse_workers", state=state) for state in ("alive", "silent", "lost")}
        assert told == {"alive": 0, "silent": 1, "lost": 1}

    def test_workers_are_those_that_are_alive(self, client: Client, token: dict[str, str]) -> None:
        for name, slots in (("a", 8), ("b", 4), ("silent", 16)):
            said = presence(name, slots=slots, in_flight=3, stuck_slots=1, vitals={"prefetched": 2})
            Worker.objects.note(said)
        Worker.objects.filter(name="silent").update(last_beat_at=now(timedelta(hours=-1)))
        found = scrape(client, **token)
        assert number(found, "pulse_workers", state="alive") == 2
        assert number(found, "pulse_workers", state="silent") == 1
        assert number(found, "pulse_slots") == 12
        assert number(found, "pulse_in_flight") == 6
        assert number(found, "pulse_stuck_slots") == 2
        assert number(found, "pulse_prefetched") == 4

    def test_the_release_of_the_newest_worker_is_told_with_its_time(
        self, client: Client, token: dict[str, str]
    ) -> None:
        minute(ago=2)
        assert scrape(client, **token)["pulse_release_timestamp_seconds"].samples == []
        seen_at = datetime(2026, 11, 20, 12, tzinfo=UTC)
        Release.objects.create(version="1.0", seen_at=seen_at - timedelta(days=1))
        Release.objects.create(version=HOSTILE, seen_at=seen_at)
        found = scrape(client, **token)
        assert number(found, "pulse_release_timestamp_seconds", version=AS_LABEL) == pytest.approx(seen_at.timestamp())
        assert len(found["pulse_release_timestamp_seconds"].samples) == 1

    @pytest.mark.parametrize("use_tz", [True, False])
    def test_how_late_a_schedule_is_in_seconds(
        self, client: Client, token: dict[str, str], settings: Any, use_tz: bool
    ) -> None:
        settings.USE_TZ = use_tz
        assert declare(defined())
        Schedule.objects.update(next_at=StatementTimestamp() - timedelta(minutes=5))
        minute()
        assert 300 <= number(scrape(client, **token), "pulse_schedule_lateness_seconds") < 400

    def test_counters_are_the_totals_of_the_latest_minute(self, client: Client, token: dict[str, str]) -> None:
        minute(
            ago=2,
            signs={"conditions": {"token-repeated": 3, "table-bloat": 1, "of-another-app": 2}},
            jobs_ended_total={"mail": {"COMPLETED": 1_234_567_890, "DEAD_LETTERED": 2}},
            heartbeats_total={"answered": 100, "failed": 1},
            lease_expirations_total=7,
            runs_total={"shop.charge": {"FAILED": 5}},
        )
        found = scrape(client, **token)
        assert number(found, "pulse_jobs_ended_total", queue="mail", status="COMPLETED") == 1_234_567_890
        assert number(found, "pulse_jobs_ended_total", queue="mail", status="DEAD_LETTERED") == 2
        assert number(found, "pulse_heartbeats_total", result="failed") == 1
        assert number(found, "pulse_lease_expirations_total") == 7
        assert number(found, "pulse_runs_total", task="shop.charge", outcome="FAILED") == 5
        assert number(found, "pulse_orphaned_jobs", condition="token-repeated") == 3
        assert number(found, "pulse_conditions", condition="token-repeated", severity="broken") == 3
        assert number(found, "pulse_conditions", condition="table-bloat", severity="risk") == 1
        assert number(found, "pulse_conditions", condition="of-another-app", severity="unknown") == 2
        assert len(found["pulse_orphaned_jobs"].samples) == 1, "a risk is no orphan"
        assert 120 <= number(found, "pulse_minute_age_seconds") < 190

    def test_a_counter_begins_at_zero_so_that_its_first_event_is_an_increase(
        self, client: Client, token: dict[str, str]
    ) -> None:
        found = scrape(client, **token)
        assert number(found, "pulse_lease_expirations_total") == 0
        assert number(found, "pulse_death_to_requeue_seconds_count") == 0
        assert found["pulse_minute_age_seconds"].samples == [], "no minute has been written"
        assert found["pulse_fencing_rejections"].samples == [], "nobody knows its labels yet"

    def test_counters_never_fall(self, client: Client, token: dict[str, str]) -> None:
        [(begin,)] = sql("SELECT date_trunc('minute', statement_timestamp()) - interval '5 min'")
        first, second = begin, begin + timedelta(minutes=1)
        work(first, queue="mail")
        Minute.objects.write(first)
        before = counted(scrape(client, **token))
        work(second, queue="mail")
        work(second, queue="reports")
        Minute.objects.write(second)
        after = counted(scrape(client, **token))
        assert all(after[key] >= value for key, value in before.items())
        mail = ("pulse_runs_total", frozenset({("task", "tests.add"), ("outcome", "FAILED")}))
        assert (before[mail], after[mail]) == (1, 3)
        assert Minute.objects.filter(totals__isnull=False).count() == 1

    def test_names_from_rows_come_through_as_they_are(self, client: Client, token: dict[str, str]) -> None:
        make_job(queue=HOSTILE, next_run_at=now(timedelta(seconds=-1)))
        minute(runs_total={HOSTILE: {"FAILED": 5}, "": {"FAILED": 1}})
        found = scrape(client, **token)
        assert number(found, "pulse_queue_due", queue=AS_LABEL) == 1
        assert number(found, "pulse_runs_total", task=AS_LABEL, outcome="FAILED") == 5
        assert len(found) == len(ALL)

    def test_many_queues_are_added_up(self, client: Client, token: dict[str, str]) -> None:
        for queue in range(300):
            waited = timedelta(hours=1) if queue == 299 else timedelta(seconds=1)
            make_job(queue=f"customer-{queue}", next_run_at=now(-waited))
        totals = counters.added({}, {JOBS_ENQUEUED.name: {f"customer-{queue}": 1 for queue in range(300)}})
        minute(**totals)
        found = scrape(client, **token)
        for name in ("pulse_queue_due", "pulse_jobs_enqueued"):
            assert len(found[name].samples) == counters.MOST_VALUES + 1
        assert number(found, "pulse_queue_due", queue=counters.OTHER) == 100
        assert number(found, "pulse_queue_oldest_due_seconds", queue=counters.OTHER) >= 3_600
        assert number(found, "pulse_jobs_enqueued_total", queue=counters.OTHER) == 100

    def test_no_job_is_named(self, client: Client, token: dict[str, str]) -> None:
        assert {label for sign in ALL for label in sign.labels}.isdisjoint({"id", "job", "job_id", "worker", "holder"})
        job = make_job(Status.RUNNING)
        sql("UPDATE pulse_django_job SET id = 987654321 WHERE id = %s", job.pk)
        assert "987654321" not in client.get("/metrics", headers=token).content.decode()

    def test_a_database_that_is_away_is_told_in_one_line(
        self, client: Client, token: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def away(alias: str) -> list[Reading]:
            raise OperationalError("connection to server at\n10.0.0.7 failed")

        monkeypatch.setattr(readings, "read", away)
        response = client.get("/metrics", headers=token)
        assert response.status_code == 503
        assert response.content == b"The database did not respond.\n"
        [line] = [record.getMessage() for record in caplog.records if record.name == "pulse_django.metrics"]
        assert "\n" not in line
        assert TOKEN not in line


class TestHistograms:
    def test_buckets_add_up_and_agree_with_the_count(self, client: Client, token: dict[str, str]) -> None:
        buckets = {"0": 2, "1": 3, "2": 4, "19": 5, "40": 6, "41": 7, "60": 8}
        minute(heartbeat_delay_seconds={"count": 35, "sum": 12.5, "buckets": buckets})
        found = scrape(client, **token)
        bounds = {
            float(sample.labels["le"]): sample.value
            for sample in found["pulse_heartbeat_delay_seconds"].samples
            if sample.name.endswith("_bucket")
        }
        assert list(bounds) == [*BOUNDARIES, math.inf]
        assert bounds[0.001] == 2
        assert bounds[0.002] == 2 + 3 + 4, "what lies between two doublings is counted below the upper"
        assert bounds[0.512] == 9
        assert bounds[1.024] == 14
        assert bounds[BOUNDARIES[-1]] == 20
        assert bounds[math.inf] == number(found, "pulse_heartbeat_delay_seconds_count") == 35
        assert list(bounds.values()) == sorted(bounds.values())
        assert number(found, "pulse_heartbeat_delay_seconds_sum") == 12.5

    @each_of(0.0, 0.001, 0.0011, 0.0015, 0.002, 0.3, 1.024, 1.025, 1_048.0, 1_049.0, 9e5)
    def test_nothing_is_counted_below_what_it_took(self, *, seconds: Any) -> None:
        one = Histogram()
        one.add(seconds)
        least = min(float(boundary) for boundary, count in folded(one.to_json()) if count == 1)
        assert least >= seconds
        assert least <= max(2 * seconds, SMALLEST) or least == math.inf


class TestWithoutThePackage:
    def test_the_page_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        monkeypatch.delitem(sys.modules, "pulse_django.metrics.exporters.prometheus")
        with pytest.raises(ImproperlyConfigured, match="pip install prometheus-client"):
            importlib.import_module("pulse_django.metrics.exporters.prometheus")

    def test_nothing_else_needs_it(self) -> None:
        for path in Path(pulse_django.__file__).parent.rglob("*.py"):
            tree = ast.parse(path.read_text())
            at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            assert not any("prometheus_client" in ast.unparse(node) for node in at_once), path


def work(begin: datetime, queue: str) -> None:
    """Something of everything, in that minute."""
    inside = begin + timedelta(seconds=30)
    job: Job = make_job(Status.DEAD_LETTERED, queue=queue, created_at=begin, finished_at=inside)
    AttemptFactory(job=job, outcome="FAILED", due_at=begin, started_at=begin, finished_at=inside)
    lost = inside - timedelta(seconds=4)
    AttemptFactory(job=job, number=2, outcome="WORKER_LOST", started_at=begin, finished_at=inside, last_seen_at=lost)


def counted(found: Mapping[str, Metric]) -> Samples:
    kinds = {f"pulse_{sign.name.removesuffix('_total')}" for sign in vital_signs.COUNTED}
    assert {name for name, family in found.items() if family.type != SignKind.GAUGE} == kinds
    return samples({name: family for name, family in found.items() if name in kinds})
