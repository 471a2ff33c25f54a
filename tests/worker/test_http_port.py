"""The port of a worker: what it tells whom, what it never waits for, and who does not get hold of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection
from prometheus_client.parser import text_string_to_metric_families

from pulse_django.metrics.exporters.worker import exposed
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from pulse_django.worker import guarded_connection, http_port, loops
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.http_port import AT_A_TIME, HttpPort, PortRefused, Standing, why_unready
from pulse_django.worker.loops import MAIN, PATIENCE_WITH_DATABASE, SHORTEST_PATIENCE, Loops
from tests.crash.processes import database_url
from tests.crash.workers import LONG_LEASE, Workers, wait_for, wait_until
from tests.factories import presence
from tests.faults import all_faults
from tests.proxy import BlackHole
from tests.worker import handlers

WELL = Standing(hanging={}, ready_children=1, is_stopping=False, unanswered=1.0)
PRESENCE = presence(
    slots=16,
    in_flight=5,
    stuck_slots=1,
    vitals={
        "beats": 10,
        "beat_failures": 2,
        "beat_delays": {"0": 8, "1": 2, "2": 2},
        "refused": {"settle": 3, "heartbeat": 4},
        "database_errors": 6,
        "limit_refusals": {"stripe": {"full": 8}},
        "prefetched": 7,
    },
)


class Told(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(port: int, path: str, method: str = "GET") -> Told:
    http = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        http.request(method, path)
        response = http.getresponse()
        return Told(response.status, dict(response.headers), response.read().decode())
    finally:
        http.close()


def answers(port: int) -> bool:
    try:
        return ask(port, "/live").status == 200
    except OSError:
        return False  # turned away


def free_port() -> int:
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return int(end.getsockname()[1])


def numbers(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Served:
    """A port in this process."""

    def __init__(self) -> None:
        self.standing = WELL
        self.text: str | Exception = "pulse_worker_slots 1\n"
        self.outlet = HttpPort(("127.0.0.1", 0), lambda: self.standing, self._exposed)
        threading.Thread(target=self.outlet.serve, daemon=True).start()
        self.port = self.outlet.port

    def _exposed(self) -> str:
        if isinstance(self.text, Exception):
            raise self.text
        return self.text


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.outlet.close()


STANDINGS = [
    (WELL, ""),
    ({"is_stopping": True}, "the worker is stopping"),
    ({"ready_children": 0}, "no process is ready"),
    ({"unanswered": float("inf")}, "the database has not responded yet"),
    ({"unanswered": 29.0}, ""),  # a beat or two failed; its leases live
    ({"unanswered": 31.4}, "the database has not responded for 31 s"),
    ({"refused": "permission denied for x"}, "the database refuses a statement: permission denied for x"),
    ({"hanging": {"watchdog": 99.0}}, ""),  # for /live to tell
]


class TestWhatItTells:
    def test_a_worker_is_live_while_its_loops_turn(self, served: Served) -> None:
        told = ask(served.port, "/live")
        assert (told.status, told.json) == (200, {"live": True, "hanging": {}, "restarts": {}})
        assert told.headers["Content-Type"] == "application/json"
        served.standing = Standing(hanging={"heartbeat": 61.23}, ready_children=1, is_stopping=False, unanswered=1)
        told = ask(served.port, "/live")
        assert (told.status, told.json) == (503, {"live": False, "hanging": {"heartbeat": 61.2}, "restarts": {}})

    def test_a_worker_is_ready_if_it_can_take_jobs(self, served: Served) -> None:
        facts = {"hanging": {}, "ready_children": 1, "is_stopping": False, "unanswered": 1.0}
        with all_faults() as about:
            for standing, why in STANDINGS:
                with about(why or standing):
                    served.standing = standing if isinstance(standing, Standing) else Standing(**(facts | standing))
                    assert why_unready(served.standing, lease=30.0) == why
                    told = ask(served.port, "/ready")
                    assert (told.status, told.json) == (503 if why else 200, {"ready": not why, "reason": why})

    def test_its_numbers_are_those_that_it_says_of_itself(self, served: Served) -> None:
        served.text = exposed(PRESENCE, 2)
        told = ask(served.port, "/metrics")
        assert told.status == 200
        assert told.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        found = numbers(told.body)
        plain = {name: value for (name, labels), value in found.items() if not labels}
        assert plain == {
            "pulse_worker_slots": 16,
            "pulse_worker_in_flight": 5,
            "pulse_worker_stuck_slots": 1,
            "pulse_worker_prefetched": 7,
            "pulse_worker_children": 2,
            "pulse_worker_database_errors_total": 6,
            "pulse_worker_heartbeat_delay_seconds_count": 12,
            "pulse_worker_heartbeat_delay_seconds_sum": pytest.approx(0.008 + 0.002 * 2**0.5 + 0.004, abs=1e-6),
        }
        assert found["pulse_worker_heartbeats_total", frozenset({("result", "answered")})] == 10
        assert found["pulse_worker_heartbeats_total", frozenset({("result", "failed")})] == 2
        assert found["pulse_worker_fencing_rejections_total", frozenset({("verb", "settle")})] == 3
        refused = frozenset({("limit", "stripe"), ("reason", "full")})
        assert found["pulse_worker_limit_refusals_total", refused] == 8
        assert found["pulse_worker_heartbeat_delay_seconds_bucket", frozenset({("le", "0.002")})] == 12

    def test_without_the_package_the_probes_still_work(self, served: Served) -> None:
        served.text = ImproperlyConfigured("pip install prometheus-client")
        told = ask(served.port, "/metrics")
        assert (told.status, told.body) == (501, "pip install prometheus-client\n")
        assert ask(served.port, "/live").status == 200

    def test_a_mistake_of_ours_is_told_in_the_log(self, served: Served, caplog: pytest.LogCaptureFixture) -> None:
        served.text = KeyError("prefetched")
        assert ask(served.port, "/metrics").status == 500
        assert "Answering /metrics failed" in caplog.text

    def test_it_is_only_read_and_nothing_else_is_there(self, served: Served) -> None:
        for path in ("/", "/live/", "/metricsx", "/../live", "/admin"):
            assert ask(served.port, path).status == 404, path
        assert ask(served.port, "/live?verbose=1").status == 200
        head = ask(served.port, "/ready", method="HEAD")
        assert (head.status, head.body) == (200, "")
        assert int(head.headers["Content-Length"]) > 0
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert ask(served.port, "/live", method=method).status == 405


class TestThatNobodyCanBlockIt:
    def test_who_says_nothing_is_hung_up_on(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_port, "PATIENCE", 0.2)
        silent = [socket.create_connection(("127.0.0.1", served.port), timeout=10) for _ in range(AT_A_TIME)]
        silent[0].sendall(b"GET /live HTTP/1.0\r\nX: ")
        for end in silent:
            assert end.recv(100) == b""
            end.close()
        wait_until(lambda: answers(served.port))

    def test_many_silent_connections_keep_no_probe_out(self, served: Served) -> None:
        silent = [socket.create_connection(("127.0.0.1", served.port), timeout=10) for _ in range(5 * AT_A_TIME)]
        assert [ask(served.port, "/live").status for _ in range(30)] == [200] * 30
        silent[0].settimeout(http_port.PATIENCE / 2)
        assert silent[0].recv(100) == b"", "the oldest is hung up on at once, and not when its time is over"
        assert len(served.outlet._server._begun) <= AT_A_TIME
        for end in silent:
            end.close()

    def test_a_port_that_is_taken_is_refused(self, served: Served) -> None:
        with pytest.raises(PortRefused, match=f"--metrics-port: cannot listen on 127.0.0.1:{served.port}: Address"):
            HttpPort(("127.0.0.1", served.port), lambda: WELL, lambda: "")
        with pytest.raises(PortRefused, match="cannot listen on"):
            HttpPort(("no.such.host.invalid", 0), lambda: WELL, lambda: "")


class Clock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (loops, guarded_connection):
        monkeypatch.setattr(module, "time", clock)
    return clock


class TestWhatHangs:
    @pytest.fixture
    def loops(self, clock: Clock) -> Loops:
        return Loops(lambda name, why: None)

    def test_a_frozen_heartbeat_is_named(self, clock: Clock, loops: Loops) -> None:
        heartbeat = GuardedConnection("default", "heartbeat")
        loops.add(heartbeat, lambda: 0.1, 0.2)
        clock.now += PATIENCE_WITH_DATABASE
        loops.main_turned_at = clock.now
        assert loops.hanging() == {}
        clock.now += 1
        assert loops.hanging() == {"heartbeat": PATIENCE_WITH_DATABASE + 1}
        clock.now += SHORTEST_PATIENCE
        assert set(loops.hanging()) == {"heartbeat", MAIN}

    def test_a_loop_that_fails_turns_all_the_same(self) -> None:
        loops, failures, database = Loops(lambda name, why: None), 0, GuardedConnection("default", "recovery")
        first = database.turned_at

        def step() -> float:
            nonlocal failures
            failures += 1
            if failures == 3:
                loops.over.set()
            raise OperationalError("the database is away")

        loops.add(database, step, 0.2)
        loops.start()
        wait_until(lambda: not loops.is_running)
        assert failures == 3
        assert database.turned_at > first
        assert database.answered_at == float("-inf")

    def test_a_long_sweep_turns_with_every_statement(self, clock: Clock, loops: Loops) -> None:
        database = GuardedConnection("default", "watchdog")
        loops.add(database, lambda: 0.0, 10.0)
        for _ in range(20):
            clock.now += 10
            assert database.call(lambda: "answer") == "answer"
        loops.main_turned_at = clock.now
        assert loops.hanging() == {}
        assert database.answered_at == clock.now

    def test_a_loop_with_long_pauses_has_time_for_them(self, clock: Clock, loops: Loops) -> None:
        loops.add(GuardedConnection("default", "watchdog"), lambda: 0.0, 300.0)
        clock.now += 900
        loops.main_turned_at = clock.now
        assert loops.hanging() == {}
        clock.now += 1
        assert loops.hanging() == {"watchdog": 901}


@pytest.mark.usefixtures("pulse_db")
class TestRealWorkers:
    def test_it_answers_on_loopback_only_and_nobody_inherits_it(self, workers: Workers) -> None:
        port = free_port()
        worker = workers.ready("--metrics-port", str(port), "--concurrency", "3", settings=LONG_LEASE)
        wait_until(lambda: ask(port, "/ready").status == 200, lambda: ask(port, "/ready"))
        assert ask(port, "/live").json == {"live": True, "hanging": {}, "restarts": {}}
        found = numbers(ask(port, "/metrics").body)
        assert found["pulse_worker_slots", frozenset()] == 3
        assert found["pulse_worker_children", frozenset()] == 1
        [(address, inode)] = listening(port)
        assert address == "0100007F"
        job = handlers.lists_its_files.enqueue().id
        wait_for(Status.COMPLETED, job)
        assert f"socket:[{inode}]" in files(worker.pid), "the test looks at the right one"
        for pid in worker.family()[1:]:
            assert f"socket:[{inode}]" not in files(pid)
        assert str(inode) not in json.dumps(Job.objects.get(pk=int(job)).result)

    def test_children_that_stand_still_leave_it_live_and_a_stopping_worker_is_not_ready(self, workers: Workers) -> None:
        port = free_port()
        worker = workers.ready("--metrics-port", str(port), settings=LONG_LEASE)
        wait_until(lambda: ask(port, "/ready").status == 200)
        job = handlers.naps.enqueue(1.5).id
        wait_until(lambda: bool(workers.trace.of(job, "begin")))
        assert numbers(ask(port, "/metrics").body)["pulse_worker_in_flight", frozenset()] == 1
        os.kill(worker.child(), signal.SIGSTOP)
        assert ask(port, "/live").status == 200
        os.kill(worker.child(), signal.SIGCONT)
        worker.signal(signal.SIGTERM)
        wait_until(lambda: ask(port, "/ready").status == 503)
        assert ask(port, "/ready").json == {"ready": False, "reason": "the worker is stopping"}
        assert ask(port, "/live").status == 200
        assert worker.wait() == 0
        wait_for(Status.COMPLETED, job)

    def test_a_database_that_is_away_makes_it_unready_and_not_dead(self, workers: Workers) -> None:
        port = free_port()
        with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # sockets have little room for paths
            proxy = BlackHole(Path(folder), connection.settings_dict)
            env = {"DATABASE_URL": database_url(host=proxy.host, port=proxy.port)}
            workers.ready("--metrics-port", str(port), env=env)
            wait_until(lambda: ask(port, "/ready").status == 200)
            proxy.swallow()
            wait_until(lambda: ask(port, "/ready").status == 503)
            assert "the database has not responded for" in ask(port, "/ready").json["reason"]
            assert ask(port, "/live").status == 200
            wait_until(
                lambda: numbers(ask(port, "/metrics").body)["pulse_worker_database_errors_total", frozenset()] > 0
            )
            proxy.heal()
            wait_until(lambda: ask(port, "/ready").status == 200, lambda: ask(port, "/ready"))
            proxy.close()

    def test_a_port_that_is_taken_is_told_in_one_line_at_the_start(self, workers: Workers) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            worker = workers.start("--metrics-port", str(port))
            assert worker.wait() == 1
        said = f"CommandError: --metrics-port: cannot listen on 127.0.0.1:{port}: Address already in use"
        assert worker.log.splitlines() == [said]
        wait_until(lambda: processes_of(workers) == [], lambda: processes_of(workers))

    def test_many_who_ask_at_a_time_keep_no_job_waiting(self, workers: Workers) -> None:
        port = free_port()
        workers.ready("--metrics-port", str(port))
        over, told = Event(), Counter[int]()

        def go_on_asking() -> None:
            while not over.is_set():
                try:
                    told[ask(port, "/metrics").status] += 1
                except (OSError, ValueError):
                    told[0] += 1  # turned away
                time.sleep(0.001)

        askers = [Thread(target=go_on_asking) for _ in range(8)]
        for asker in askers:
            asker.start()
        jobs = [handlers.naps.enqueue(0.01).id for _ in range(20)]
        wait_for(Status.COMPLETED, *jobs, patience=15)
        over.set()
        for asker in askers:
            asker.join()
        assert told[200] > 0
        assert set(told) <= {0, 200}


def processes_of(workers: Workers) -> list[int]:
    """All that were started with the trace of this test, also what has lost its parent."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"PULSE_TRACE={workers.trace.path}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def listening(port: int) -> list[tuple[str, int]]:
    """Where somebody listens on that port, over IPv4 or IPv6: the address, and the number of the socket."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            address, _, its_port = words[1].partition(":")
            if int(its_port, 16) == port and words[3] == "0A":
                found.append((address, int(words[9])))
    return found


def files(pid: int) -> list[str]:
    return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
