"""``result.wait()``: until when it waits, what it costs, and where it is refused."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from pulse_django import api
from pulse_django.exceptions import CannotWait
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from pulse_django.run.registry import TaskResultDoesNotExist
from pulse_django.run.waiting import EndWatcher, watcher_of
from pulse_django.tasks import task
from pulse_django.testing import drain, run_job
from testproject.harness.processes import wait_until
from testproject.shop import tasks
from tests.faults import all_faults

committing = pytest.mark.usefixtures("pulse_db")

LONG = 30  # seconds: a wait that takes so long has failed


@task(max_attempts=5)
def waits_for_another(job_id: str) -> None:
    tasks.add.get_result(job_id).wait(LONG)


@task(max_attempts=5)
async def waits_for_another_on_the_loop(job_id: str) -> None:
    await (await tasks.add.aget_result(job_id)).await_(LONG)


class Looks:
    """What watchers asked: for how many waits, in how many statements, and in which session."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int]] = []
        self.pid = 0
        look = EndWatcher._look

        def noted(watcher: EndWatcher, waits: dict[Any, int]) -> None:
            own = connections["default"]
            with CaptureQueriesContext(own) as sent:
                look(watcher, waits)
            if own.connection is not None:  # it is closed where the look failed
                self.pid = own.connection.info.backend_pid
            self.seen.append((len(waits), len(sent)))

        monkeypatch.setattr(EndWatcher, "_look", noted)

    def until(self, waits: int) -> None:
        """Wait until so many waits were looked after at once."""
        wait_until(lambda: any(many == waits for many, _ in self.seen), lambda: self.seen)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Looks]:
    yield Looks(monkeypatch)
    wait_until(lambda: watcher_of("default")._thread is None, "the watcher goes on after the last wait")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def alone(wait: Callable[[], Any]) -> Callable[[], Any]:
    """Do it in a thread, and leave no connection there."""

    def run() -> Any:
        try:
            return wait()
        finally:
            connections.close_all()

    return run


