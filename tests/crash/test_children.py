"""The processes that run handlers die, freeze, grow and get stuck; their keeper sees to what they leave."""

from __future__ import annotations

import math
import os
import re
import signal
import time

import pytest

from pulse_django.models import Attempt, Job, Worker
from pulse_django.queue.words.states import Status
from testproject.shop import tasks
from tests.crash.workers import LONG_LEASE, QUICK, Workers, is_alive, outcomes, status, wait_for, wait_until
from tests.worker import handlers

pytestmark = pytest.mark.usefixtures("pulse_db")

AT_ONCE = 4.0  # seconds: a lease of LONG_LEASE and the watchdogs' pause are several times as long


def test_a_child_that_is_killed_is_recovered_in_about_a_second(workers: Workers) -> None:
    first = [handlers.writes_a_line.using(priority=9).enqueue().id for _ in range(60)]  # so that more is claimed
    slow = handlers.naps.using(priority=5).enqueue(60).id
    behind = [handlers.writes_a_line.enqueue().id for _ in range(20)]
    worker = workers.ready("--concurrency", "1", settings=LONG_LEASE)
    wait_until(lambda: bool(workers.trace.of(slow, "begin")))
    wait_for(Status.COMPLETED, *first)
    Job.objects.filter(pk=slow).update(args=[0])
    claimed = Job.objects.filter(status=Status.RUNNING).count()
    child = worker.child()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: Attempt.objects.filter(job_id=slow).exists(), patience=AT_ONCE)
    wait_for(Status.COMPLETED, slow, *behind)
    assert outcomes(slow) == ["WORKER_LOST", "SUCCEEDED"]
    assert "killed by SIGKILL" in Job.objects.get(pk=slow).last_error
    assert worker.child() != child
    assert claimed > 1, "nothing was waiting behind the slow one, so this proves nothing of refunds"
    for job in Job.objects.filter(pk__in=behind):
        assert job.attempts - job.refunds == 1
        assert "WORKER_LOST" not in outcomes(job.pk)
    assert set(workers.trace.count("ran").values()) == {1}


def test_a_handler_that_kills_its_process_is_dead_after_its_budget_and_its_neighbours_complete(
    workers: Workers,
) -> None:
    neighbours = [handlers.naps.enqueue(0.3).id for _ in range(10)]
    deadly = handlers.is_killed.enqueue().id
    neighbours += [tasks.add.enqueue(1, 2).id for _ in range(20)]
    workers.start("--concurrency", "4", settings=LONG_LEASE)
    wait_for(Status.DEAD_LETTERED, deadly)
    assert outcomes(deadly) == ["WORKER_LOST"] * 3
    assert "SIGKILL" in Job.objects.get(pk=deadly).last_error
    assert len(workers.trace.of(deadly, "ran")) == 3
    wait_for(Status.COMPLETED, *neighbours)


def test_a_disposable_process_has_no_socket_but_its_channel_and_what_it_starts_has_none(workers: Workers) -> None:
    """The worker's connections, and those of other handlers, stay with those whose they are."""
    busy = [handlers.asks_and_naps.enqueue(3.0).id for _ in range(3)]  # connections that might be passed on
    worker = workers.start("--concurrency", "4", settings=LONG_LEASE)
    wait_until(lambda: workers.trace.count("begin").total() == len(busy), lambda: worker.log)
    job = handlers.lists_its_files.enqueue().id
    wait_for(Status.COMPLETED, job)
    said = Job.objects.get(pk=job).result
    assert len([name for name in said["mine"] if name.startswith("socket:")]) == 1, said
    assert not [name for name in said["inherited"] if name.startswith(("socket:", "/dev/zero"))], said


@pytest.mark.parametrize(
    ("name", "said"), [("exits", "exited with status 3"), ("segfaults", "SIGSEGV")], ids=["os._exit", "segfault"]
)
def test_how_a_process_ended_is_kept(workers: Workers, name: str, said: str) -> None:
    job = handlers.registered(f"tests.worker.handlers.{name}").enqueue().id
    workers.start(settings=LONG_LEASE)
    wait_for(Status.DEAD_LETTERED, job)
    assert outcomes(job) == ["WORKER_LOST"]
    assert said in Job.objects.get(pk=job).last_error


