from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import InternalError, OperationalError, connection
from django.test.utils import CaptureQueriesContext

from pulse_django.health import snapshot
from pulse_django.management.commands.pulse_status import Command
from pulse_django.models import Job, Pause, Worker
from pulse_django.operations import preview
from pulse_django.queue.database.read_only import read_only
from pulse_django.queue.words.states import Status
from tests.factories import WorkerFactory, make_job, now, presence
from tests.faults import each_of
from tests.operations.steps import Terminal, run, run_json
from tests.plans.fleet import ERA, past_days
from tests.queue.steps import sql

FINISHED = 100_000
DAY = 400  # blocks: what was looked at may be all of a day


@pytest.mark.usefixtures("pulse_db")
class TestHealth:
    def test_an_empty_queue_is_well(self) -> None:
        assert run("pulse_status").startswith("No problems found.")
        assert run_json("pulse_status")["is_well"] is True

    def test_it_exits_with_1_if_there_are_problems(self) -> None:
        call_command("pulse_status", stdout=StringIO())
        WorkerFactory(stuck_slots=1)  # a warning
        call_command("pulse_status", stdout=StringIO())
        make_job(Status.RUNNING, queue="mail", lease_until=now(timedelta(minutes=-10)))
        for flags in ([], ["--json"]):
            with pytest.raises(SystemExit) as ended:
                call_command("pulse_status", *flags, stdout=StringIO())
            assert ended.value.code == 1
        call_command("pulse_status", "--queue", "mail", stdout=StringIO())  # nothing was asked

    def test_queues_are_told_with_what_waits_and_for_how_long(self) -> None:
        make_job(queue="mail", next_run_at=now(timedelta(minutes=-10)))
        make_job(Status.RETRYING, queue="mail", next_run_at=now(timedelta(minutes=-20)))
        make_job(queue="mail", next_run_at=now(timedelta(hours=1)))
        make_job(Status.RUNNING, queue="mail")
        make_job(queue="idle", next_run_at=now(timedelta(hours=1)))
        [mail, idle] = run_json("pulse_status")["queues"]
        assert (mail["name"], mail["due"], mail["later"], mail["running"]) == ("mail", 2, 1, 1)
        assert 1_200 <= mail["oldest_due"] < 1_260
        assert (idle["name"], idle["due"], idle["later"], idle["oldest_due"]) == ("idle", 0, 1, None)
        assert "20m" in run("pulse_status")

    def test_a_pause_is_told_with_its_reason_and_end_also_of_an_empty_queue(self) -> None:
        Pause.objects.pause(queue="mail", reason="ask \x1b[2J Ada", duration=timedelta(hours=1))
        Pause.objects.pause(queue="over", duration=timedelta(microseconds=1))
        [mail] = run_json("pulse_status")["queues"]
        assert (mail["is_paused"], mail["pause_reason"]) == (True, "ask \x1b[2J Ada")
        assert mail["paused_until"]
        said = run("pulse_status")
        assert "PAUSED until" in said
        assert "ask \\x1b[2J Ada" in said

    def test_every_status_is_counted(self) -> None:
        expected = {status.value: 1 + (status in (Status.RETRYING, Status.CANCELLED)) for status in Status}
        for status, jobs in expected.items():
            for _ in range(jobs):
                make_job(Status(status))
        counts = {count["status"]: count["jobs"] for count in run_json("pulse_status")["statuses"]}
        assert counts == expected

    def test_workers_are_told_and_those_that_stopped_only_when_asked_for(self) -> None:
        said = presence("w", versions={"django": "5.2"}, queues=["mail"], in_flight=3, stuck_slots=1)
        Worker.objects.note(said)
        WorkerFactory(name="gone", stopped_at=now())
        [worker] = run_json("pulse_status")["workers"]
        assert (worker["slots"], worker["in_flight"], worker["stuck_slots"], worker["queues"]) == (8, 3, 1, ["mail"])
        assert worker["last_beat"] < 30
        assert [worker["name"] for worker in run_json("pulse_status", "--all")["workers"]] == ["w", "gone"]
        assert "django 5.2" in run("pulse_status")

    def test_the_latest_five_dead_letters_are_told_with_their_first_line(self) -> None:
        for number in range(7):
            make_job(Status.DEAD_LETTERED, finished_at=now(timedelta(hours=-number)), last_error=f"E{number}\nrest")
        letters = run_json("pulse_status")["dead_letters"]
        assert [letter["error"] for letter in letters] == ["E0", "E1", "E2", "E3", "E4"]
        assert "rest" not in run("pulse_status")

    def test_the_server_refuses_it_every_write(self) -> None:
        job = make_job()
        with pytest.raises(InternalError, match="read-only"), read_only("default"):
            Job.objects.request_cancel([job.pk])
        Job.objects.request_cancel([job.pk])  # and only there
        assert Job.objects.get().status == Status.CANCELLED

    def test_it_says_why_it_cannot_look(self) -> None:
        with pytest.raises(CommandError, match="'nowhere' is not in DATABASES"):
            run("pulse_status", "--shard", "nowhere")