@committing
class TestWait:
    def test_many_threads_share_one_statement_a_look(self, looks: Looks, threads: ThreadPoolExecutor) -> None:
        results = [tasks.add.enqueue(number, 1) for number in range(8)]
        waits = [threads.submit(alone(lambda one=one: one.wait(LONG))) for one in results]  # type: ignore[misc]
        looks.until(8)
        run_job(results[0])
        assert waits[0].result(LONG) is results[0]
        looks.until(7)
        drain()
        assert [wait.result(LONG).return_value for wait in waits] == [number + 1 for number in range(8)]
        assert {statements for _, statements in looks.seen} == {1}

    def test_async_tasks_share_it_too(self, looks: Looks, threads: ThreadPoolExecutor) -> None:
        results = [tasks.add.enqueue(number, 1) for number in range(3)]

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(one.await_(timedelta(seconds=LONG)) for one in results))

        waits = threads.submit(alone(lambda: asyncio.run(all_of_them())))
        looks.until(3)
        drain()
        assert [one.return_value for one in waits.result(LONG)] == [1, 2, 3]
        assert {statements for _, statements in looks.seen} == {1}

    def test_a_job_that_is_over_is_not_waited_for(self, looks: Looks) -> None:
        completed, dead, cancelled = tasks.add.enqueue(1, 2), tasks.fail.using(max_attempts=1).enqueue("x"), None
        drain(failures="keep")
        cancelled = tasks.add.enqueue(1, 2)
        api.cancel(cancelled.id)
        assert [one.wait(0).status for one in (completed, dead, cancelled)] == ["SUCCESSFUL", "FAILED", "FAILED"]
        assert async_to_sync(tasks.add.get_result(completed.id).await_)(0).return_value == 3
        assert looks.seen == []

    def test_it_waits_through_retries_for_the_end(self, looks: Looks, threads: ThreadPoolExecutor) -> None:
        result = tasks.fail.using(max_attempts=2).enqueue("x")
        wait = threads.submit(alone(lambda: result.wait(LONG)))
        looks.until(1)
        run_job(result, failures="keep")
        looks.seen.clear()
        looks.until(1)
        assert not wait.done()
        Job.objects.filter(pk=result.id).update(next_run_at="2020-01-01T00:00Z")
        run_job(result, failures="keep")
        assert (wait.result(LONG).status, result.attempts) == ("FAILED", 2)

    def test_a_job_that_is_deleted_meanwhile_has_no_result(self, looks: Looks, threads: ThreadPoolExecutor) -> None:
        result = tasks.add.enqueue(1, 2)
        wait = threads.submit(alone(lambda: result.wait(LONG)))
        looks.until(1)
        Job.objects.all().delete()
        with pytest.raises(TaskResultDoesNotExist):
            wait.result(LONG)

    @pytest.mark.session("the pooler gives the next look another session")
    def test_a_lost_connection_is_raised_by_each_wait(self, looks: Looks, threads: ThreadPoolExecutor) -> None:
        result = tasks.add.enqueue(1, 2)
        waits = [threads.submit(alone(lambda: result.wait(LONG))) for _ in range(2)]
        looks.until(2)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [looks.pid])
        for wait in waits:
            with pytest.raises(OperationalError):
                wait.result(LONG)

    @pytest.mark.session("the pooler gives the next look another session")
    def test_a_wait_that_begins_beside_a_lost_connection_has_another(
        self, looks: Looks, threads: ThreadPoolExecutor
    ) -> None:
        """The thread goes on for the next wait, and would go on with what is broken."""
        first, next_one = tasks.add.enqueue(1, 2), tasks.add.enqueue(1, 2)
        watcher = watcher_of("default")
        with watcher.watching(int(next_one.id)) as ended:
            with watcher.watching(int(first.id)) as broken:
                looks.until(2)
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_terminate_backend(%s)", [looks.pid])
                with pytest.raises(OperationalError):
                    broken.result(LONG)
            with pytest.raises(OperationalError):
                ended.result(LONG)
            with watcher.watching(int(next_one.id)) as again:
                api.cancel(next_one.id)
                again.result(LONG)

    def test_looks_become_rarer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        job, pauses = tasks.add.enqueue(1, 2), []
        watcher = EndWatcher("default")

        class Unchanged(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                pauses.append(timeout)
                if len(pauses) == 15:
                    api.cancel(job.id)
                return False

        watcher._changed = Unchanged()
        with watcher.watching(int(job.id)) as ended:
            ended.result(LONG)
        assert pauses[0] == 0.05
        assert pauses[:15] == sorted(pauses[:15])
        assert pauses[14] == 1.0


@committing
class TestTimeouts:
    def test_it_raises_when_the_job_takes_too_long_and_where_that_is_no_duration(self, looks: Looks) -> None:
        result = tasks.add.enqueue(1, 2)
        late, wrong = f"job {result.id} was still READY", r"timeout: .* is not a number of seconds or a timedelta"
        cases: list[tuple[Any, type[Exception], str]] = [
            *((timeout, TimeoutError, late) for timeout in (0, 0.01, timedelta(milliseconds=10), -1)),
            *(("5", TypeError, wrong), (None, TypeError, wrong), (float("nan"), ValueError, wrong)),
        ]
        with all_faults() as about:
            for timeout, kind, said in cases:
                for wait in (result.wait, async_to_sync(result.await_)):
                    with about(timeout), pytest.raises(kind, match=said):
                        wait(timeout)

    def test_one_that_gives_up_takes_nothing_from_the_others(self, looks: Looks, threads: ThreadPoolExecutor) -> None:
        result = tasks.add.enqueue(1, 2)
        wait = threads.submit(alone(lambda: result.wait(float("inf"))))
        looks.until(1)
        for short in (result.wait, async_to_sync(result.await_)):
            with pytest.raises(TimeoutError):
                short(0.01)
        drain()
        assert wait.result(LONG).return_value == 3

    def test_what_ends_in_the_last_moment_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next look of the watcher would have come after the timeout."""

        class EndsUnseen(Future[None]):
            def result(self, timeout: float | None = None) -> None:
                drain()
                time.sleep(timeout or 0)
                raise TimeoutError

        monkeypatch.setattr(EndWatcher, "watching", lambda *_: nullcontext(EndsUnseen()))
        assert tasks.add.enqueue(1, 2).wait(0.2).return_value == 3


@committing
class TestRefusals:
    def test_inside_a_transaction(self) -> None:
        result = tasks.add.enqueue(1, 2)
        for wait in (result.wait, async_to_sync(result.await_)):
            with transaction.atomic(), pytest.raises(CannotWait, match="wait outside atomic"):
                wait(LONG)
        with transaction.atomic(), pytest.raises(CannotWait, match="begins after the commit"):
            tasks.add.enqueue(1, 2).wait(LONG)

    def test_in_a_handler_which_is_not_tried_again(self) -> None:
        other = tasks.add.using(run_after=timedelta(hours=1)).enqueue(1, 2).id
        for waits in (waits_for_another, waits_for_another_on_the_loop):
            ran = run_job(waits.enqueue(other), failures="keep")
            assert isinstance(ran.error, CannotWait)
            assert (ran.status, ran.attempt) == (Status.DEAD_LETTERED, 1)


@pytest.mark.django_db
def test_a_job_that_was_drained_is_over_and_no_other_will_be() -> None:
    result = tasks.add.enqueue(1, 2)
    with pytest.raises(CannotWait, match="drain"):
        result.wait(LONG)
    drain()
    assert result.wait(LONG).return_value == 3
