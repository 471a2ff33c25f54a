"""The doctor: each line of advice, brought about."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db import connections as django_connections

from pulse_django import conf
from pulse_django.health import doctor
from pulse_django.health.doctor import Advice, Level, connections, examine, fleet, tables
from pulse_django.models import Pause
from pulse_django.queue.words.counters import Histogram
from pulse_django.queue.words.states import Status
from tests.factories import WorkerFactory, make_job, now
from tests.faults import all_faults
from tests.pgbouncer import PgBouncer, needs_pgbouncer
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("vacuumed")


def about(topic: str) -> Advice:
    [advice] = [advice for advice in examine("default") if advice.topic == topic]
    return advice


def beats(*seconds: float, count: int = 1_000, failed: int = 0) -> dict[str, Any]:
    """What a worker says whose beats were so late, each as often."""
    histogram = Histogram()
    for number in range(count):
        histogram.add(seconds[number % len(seconds)])
    return {"beats": count, "beat_failures": failed, "beat_delays": histogram.to_json()}


def test_everything_it_says_has_what_why_and_what_to_do() -> None:
    WorkerFactory(vitals=beats(0.01))
    for advice in examine("default"):
        assert advice.what
        assert advice.why
        assert advice.to_do or advice.level in (Level.GOOD, Level.UNKNOWN)


# Leases


def test_without_beats_there_is_nothing_to_say_of_leases() -> None:
    assert about("lease").level == Level.UNKNOWN
    WorkerFactory(vitals=beats(5.0, count=fleet.FEW - 1))
    assert about("lease").level == Level.UNKNOWN


def test_hostile_vitals_count_for_nothing() -> None:
    WorkerFactory(vitals=beats(0.01))
    hostile = (True, -5, 1e308, "NaN", [1], {"a": 1}, None, 10**400)
    for value in hostile:
        delays = {"1": value, "x": 1, "9" * 50: 1, "-1": 1}
        WorkerFactory(vitals={"beats": value, "beat_failures": value, "beat_delays": delays})
        WorkerFactory(vitals={"beat_delays": value})
        WorkerFactory(vitals=[value])
    assert "delay of 1000 heartbeats: p99 0.011" in about("lease").what


def test_punctual_beats_are_good() -> None:
    WorkerFactory(vitals=beats(0.01))
    WorkerFactory(vitals={})  # an older worker counts nothing
    advice = about("lease")
    assert advice.level == Level.GOOD
    assert "delay of 1000 heartbeats: p99 0.011" in advice.what


def test_late_beats_of_a_few_workers_ask_for_a_longer_lease() -> None:
    WorkerFactory(vitals=beats(0.01, count=9_000))
    WorkerFactory(vitals=beats(4.0, count=1_000))
    advice = about("lease")
    assert advice.level == Level.WARNING
    # p99 is the bucket of 4 s, known to within 42 %: three times (10 + 4 to 5.7), in steps of five
    assert "Set LEASE_TTL to 45" in advice.to_do


def test_a_lease_much_longer_than_its_beats_need_is_told(settings: Any) -> None:
    settings.PULSE = {"LEASE_TTL": 600}
    WorkerFactory(vitals=beats(0.01))
    assert about("lease").level == Level.HINT
    assert about("lease").to_do == "LEASE_TTL = 35 would be enough."


def test_beats_that_fail_are_told_apart_from_late_ones() -> None:
    WorkerFactory(vitals=beats(0.01, failed=30))
    advice = about("heartbeats")
    assert (advice.level, advice.what) == (Level.WARNING, "30 of 1030 heartbeats of the last week failed")


def test_a_watchdog_that_looks_seldom_is_a_hint(settings: Any) -> None:
    assert about("recovery").level == Level.GOOD
    settings.PULSE = {"WATCHDOG_INTERVAL": 25}
    assert about("recovery").level == Level.HINT


# The fleet


def test_no_worker_one_host_and_two_hosts() -> None:
    assert about("workers").level == Level.WARNING
    WorkerFactory(host="a")
    WorkerFactory(host="old", last_beat_at=now(timedelta(hours=-1)))
    assert about("workers").level == Level.HINT
    WorkerFactory(host="b")
    assert about("workers") == Advice(
        topic="workers", level=Level.GOOD, what="2 live on 2 hosts", why="The fleet survives the loss of one host."
    )


def test_stuck_slots_and_a_deploy_that_stopped_halfway() -> None:
    WorkerFactory(host="a", versions={"pulse_django": "1.0"}, stuck_slots=3)
    WorkerFactory(host="b", versions={"pulse_django": "1.1"})
    said = [advice.what for advice in examine("default") if advice.topic == "workers"]
    assert "workers of 2 versions are running: 1.0, 1.1" in said
    assert "3 of " in about("slots-stuck").what


def test_every_condition_that_is_found_is_advice() -> None:
    WorkerFactory(host="a", slots=8, started_at=now(timedelta(hours=-2)))
    assert about("conditions").level == Level.GOOD
    for queue in ("default", "paused"):
        make_job(queue=queue, next_run_at=now(timedelta(hours=-1)))
    Pause.objects.pause(queue="paused", reason="evil\x1b[2J")
    assert about("overdue-while-idle").level == Level.WARNING
    assert about("paused-backlog").level == Level.HINT
    out = StringIO()
    call_command("pulse_check", "--advice", stdout=out, no_color=True)
    assert "\x1b" not in out.getvalue()


# Connections


def test_a_direct_connection_is_no_pooler() -> None:
    assert about("pooler").what == "none: connections go directly to the server"


@pytest.fixture
def pooled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test's connection leads through a PgBouncer of that mode."""
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # a short path: sockets have little room
        Path(folder).chmod(0o755)
        pooler = PgBouncer(Path(folder), connection.settings_dict, request.param)
        connection.close()
        monkeypatch.setitem(connection.settings_dict, "HOST", pooler.host)
        monkeypatch.setitem(connection.settings_dict, "PORT", str(pooler.port))
        yield
        connection.close()
        monkeypatch.undo()
        pooler.close()


