"""Advice: each condition that only ``pulse_check --advice`` checks, brought about."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db import connections as django_connections

from pulse_django.health.conditions import ask, ask_all, catalogue, connections, known, named, tables, timing
from pulse_django.models import Pause
from pulse_django.queue.words.counters import Histogram
from pulse_django.queue.words.states import Status
from tests.factories import WorkerFactory, make_job, now
from tests.faults import all_faults
from tests.pgbouncer import PgBouncer, needs_pgbouncer
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("vacuumed")


def found(name: str) -> list[str]:
    return [subject.words for subject in ask(named(name), "default").subjects]


def figures(name: str) -> str:
    """Return the figures of advice that is clear."""
    finding = ask(named(name), "default")
    assert finding.is_clear
    return "; ".join(finding.figures)


def advise(*flags: str) -> str:
    out = StringIO()
    call_command("pulse_check", "--advice", *flags, stdout=out, no_color=True)
    return out.getvalue()


def beats(*seconds: float, count: int = 1_000, failed: int = 0) -> dict[str, Any]:
    """What a worker says whose beats were so late, each as often."""
    histogram = Histogram()
    for number in range(count):
        histogram.add(seconds[number % len(seconds)])
    return {"beats": count, "beat_failures": failed, "beat_delays": histogram.to_json()}


# Leases


def test_too_few_beats_are_no_verdict_on_the_lease() -> None:
    for vitals in ({}, beats(5.0, count=timing.FEW - 1)):
        WorkerFactory(vitals=vitals)
        finding = ask(named("lease"), "default")
        assert "heartbeats were recorded, too few to judge a lease of 30s" in finding.error
        assert not finding.is_warning


def test_hostile_vitals_count_for_nothing() -> None:
    WorkerFactory(vitals=beats(0.01))
    hostile = (True, -5, 1e308, "NaN", [1], {"a": 1}, None, 10**400)
    for value in hostile:
        delays = {"1": value, "x": 1, "9" * 50: 1, "-1": 1}
        WorkerFactory(vitals={"beats": value, "beat_failures": value, "beat_delays": delays})
        WorkerFactory(vitals={"beat_delays": value})
        WorkerFactory(vitals=[value])
    sql("UPDATE pulse_django_worker SET vitals = '{\"beats\": 1e5000}' WHERE vitals = '[true]'")
    assert "delay of 1000 heartbeats: p99 0.011" in figures("lease")


def test_late_beats_of_a_few_workers_ask_for_a_longer_lease() -> None:
    WorkerFactory(vitals=beats(0.01, count=9_000))
    WorkerFactory(vitals=beats(4.0, count=1_000))
    [said] = found("lease")
    # p99 is the bucket of 4 s, known to within 42 %: three times (10 + 4 to 5.7), in steps of five
    assert "is too short, and LEASE_TTL = 45 would be enough" in said


def test_a_lease_much_longer_than_its_beats_need_is_told(settings: Any) -> None:
    WorkerFactory(vitals=beats(0.01))
    assert figures("lease").endswith("a lease of 30s with a heartbeat every 10s is long enough")
    settings.PULSE = {"LEASE_TTL": 600}
    assert "is long enough, and so is LEASE_TTL = 35" in figures("lease")


def test_beats_that_fail_are_told_apart_from_late_ones() -> None:
    WorkerFactory(vitals=beats(0.01, failed=30))
    assert found("heartbeats") == ["30 of 1030 heartbeats of the last week failed"]


def test_a_watchdog_that_looks_seldom_is_a_hint(settings: Any) -> None:
    assert figures("recovery").startswith("the jobs of a dead host are recovered after at most 40s")
    settings.PULSE = {"WATCHDOG_INTERVAL": 25}
    assert found("recovery")


# The fleet


def test_no_worker_one_host_and_two_hosts() -> None:
    assert (found("workers"), found("hosts")) == (["no worker is alive"], [])
    WorkerFactory(host="a", versions={"pulse_django": "1.0"})
    WorkerFactory(host="old", last_beat_at=now(timedelta(hours=-1)))
    assert (figures("workers"), found("hosts")) == ("1 live on 1 hosts", ["1 live, all on one host"])
    WorkerFactory(host="b", versions={"pulse_django": "1.1"})
    assert (figures("workers"), found("hosts")) == ("2 live on 2 hosts", [])
    assert found("versions") == ["workers of 2 versions are running: 1.0, 1.1"]


# Connections


def test_a_direct_connection_is_no_pooler() -> None:
    assert figures("pooler") == "none: connections go directly to the server"


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
    assert found("pooler") == ["transaction pooling: a test notification did not arrive"]
    settings.PULSE = {"LISTEN_DSN": "host=db"}
    assert "LISTEN_DSN bypasses it" in figures("pooler")


@needs_pgbouncer
@pytest.mark.parametrize("pooled", ["session"], indirect=True)
def test_a_session_pooler_does_no_harm(pooled: None) -> None:
    assert figures("pooler") == "session pooling: a test notification arrived"


def test_a_fleet_that_may_need_all_connections_is_warned_of() -> None:
    assert "are in use, " in figures("connections")
    WorkerFactory(slots=5_000)
    assert "which need up to 5006 when every handler is busy" in found("connections")[0]


def test_shards_on_one_server_share_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    WorkerFactory(slots=10)
    monkeypatch.setattr(connections, "shards", lambda: {"default": 0, "twin": 1, "elsewhere": 2})
    ours = django_connections["default"].settings_dict
    monkeypatch.setitem(django_connections.settings, "twin", {**ours, "OPTIONS": {**ours["OPTIONS"]}})
    monkeypatch.setitem(django_connections.settings, "elsewhere", {**ours, "HOST": "elsewhere"})
    try:
        assert "which need up to 32 when every handler is busy" in figures("connections")
    finally:
        django_connections["twin"].close()
        del django_connections["twin"]


def test_what_a_system_check_of_the_server_finds_is_a_warning() -> None:
    name = connection.settings_dict["NAME"]
    sql(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    connection.close()
    try:
        [subject] = ask(named("server"), "default").subjects
        assert (subject.key, "synchronous_commit" in subject.words) == ("pulse_django.W003", True)
    finally:
        sql(f'ALTER DATABASE "{name}" RESET synchronous_commit')
        connection.close()


# Tables


def test_a_table_without_its_autovacuum_settings_is_told_of() -> None:
    assert "dead rows beside" in figures("autovacuum")
    [(options,)] = sql("SELECT array_to_string(reloptions, ', ') FROM pg_class WHERE relname = 'pulse_django_job_hot'")
    sql("ALTER TABLE pulse_django_job_hot RESET (autovacuum_vacuum_threshold)")
    try:
        assert found("autovacuum")[0].startswith("the settings of the table are missing; ")
        sql("ALTER TABLE pulse_django_job_hot SET (autovacuum_enabled = off)")
        assert found("autovacuum")[0].startswith("it is off; ")
    finally:
        sql(
            "ALTER TABLE pulse_django_job_hot RESET (autovacuum_enabled);"
            f"ALTER TABLE pulse_django_job_hot SET ({options})"
        )


def test_figures_of_the_server_decide() -> None:
    """Of statistics that no test can bring about, each query reads others here."""
    naptime = "pg_catalog.current_setting('autovacuum_naptime')"
    scans = "pg_stat_user_tables\nWHERE relid = 'pulse_django_job_hot'::regclass::oid AND"
    cases: list[tuple[str, str, str, str]] = [
        ("autovacuum-naptime", naptime, "'10s'", ""),
        ("autovacuum-naptime", naptime, "'1min'", "it checks each database every 1min"),
        ("updates", tables._COUNTED, "VALUES (0, 0, 0)", ""),
        ("updates", tables._COUNTED, "VALUES (500, 0, 999)", ""),
        ("updates", tables._COUNTED, "VALUES (2000000, 0, 1000000)", ""),  # a claim and a settle each, and no beats
        ("updates", tables._COUNTED, "VALUES (5000000, 3000000, 1000000)", ""),  # long jobs, whose beats are in place
        ("updates", tables._COUNTED, "VALUES (5000000, 100000, 1000000)", "2% of 5000000 updates of"),  # ... and not
        ("scans", scans, "(VALUES (10, 99999)) AS few (seq_scan, seq_tup_read) WHERE", ""),
        ("scans", scans, "(VALUES (10, 10000000)) AS many (seq_scan, seq_tup_read) WHERE", "10 times, 1000000 rows"),
    ]
    with all_faults() as about:
        for name, read, given, said in cases:
            with about((name, given)):
                assert read in named(name).sql
                finding = ask(replace(named(name), sql=named(name).sql.replace(read, given)), "default")
                assert (finding.error, bool(finding.subjects)) == ("", bool(said))
                assert said in finding.says


def test_indexes_of_strangers_are_named_and_unused_ones_of_a_large_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not found("indexes")
    sql("CREATE INDEX theirs ON pulse_django_job_hot (task)")
    sql("CREATE INDEX beaten ON pulse_django_job_hot (lease_until)")
    monkeypatch.setattr(tables, "MANY_ROWS", -1)
    sql("SELECT pg_stat_reset_single_table_counters(indexrelid) FROM pg_stat_user_indexes")
    try:
        finding = ask(named("indexes"), "default")
    finally:
        sql("DROP INDEX theirs; DROP INDEX beaten")
    said = {subject.key: subject.words.rpartition("; ")[2] for subject in finding.subjects}
    assert said == {"beaten": "every heartbeat updates it", "theirs": "every claim and every settle updates it"}
    assert "not used since the statistics were reset: " in finding.figures[0]


def test_old_jobs_that_nobody_deletes_are_told_of() -> None:
    make_job(Status.COMPLETED, finished_at=now(timedelta(days=-7, hours=-12)))
    make_job(Status.DEAD_LETTERED, finished_at=now(timedelta(days=-400)))
    assert figures("retention").endswith("kept forever: DEAD_LETTERED")
    make_job(Status.COMPLETED, finished_at=now(timedelta(days=-20)))
    assert found("retention") == ["the oldest COMPLETED job ended 20d ago, but is kept for 7d"]


# The command


def test_it_lists_what_was_found_and_the_figures_and_no_other() -> None:
    WorkerFactory(host="a", slots=8, started_at=now(timedelta(hours=-2)), vitals=beats(0.01))
    for queue in ("default", "paused"):
        make_job(queue=queue, next_run_at=now(timedelta(hours=-1)))
    Pause.objects.pause(queue="paused", reason="evil\x1b[2J")
    said = advise()
    assert "FAIL overdue-while-idle (stuck)" in said
    assert "WARN paused-backlog (risk)" in said
    assert "WARN hosts (hint): If that host fails" in said
    assert "ok   lease: Heartbeats arrive in time.\n       delay of 1000 heartbeats: p99 0.011" in said
    assert "\x1b" not in said
    assert not {"dead-letters", "versions", "citus"} & {line.split()[1].rstrip(":") for line in said.splitlines()}


def test_it_speaks_json() -> None:
    by_name = {one["name"]: one for one in json.loads(advise("--json"))["conditions"]}
    assert by_name.keys() == {one.name for one in known(advice=True)}
    assert by_name["workers"]["severity"] == "warning"
    assert by_name["pooler"]["figures"] == ["none: connections go directly to the server"]


def test_no_other_outlet_checks_advice() -> None:
    advice = {one.name for one in known(advice=True)} - {one.name for one in known()}
    assert advice
    assert not advice & {finding.condition.name for finding in ask_all("default").findings}


def test_warnings_fail_it_only_if_it_is_strict() -> None:
    advise()  # no worker is alive
    with pytest.raises(CommandError, match=r"^Warnings: workers\.$"):
        advise("--strict")


def test_what_cannot_be_examined_is_said_and_the_rest_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_known", dict(catalogue._known))
    catalogue._known["updates"] = replace(named("updates"), sql="SELECT 1 FROM nowhere")
    said = advise()
    assert 'could not be checked: relation "nowhere" does not exist' in said
    assert "ok   pooler" in said
    assert "ok   autovacuum" in said
    with pytest.raises(CommandError, match=r"^Warnings: updates, workers\.$"):
        advise("--strict")