def test_a_handler_that_closes_all_files_of_its_process_is_told_without_a_traceback(workers: Workers) -> None:
    worker = workers.ready()
    job = handlers.closes_all_files_of_its_process.enqueue().id
    wait_for(Status.DEAD_LETTERED, job)
    assert Job.objects.get(pk=job).last_error.endswith("its process exited with status 70")
    assert "Traceback" not in worker.log, worker.log


def test_a_handler_that_closes_all_files_takes_down_no_more_than_its_process(workers: Workers) -> None:
    job = handlers.closes_all_files.enqueue().id
    worker = workers.ready(settings=LONG_LEASE)
    wait_until(lambda: status(job) not in (Status.PENDING, Status.RUNNING))
    after = tasks.add.enqueue(1, 2).id
    wait_for(Status.COMPLETED, after)
    assert worker.exit_code is None


def test_a_child_that_shows_no_sign_of_life_is_killed_and_recovered(workers: Workers) -> None:
    worker = workers.ready("--no-watchdog", settings=LONG_LEASE | {"CHILD_TIMEOUT": 2})
    job = handlers.naps.enqueue(60).id
    wait_until(lambda: bool(workers.trace.of(job, "begin")))
    Job.objects.filter(pk=job).update(args=[0])
    frozen = worker.child()
    os.kill(frozen, signal.SIGSTOP)
    wait_for(Status.COMPLETED, job)
    assert outcomes(job) == ["WORKER_LOST", "SUCCEEDED"]
    assert "silence" in Job.objects.get(pk=job).last_error
    assert not is_alive(frozen)


def test_a_handler_that_holds_the_interpreter_for_longer_than_its_lease_completes_once(workers: Workers) -> None:
    ttl = QUICK["LEASE_TTL"]
    job = handlers.holds_the_interpreter.enqueue(_letters_that_take(1.8 * ttl)).id
    worker = workers.start("--concurrency", "2")
    wait_until(lambda: status(job) not in (Status.PENDING, Status.RUNNING))
    [held] = workers.trace.of(job, "held")
    assert held["seconds"] > 1.2 * ttl, "it was quicker than it was measured to be: this proves nothing"
    wait_for(Status.COMPLETED, job)
    assert outcomes(job) == ["SUCCEEDED"]
    assert not worker.says("lease lost"), worker.log


def _innermost(job: str) -> str:
    """Return the function in which the run was, as its stack in the ledger says."""
    traceback = Attempt.objects.filter(job_id=job).order_by("number")[0].traceback
    assert traceback.startswith("Stack of the handler when it was given up"), traceback
    found = re.findall(r'File "(\S+)", line \d+, in (\w+)', traceback)
    assert found[0][0].endswith("handlers.py"), traceback
    assert "(a+)+$" in traceback
    return found[0][1]


def test_a_handler_that_holds_the_interpreter_of_its_process_is_killed_and_says_where_it_was(workers: Workers) -> None:
    job = handlers.holds_its_interpreter.enqueue(_letters_that_take(60)).id
    workers.start("--concurrency", "2", settings=LONG_LEASE)
    wait_for(Status.DEAD_LETTERED, job)
    assert outcomes(job)[0] == "TIMED_OUT"
    assert _innermost(job) == "holds_its_interpreter"


def test_a_child_that_is_killed_because_a_handler_holds_its_interpreter_says_where_that_was(workers: Workers) -> None:
    workers.start("--concurrency", "2", settings=LONG_LEASE | {"CHILD_TIMEOUT": 2})
    job = handlers.holds_the_interpreter.enqueue(_letters_that_take(60)).id
    wait_until(lambda: outcomes(job) == ["WORKER_LOST"])
    assert _innermost(job) == "holds_the_interpreter"


def _time_of(letters: int) -> float:
    begin = time.thread_time()
    re.match(r"(a+)+$", "a" * letters + "b")
    return time.thread_time() - begin


def _letters_that_take(seconds: float) -> int:
    """Each letter more doubles the time."""
    letters, took = 18, 0.0
    while took < 0.1:
        letters += 1
        took = min(_time_of(letters) for _ in range(3))  # others may have been busy meanwhile
    return letters + math.ceil(math.log2(seconds / took))