@needs_pgbouncer
@pytest.mark.parametrize("pooled", ["transaction"], indirect=True)
def test_a_transaction_pooler_is_recognised(pooled: None, settings: Any) -> None:
    advice = about("pooler")
    assert (advice.level, advice.what) == (
        Level.HINT,
        "transaction pooling: a test notification did not arrive",
    )
    settings.PULSE = {"LISTEN_DSN": "host=db"}
    assert about("pooler").level == Level.GOOD


@needs_pgbouncer
@pytest.mark.parametrize("pooled", ["session"], indirect=True)
def test_a_session_pooler_does_no_harm(pooled: None) -> None:
    assert about("pooler").what == "session pooling: a test notification arrived"


def test_a_fleet_that_may_need_all_connections_is_warned_of() -> None:
    assert about("connections").level == Level.GOOD
    WorkerFactory(slots=5_000)
    advice = about("connections")
    assert advice.level == Level.WARNING
    assert "which need up to 5006 when every handler is busy" in advice.what


def test_shards_on_one_server_share_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    WorkerFactory(slots=10)
    monkeypatch.setattr(connections, "shards", lambda: {"default": 0, "twin": 1, "elsewhere": 2})
    ours = django_connections["default"].settings_dict
    monkeypatch.setitem(django_connections.settings, "twin", {**ours, "OPTIONS": {**ours["OPTIONS"]}})
    monkeypatch.setitem(django_connections.settings, "elsewhere", {**ours, "HOST": "elsewhere"})
    try:
        assert "which need up to 32 when every handler is busy" in about("connections").what
    finally:
        django_connections["twin"].close()
        del django_connections["twin"]


# Tables


def test_a_table_without_its_autovacuum_settings_is_told_of() -> None:
    assert about("autovacuum").level == Level.GOOD
    [(options,)] = sql("SELECT array_to_string(reloptions, ', ') FROM pg_class WHERE relname = 'pulse_django_job_hot'")
    sql("ALTER TABLE pulse_django_job_hot RESET (autovacuum_vacuum_threshold)")
    try:
        assert about("autovacuum").what.startswith("the settings of the table are missing")
        sql("ALTER TABLE pulse_django_job_hot SET (autovacuum_enabled = off)")
        assert about("autovacuum").what.startswith("it is off")
    finally:
        sql(
            "ALTER TABLE pulse_django_job_hot RESET (autovacuum_enabled);"
            f"ALTER TABLE pulse_django_job_hot SET ({options})"
        )


def test_an_autovacuum_that_looks_seldom_is_a_hint() -> None:
    [[naptime]] = sql("SELECT EXTRACT(epoch FROM current_setting('autovacuum_naptime')::interval)::int")
    told = [advice for advice in examine("default") if advice.topic == "autovacuum_naptime"]
    assert len(told) == (naptime > 10)
    advice = tables._of_naptime(60.0)
    assert (advice.level, advice.what) == (Level.HINT, "autovacuum checks each database every 1m")


