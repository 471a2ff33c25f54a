"""A worker is told to stop: nothing is lost, nothing runs twice, no attempt is burnt, and it ends in time."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pulse_django import api
from pulse_django.models import Attempt, Job, Worker
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from testproject.harness.census import census
from testproject.harness.processes import StartedProcess
from tests.crash.workers import LONG_LEASE, QUICK, Workers, outcomes, status, wait_for, wait_until
from tests.worker import handlers

pytestmark = pytest.mark.usefixtures("pulse_db")

SIGTERMS = int(os.environ.get("PULSE_SIGTERMS", "12"))
AT_A_TIME = 3  # workers; more would only wait for each other's processors
GRACE = 5.0  # seconds; much longer than any of these jobs


def test_sigterm_at_any_moment_loses_nothing_and_runs_nothing_twice(workers: Workers) -> None:
    """Twelve times; ``PULSE_SIGTERMS=200`` makes it the two hundred that the specification asks for (two minutes).

    Several workers share a load of short jobs; each is told to stop at a random moment, from the start of its process
    on, and another takes its place.
    """
    random.seed(str(SIGTERMS))
    jobs = [int(job) for job in api.enqueue_many(handlers.naps, [[0.01]] * (SIGTERMS * 20))]
    jobs += [int(job) for job in api.enqueue_many(handlers.naps_on_the_loop, [[0.05]] * (SIGTERMS * 10))]
    jobs += [int(handlers.naps.using(priority=5).enqueue(0.3).id) for _ in range(SIGTERMS)]

    def stop_one(number: int) -> tuple[int, float, str]:
        worker = workers.start("--shutdown-grace", str(GRACE), "--concurrency", "4", settings=LONG_LEASE)
        patience = random.uniform(0.0, 0.8)
        if number % 10:  # every tenth is told before it knows what to do
            deadline = time.monotonic() + 30
            while not worker.says("processes of") and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(patience)
        else:
            time.sleep(patience / 4)
        begin = time.monotonic()
        worker.signal(signal.SIGTERM)
        code = worker.wait()
        return code, time.monotonic() - begin, worker.log

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        ends = list(pool.map(stop_one, range(SIGTERMS)))
    for number, (code, took, log) in enumerate(ends):
        assert code == 0 or (number % 10 == 0 and code == -signal.SIGTERM), log
        assert took < GRACE + 1, log
    assert Job.objects.filter(status=Status.RUNNING).count() == 0, "every worker handed back what it held"
    begun = workers.trace.count("begin")
    assert set(begun.values()) <= {1}, "none was run twice"
    assert begun == workers.trace.count("end"), "none was interrupted: all are shorter than the grace period"
    for job in Job.objects.filter(pk__in=jobs):
        expected = 1 if job.pk in begun else 0
        assert job.attempts - job.refunds == expected, "no attempt was burnt for a job that did not start"
        assert (job.status == Status.COMPLETED) == bool(expected)
    assert len(begun) > 0, "nothing was under way at all"
    assert workers.start("--burst", "--concurrency", "40").wait(60) == 0
    assert Job.objects.filter(status=Status.COMPLETED).count() == len(jobs), "none was lost"
    assert set(Attempt.objects.values_list("outcome", flat=True)) <= {"SUCCEEDED", "RELEASED"}


def test_a_handler_that_outlasts_the_grace_period_is_handed_back_and_was_never_reaped(workers: Workers) -> None:
    """It has two leases' time: its beats go on until the end."""
    grace = 2 * QUICK["LEASE_TTL"]
    worker = workers.ready("--shutdown-grace", str(grace))
    job = handlers.naps.enqueue(60).id
    wait_until(lambda: bool(workers.trace.of(job, "begin")))
    begin = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert grace - 0.5 < time.monotonic() - begin < grace + 1
    row = Job.objects.get(pk=job)
    assert (row.status, row.attempts, row.refunds) == (Status.PENDING, 1, 1)
    assert outcomes(job) == ["RELEASED"]
    assert worker.left_behind() == set()