def test_stuck_slots_are_shown_and_their_process_is_replaced_when_it_has_no_other(workers: Workers) -> None:
    worker = workers.ready("--concurrency", "3")
    stuck = [handlers.never_comes_back.enqueue().id for _ in range(2)]
    wait_for(Status.DEAD_LETTERED, *stuck)
    assert {tuple(outcomes(job)) for job in stuck} == {("TIMED_OUT",)}
    wait_until(lambda: Worker.objects.get().stuck_slots == 2)
    vitals = Worker.objects.get().vitals
    assert set(vitals["stuck"]) == {f"{job} {handlers.never_comes_back.registered_name}" for job in stuck}
    processes = vitals["processes"]
    assert set(processes) == {"keeper", "1"}
    assert processes["1"]["pid"] == worker.child()
    assert processes["1"]["rss"]["0"] > 10
    assert worker.says("2 of 3 are stuck")
    child = worker.child()
    wait_for(Status.COMPLETED, tasks.add.enqueue(1, 2).id)
    assert worker.children() == [child], "one slot was left, and it is used"
    wait_for(Status.DEAD_LETTERED, handlers.never_comes_back.enqueue().id)
    wait_until(lambda: worker.children() not in ([], [child]) and not is_alive(child))
    wait_for(Status.COMPLETED, tasks.add.enqueue(1, 2).id)
    wait_until(lambda: Worker.objects.get().stuck_slots == 0)
    assert "testproject.shop.tasks.add" in Worker.objects.get().tasks, "what it can run"
    handlers.naps.enqueue(3.0)  # with a lease to extend
    wait_until(lambda: Worker.objects.get().vitals["beats"] > 0)
    vitals = Worker.objects.get().vitals
    assert vitals["beats"] == sum(vitals["beat_delays"].values())


def test_children_whose_keeper_is_killed_finish_what_runs_and_go(workers: Workers) -> None:
    worker = workers.ready("--processes", "2", "--concurrency", "1", settings=LONG_LEASE)
    running = [handlers.naps.enqueue(1.5).id for _ in range(2)]
    wait_until(lambda: workers.trace.count("begin").total() == 2)
    worker.family()
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    left_alone = handlers.writes_a_line.enqueue().id
    wait_for(Status.COMPLETED, *running)
    assert [outcomes(job) for job in running] == [["SUCCEEDED"]] * 2
    wait_until(lambda: not worker.left_behind(), worker.left_behind)
    assert status(left_alone) == Status.PENDING


def test_a_runner_ends_with_its_keeper_and_its_child(workers: Workers) -> None:
    worker = workers.ready(settings=LONG_LEASE)
    job = handlers.registered("process.is_cancelled").enqueue().id
    wait_until(lambda: bool(workers.trace.of(job, "works")))
    [works] = workers.trace.of(job, "works")
    [child] = set(worker.children()) - {works["pid"]}
    worker.family()
    for pid in (child, worker.pid):
        os.kill(pid, signal.SIGKILL)
    worker.wait()
    wait_until(lambda: not worker.left_behind(), worker.left_behind)


def test_a_process_is_replaced_after_so_many_jobs(workers: Workers) -> None:
    jobs = [handlers.writes_a_line.enqueue().id for _ in range(7)]
    worker = workers.ready("--max-jobs", "3", "--concurrency", "2")
    wait_for(Status.COMPLETED, *jobs)
    ran_by = [line["pid"] for line in workers.trace.lines()]
    assert len(ran_by) == 7
    assert sorted(ran_by.count(pid) for pid in set(ran_by)) == [1, 3, 3]
    assert [outcomes(job) for job in jobs] == [["SUCCEEDED"]] * 7
    assert worker.says("it has run 3 jobs")


def test_a_burst_goes_on_in_a_new_process_when_one_is_used_up(workers: Workers) -> None:
    jobs = [handlers.writes_a_line.enqueue().id for _ in range(5)]
    assert workers.start("--burst", "--max-jobs", "2").wait() == 0
    assert [status(job) for job in jobs] == [Status.COMPLETED] * 5


def test_a_process_that_uses_too_much_memory_is_replaced_after_its_jobs(workers: Workers) -> None:
    worker = workers.ready("--max-rss-mib", "220")
    child = worker.child()
    wait_for(Status.COMPLETED, tasks.add.enqueue(1, 2).id)
    assert worker.child() == child
    job = handlers.eats.enqueue(300).id
    wait_for(Status.COMPLETED, job)
    wait_until(lambda: worker.children() not in ([], [child]))
    wait_for(Status.COMPLETED, tasks.add.enqueue(1, 2).id)
    assert outcomes(job) == ["SUCCEEDED"]