def test_updates_that_are_not_in_place_are_counted_by_run() -> None:
    cases = [
        (0, 0, 0, Level.UNKNOWN),
        (500, 0, 999, Level.UNKNOWN),
        (2_000_000, 0, 1_000_000, Level.GOOD),  # a claim and a settle each, and no beats
        (5_000_000, 3_000_000, 1_000_000, Level.GOOD),  # long jobs, whose beats are in place
        (5_000_000, 100_000, 1_000_000, Level.WARNING),  # ... and are not
    ]
    with all_faults() as about:
        for updates, hot, runs, level in cases:
            with about((updates, hot, runs, level)):
                assert tables._of_updates(updates, hot, runs).level == level


def test_indexes_of_strangers_are_named_and_worst_on_what_heartbeats_write() -> None:
    assert not [advice for advice in examine("default") if advice.topic == "indexes"]
    sql("CREATE INDEX theirs ON pulse_django_job_hot (task)")
    sql("CREATE INDEX beaten ON pulse_django_job_hot (lease_until)")
    try:
        told = {advice.what.split()[0]: advice for advice in examine("default") if advice.topic == "indexes"}
    finally:
        sql("DROP INDEX theirs; DROP INDEX beaten")
    assert (told["theirs"].level, told["beaten"].level) == (Level.HINT, Level.WARNING)
    assert told["beaten"].why == "Every heartbeat updates it."


def test_scans_of_a_large_table_and_indexes_that_nobody_uses() -> None:
    own = [
        ("pulse_job_reap", 0, "", False),
        ("pulse_job_lane", 9, "", False),
        ("pulse_django_job_hot_pkey", 0, "", True),
    ]
    small = list(tables._of_indexes(own, scans=100, scanned=100, live=10))
    assert small == []
    unused, scanned = tables._of_indexes(own, scans=10, scanned=10_000_000, live=1_000_000)
    assert unused.what == "not used since the statistics were reset: pulse_job_reap"
    assert scanned.what == "pulse_django_job_hot was scanned sequentially 10 times, 1000000 rows on average"


def test_old_jobs_that_nobody_deletes_are_told_of(settings: Any) -> None:
    make_job(Status.COMPLETED, finished_at=now(timedelta(days=-7, hours=-12)))
    make_job(Status.DEAD_LETTERED, finished_at=now(timedelta(days=-400)))
    assert about("retention").level == Level.GOOD
    make_job(Status.COMPLETED, finished_at=now(timedelta(days=-20)))
    advice = about("retention")
    assert (advice.level, advice.what) == (
        Level.WARNING,
        "the oldest COMPLETED job ended 20d ago, but is kept for 7d",
    )


def test_large_tables_that_grow_for_ever_are_told_of() -> None:
    [advice] = tables._of_retention("default", conf.current(), tables.LARGE + 1)
    assert "kept forever: DEAD_LETTERED" in advice.what


# The command


def test_it_speaks_json() -> None:
    out = StringIO()
    call_command("pulse_check", "--advice", "--json", stdout=out)
    said = json.loads(out.getvalue())
    assert {"database", "topic", "level", "what", "why", "to_do"} == set(said[0])
    assert {one["topic"] for one in said} >= {"lease", "pooler", "connections", "autovacuum", "updates", "retention"}


def test_warnings_fail_it_only_if_it_is_strict() -> None:
    call_command("pulse_check", "--advice", stdout=StringIO())  # no worker is alive
    with pytest.raises(CommandError, match=r"^\d+ warnings?\."):
        call_command("pulse_check", "--advice", "--strict", stdout=StringIO())


def test_what_cannot_be_examined_is_said_and_the_rest_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_STORAGE", "SELECT 1 FROM nowhere")
    said = examine("default")
    [broken] = [advice for advice in said if advice.topic == "tables"]
    assert (broken.level, "nowhere" in broken.what) == (Level.UNKNOWN, True)
    assert any(advice.topic == "pooler" for advice in said)


@pytest.mark.alters_statements
def test_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_STORAGE", "DELETE FROM pulse_django_job RETURNING 1")
    make_job()
    assert any("read-only transaction" in advice.what for advice in examine("default"))
    assert sql("SELECT count(*) FROM pulse_django_job") == [(1,)]
    assert doctor.EXAMINERS
    assert connections.OF_A_KEEPER