def test_a_handler_that_finishes_within_the_grace_period_counts_though_its_lease_is_shorter(workers: Workers) -> None:
    worker = workers.ready("--shutdown-grace", "10")
    job = handlers.naps.enqueue(2 * QUICK["LEASE_TTL"]).id
    waiting = handlers.writes_a_line.using(queue_name="other").enqueue().id
    wait_until(lambda: bool(workers.trace.of(job, "begin")))
    worker.signal(signal.SIGTERM)
    wait_until(lambda: worker.says("is stopping"))
    late: list[str] = []
    # The first may meet a claim that was on its way when the children were told.
    wait_until(lambda: late.append(handlers.writes_a_line.enqueue().id) or worker.exit_code is not None)
    assert worker.wait() == 0
    assert outcomes(job) == ["SUCCEEDED"]
    assert {status(one) for one in late[len(late) // 2 :]} == {Status.PENDING}, "nothing is claimed any more"
    assert status(waiting) in (Status.PENDING, Status.COMPLETED)
    assert Worker.objects.get().stopped_at is not None


def test_what_has_not_begun_is_handed_back_at_once(workers: Workers) -> None:
    first = [handlers.writes_a_line.using(priority=9).enqueue().id for _ in range(60)]
    slow = handlers.naps.using(priority=5).enqueue(2.5).id
    behind = [handlers.writes_a_line.enqueue().id for _ in range(20)]
    worker = workers.ready("--concurrency", "1", "--shutdown-grace", "10", settings=LONG_LEASE)
    wait_until(lambda: bool(workers.trace.of(slow, "begin")))
    wait_for(Status.COMPLETED, *first)
    worker.signal(signal.SIGTERM)
    wait_for(Status.PENDING, *behind, patience=2)
    assert status(slow) == Status.RUNNING
    assert worker.wait() == 0
    assert outcomes(slow) == ["SUCCEEDED"]
    assert {job.attempts - job.refunds for job in Job.objects.filter(pk__in=behind)} == {0}


def test_a_second_sigterm_leaves_at_once(workers: Workers) -> None:
    worker = workers.ready("--shutdown-grace", "60", settings=LONG_LEASE)
    job = handlers.naps.enqueue(60).id
    wait_until(lambda: bool(workers.trace.of(job, "begin")))
    worker.signal(signal.SIGTERM)
    wait_until(lambda: worker.says("is stopping"))
    begin = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 130
    assert time.monotonic() - begin < 2
    wait_until(lambda: not worker.left_behind(), worker.left_behind)
    assert status(job) == Status.RUNNING, "its lease runs out as after a crash"


def test_ctrl_c_reaches_every_process_and_only_the_keeper_decides(workers: Workers) -> None:
    worker = workers.ready("--processes", "2")
    jobs = [
        handlers.naps.enqueue(1).id,
        handlers.naps_on_the_loop.enqueue(1).id,
        handlers.registered("process.naps_a_little").enqueue().id,
    ]
    wait_until(lambda: all(workers.trace.of(job, "begin") for job in jobs))
    os.killpg(worker.pid, signal.SIGINT)
    assert worker.wait() == 0
    assert [outcomes(job) for job in jobs] == [["SUCCEEDED"]] * 3


# Orphans are given to the nearest subreaper as they are to PID 1. It needs no privilege, which a container lacks.
SUBREAPER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"


def namespace() -> list[str]:
    """The command that makes what follows PID 1 of a namespace, or skip where that is not allowed."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
    if os.geteuid() != 0:
        command += ["--user", "--map-root-user"]
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no new namespace is allowed here: {tried.stderr.strip()}")
    return command


def children_of(pid: int) -> list[int]:
    """Return them with its zombies."""
    return [one.pid for one in census().values() if one.parent == pid]


@pytest.mark.parametrize("kind", ["subreaper", "namespace"])
def test_as_pid_1_of_a_container_it_stops_when_told_to_and_buries_orphans(workers: Workers, kind: str) -> None:
    prefix = namespace() if kind == "namespace" else [sys.executable, "-c", SUBREAPER]
    container = workers.ready(settings=LONG_LEASE, prefix=prefix)
    [init] = children_of(container.pid) if kind == "namespace" else [container.pid]
    jobs = [handlers.orphans_a_process.enqueue().id for _ in range(3)]
    wait_for(Status.COMPLETED, *jobs)
    wait_until(lambda: len(children_of(init)) == 1, lambda: children_of(init))  # the fork server, and no zombie
    job = handlers.naps.enqueue(0.5).id
    wait_until(lambda: bool(workers.trace.of(job, "begin")))
    os.kill(init, signal.SIGTERM)
    assert container.wait() == 0
    assert outcomes(job) == ["SUCCEEDED"]


class Systemd:
    """The end of the socket that systemd would hold."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)
        self.said: list[str] = []

    def hears(self, what: str) -> bool:
        while True:
            try:
                self.said += self._socket.recv(4_096).decode().splitlines()
            except BlockingIOError:
                return what in self.said

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    systemd = Systemd(tmp_path)
    yield systemd
    systemd.close()


def test_systemd_hears_when_it_is_ready_alive_and_stopping(workers: Workers, systemd: Systemd) -> None:
    worker = workers.start(env={"NOTIFY_SOCKET": systemd.path, "WATCHDOG_USEC": "400000"})
    wait_until(lambda: systemd.hears("READY=1"), lambda: worker.log)
    wait_until(lambda: "is ready" in worker.log)  # lines are written a moment later
    systemd.said.clear()
    wait_until(lambda: systemd.hears("WATCHDOG=1"))
    systemd.said.clear()
    wait_until(lambda: systemd.hears("WATCHDOG=1"))  # and again
    job = handlers.naps.enqueue(0.8).id
    wait_until(lambda: bool(workers.trace.of(job, "begin")))
    worker.signal(signal.SIGTERM)
    wait_until(lambda: systemd.hears("STOPPING=1"))
    systemd.said.clear()
    wait_until(lambda: systemd.hears("WATCHDOG=1") or worker.exit_code is not None)
    assert systemd.hears("WATCHDOG=1"), "it is alive as long as handlers are let finish"
    assert worker.wait() == 0


def test_a_worker_that_loses_the_process_which_makes_its_children_says_so_and_ends(workers: Workers) -> None:
    worker = workers.ready(settings=LONG_LEASE)
    os.kill(worker.fork_server(), signal.SIGKILL)
    assert worker.wait() == 3
    wait_until(lambda: not worker.left_behind(), worker.left_behind)


def test_the_code_may_change_under_a_worker_that_reloads(workers: Workers, tmp_path: Path) -> None:
    module = tmp_path / "reloaded_tasks.py"
    text = "from pulse_django import task\n\n@task(name='reloaded.says')\ndef says() -> str:\n    return '{}'\n"
    module.write_text(text.format("before"))
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parent.parent.parent)])
    worker = workers.ready(
        "--reload",
        settings={"TASK_MODULES": ["reloaded_tasks"], "UNKNOWN_TASK_DELAY": 3_600},
        env={"PYTHONPATH": path, "DEBUG": "1"},
    )
    assert _said(worker) == "before"
    not_written = Job.objects.enqueue(NewJob(task="reloaded.new"))
    wait_until(lambda: str(api.get(not_written.pk).last_error).startswith("unknown task"))
    module.write_text(text.format("afterwards") + "@task(name='reloaded.new')\ndef new() -> None: ...\n")
    os.utime(module, (time.time() + 5, time.time() + 5))
    wait_until(lambda: worker.log.count("is ready") == 2, lambda: worker.log)
    assert _said(worker) == "afterwards"
    wait_for(Status.COMPLETED, not_written.pk)  # it does not wait for an hour


def _said(worker: StartedProcess) -> object:
    job = Job.objects.enqueue(NewJob(task="reloaded.says"))
    wait_for(Status.COMPLETED, job.pk)
    return api.get(job.pk).result