@pytest.mark.usefixtures("pulse_db")
class TestMatching:
    def test_every_status_can_be_asked_for(self) -> None:
        jobs = {one: make_job(one, queue="mail") for one in Status}
        for status in Status:
            make_job(status, queue="other")
            facts = run_json("pulse_status", "--status", status.lower(), "--queue", "mail")
            assert facts["kinds"] == [{"jobs": 1, "status": status, "task": "tests.add"}]
            assert [job["id"] for job in facts["newest"]] == [jobs[status].pk]

    def test_the_newest_of_all_statuses_are_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(preview, "NEWEST", 8)
        jobs = [make_job(status) for _ in range(2) for status in Status]
        facts = run_json("pulse_status", "--task", "tests.add")
        assert [job["id"] for job in facts["newest"]] == [job.pk for job in reversed(jobs)][:8]
        assert sum(kind["jobs"] for kind in facts["kinds"]) == 2 * len(Status)

    def test_ids_are_shown_whatever_they_are(self) -> None:
        done = make_job(Status.COMPLETED)
        assert [job["id"] for job in run_json("pulse_status", done.pk)["newest"]] == [done.pk]
        assert run("pulse_status", 10**12) == "No jobs match.\n"

    def test_of_what_completed_only_the_latest_are_looked_at_and_it_says_so(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(preview, "LATEST", 3)
        for number in range(4):
            make_job(Status.COMPLETED, finished_at=now(timedelta(hours=-number)))
        facts = run_json("pulse_status", "--queue", "default")
        assert (facts["is_partial"], facts["kinds"][0]["jobs"]) == (True, 3)
        facts = run_json("pulse_status", "--queue", "default", "--older-than", "90m")
        assert (facts["is_partial"], facts["kinds"][0]["jobs"]) == (False, 2)


@pytest.fixture(scope="class")
def much_finished(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """100,000 completed jobs, and a little of everything else."""
    with django_db_blocker.unblock():
        sql("TRUNCATE pulse_django_job, pulse_django_attempt")
        with past_days():
            sql(
                "INSERT INTO pulse_django_job (era, task, status, attempts, finished_at, created_at)"
                f" SELECT {ERA}, 'tests.add', 'COMPLETED', 1, at, at FROM (SELECT"
                " clock_timestamp() - n * interval '6 s' AS at FROM generate_series(%s, 1, -1) AS n) AS past",
                FINISHED,
            )
            sql(
                "INSERT INTO pulse_django_job (task, status, attempts, last_error, finished_at)"
                " SELECT 'tests.add', 'DEAD_LETTERED', 1, 'E', clock_timestamp() FROM generate_series(1, 100)"
            )
            sql("INSERT INTO pulse_django_job (task) SELECT 'tests.add' FROM generate_series(1, 100)")
            sql("SELECT pg_stat_force_next_flush()")  # or these rows would be counted once more after the VACUUM
            sql("VACUUM ANALYZE pulse_django_job")
            yield
        sql("TRUNCATE pulse_django_job, pulse_django_attempt")
        connection.close()


@pytest.fixture
def reachable(django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


@pytest.mark.usefixtures("much_finished", "reachable")
class TestBesideManyFinishedJobs:
    @each_of(
        [],
        ["--queue", "default"],
        ["--task", "tests.none"],
        ["--error", "nothing like it"],
        ["--status", "COMPLETED", "--task", "tests.none"],
        ["--older-than", "3d"],
        ["--newer-than", "3d", "--queue", "none"],
    )
    def test_a_status_is_a_few_bounded_reads(self, *, args: Any) -> None:
        with CaptureQueriesContext(connection) as seen:
            run("pulse_status", *args)
        asked = (query["sql"] for query in seen.captured_queries)
        reads = [sql for sql in asked if "SELECT" in sql and "set_config" not in sql]
        assert 0 < len(reads) <= 13
        for read in reads:
            [(plan,)] = sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {read.replace('%', '%%')}")
            root = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
            scanned = [node for node in nodes(root) if node["Node Type"] == "Seq Scan"]
            jobs = [node for node in scanned if node["Relation Name"].startswith("pulse_django_job")]
            assert [node for node in jobs if node["Shared Hit Blocks"] + node["Shared Read Blocks"] > DAY] == []
            # All conditions in one.
            most = 10_000 if "dead_letters" in read or "'latest minute'" in read else 1_000
            # The latest 10,000 that were completed are counted.
            most = 5_000 if "AS latest" in read else most
            assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] < most, read

    def test_completed_jobs_are_estimated_and_marked_so(self) -> None:
        counts = {count["status"]: count for count in run_json("pulse_status")["statuses"]}
        assert counts["COMPLETED"]["is_estimate"]
        assert abs(counts["COMPLETED"]["jobs"] - FINISHED) < FINISHED / 50
        assert (counts["DEAD_LETTERED"]["jobs"], counts["DEAD_LETTERED"]["is_estimate"]) == (100, False)
        assert "~" in run("pulse_status")

    def test_the_estimate_does_not_stand_still_until_the_next_analyze(self) -> None:
        def completed() -> int:
            [count] = [one["jobs"] for one in run_json("pulse_status")["statuses"] if one["status"] == "COMPLETED"]
            return int(count)

        before = completed()
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO pulse_django_job SELECT"
                " (jsonb_populate_record(job, jsonb_build_object('id', 1000000000 + id))).*"
                " FROM pulse_django_job AS job WHERE status = 'COMPLETED' LIMIT 5000"
            )
            cursor.execute("SELECT pg_stat_force_next_flush()")
        try:
            assert completed() > before
        finally:
            with connection.cursor() as cursor:
                cursor.execute("DELETE FROM pulse_django_job WHERE id > 1000000000")

    def test_without_statistics_it_says_what_it_saw(self) -> None:
        counted = snapshot._counted(Status.COMPLETED, snapshot.COUNTED + 1, 0)
        assert (counted.jobs, counted.is_estimate) == (snapshot.COUNTED + 1, True)


@pytest.mark.usefixtures("pulse_db")
class TestVitalSigns:
    def write(self) -> None:
        signs = {
            "lease_acquisition_seconds": {"mail": {"count": 10, "sum": 1.0, "buckets": {"14": 9, "24": 1}}},
            "heartbeats_total": {"answered": 99, "failed": 1},
            "lease_expirations_total": 3,
            "fencing_rejections_total": {"settle": 1, "heartbeat": 1},
            "conditions": {"task-unknown": 2},
        }
        sql(
            "INSERT INTO pulse_django_minute (minute, signs)"
            " SELECT date_trunc('minute', clock_timestamp()) - interval '1 min', %s",
            json.dumps(signs),
        )

    def test_they_are_told_in_words(self) -> None:
        make_job(Status.RUNNING)
        assert "nothing was recorded in the last minutes" in told()
        self.write()
        rows = [" ".join(line.split()) for line in told().split("Vital signs")[1].splitlines()]
        assert "active leases 1 now" in rows
        assert "due to claimed p50 0.1s, p99 4.1s (10) last hour" in rows
        assert "heartbeats answered 99.00% last hour" in rows
        assert "lease expirations 3 last hour" in rows
        assert "fencing rejections 2 last hour" in rows
        assert "conditions found task-unknown 2 a minute ago" in rows

    def test_a_lost_worker_is_red_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        WorkerFactory(stopped_at=now(), lost_at=now())
        with pytest.raises(SystemExit):
            call_command("pulse_status", stdout=(out := Terminal()))
        assert "\x1b[31m(LOST)\x1b[0m" in out.getvalue()

    def test_on_a_small_terminal_the_verdict_stays_in_sight(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shutil.get_terminal_size", lambda: (80, 24))
        for number in range(30):
            WorkerFactory(name=f"a-worker-with-a-long-name-{number}")
        make_job(Status.RUNNING, lease_until=now(timedelta(minutes=-10)))
        make_job(Status.DEAD_LETTERED, queue="mail")
        out = Terminal()
        Command(stdout=out)._watch(["default"], 0.0, [1])
        lines = [re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", line) for line in out.getvalue().split("\n")]
        assert lines[0] == "Problems:"
        assert max(map(len, lines)) <= 80
        assert len(lines) <= 24
        [mail] = [line.split() for line in lines if line.startswith("  mail")]
        assert mail[:6] == ["mail", "0", "0", "0", "-", "1"]

    def test_watching_goes_on_and_shows_the_present(self) -> None:
        out = StringIO()
        command = Command(stdout=out)

        def looks() -> Iterator[int]:
            yield 1
            make_job(queue="late-comer")
            yield 2

        command._watch(["default"], 0.0, looks())
        first, second = out.getvalue().split("Workers")[:2]
        assert "late-comer" not in first
        assert "late-comer" in second

    def test_a_database_that_does_not_answer_is_told_and_asked_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        out = StringIO()
        command = Command(stdout=out)

        def fail(alias: str) -> None:
            raise OperationalError("gone")

        monkeypatch.setattr("pulse_django.health.snapshot.glance", fail)
        command._watch(["default"], 0.0, range(2))
        assert out.getvalue().count("The database does not respond: gone") == 2

    def test_it_is_for_people_and_for_everything(self) -> None:
        for other in (["--json"], ["--task", "x"]):
            with pytest.raises(CommandError, match="--watch cannot be combined"):
                call_command("pulse_status", "--watch", *other)


def told() -> str:
    return run("pulse_status")
