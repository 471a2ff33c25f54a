"""How many threads work: one while handlers prove short, more as soon as one of them is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pulse_django.worker.executors import threads
from pulse_django.worker.executors.threads import Threads
from tests.crash.workers import wait_until


class Handlers:
    """An executor whose runs are functions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slots: int) -> None:
        self.done: list[Any] = []
        self.workers: set[str] = set()
        monkeypatch.setattr(threads, "perform", self._perform)
        self.turned_short = 0
        self.executor = Threads(
            slots, self._begin, lambda run, performed: self.done.append(run), turned_short=self._turn_short
        )

    def _turn_short(self) -> None:
        self.turned_short += 1

    def _begin(self, run: Any) -> bool:
        run.begun_at = time.monotonic()
        return True

    def _perform(self, run: Any) -> Any:
        self.workers.add(threading.current_thread().name)
        run.handler()
        return SimpleNamespace(ended_at=None)

    def submit(self, *handlers: Callable[[], Any]) -> None:
        self.executor.submit([SimpleNamespace(handler=one, begun_at=None) for one in handlers])  # type: ignore[misc]

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.done) >= count, lambda: f"{len(self.done)} of {count}")

    def prove_short(self) -> None:
        """Run short handlers until one thread is thought to be enough."""
        count = len(self.done)
        for _ in range(50):
            self.submit(*[_nothing] * 20)
            count += 20
            self.wait_for(count)
            if self.executor._slow < threads.MOST_SLOW:
                break
        assert self.executor._slow < threads.MOST_SLOW
        self.wait_until_all_sleep()
        self.workers.clear()

    def wait_until_all_sleep(self) -> None:
        wait_until(lambda: len(self.executor._sleeping) == len(self.executor._threads))


def _nothing() -> None:
    pass


def test_short_handlers_run_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = Handlers(monkeypatch, 8)
    monkeypatch.setattr(threads, "SHORT", 60.0)  # a busy machine is not to make one of them slow
    handlers.prove_short()
    before = len(handlers.done)
    handlers.submit(*[_nothing] * 100)
    handlers.wait_for(before + 100)
    assert len(handlers.workers) == 1


def test_threads_that_are_not_needed_any_more_go_to_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits never runs out while handlers turn from slow to short; the other threads do not work to the end."""
    handlers = Handlers(monkeypatch, 4)
    monkeypatch.setattr(threads, "SHORT", 60.0)
    meeting, goes_on = threading.Barrier(5), threading.Event()
    handlers.executor._slow = 1.0

    def waits() -> None:
        meeting.wait(20)
        goes_on.wait(20)

    handlers.submit(*[waits] * 4)
    meeting.wait(20)
    assert len(handlers.executor._threads) == 4
    handlers.submit(*[_nothing] * 300)
    goes_on.set()
    handlers.wait_for(150)
    awake_at_the_end: list[int] = []
    handlers.submit(lambda: awake_at_the_end.append(4 - len(handlers.executor._sleeping)))
    handlers.wait_for(305)
    assert awake_at_the_end == [1]


def test_a_handler_that_does_not_return_is_not_taken_for_the_one_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody calls ``hurry``: while one handler waits, the short ones behind it are all run by another thread."""
    handlers = Handlers(monkeypatch, 4)
    monkeypatch.setattr(threads, "SHORT", 60.0)
    goes_on = threading.Event()
    handlers.submit(lambda: goes_on.wait(20))
    handlers.submit(*[_nothing] * 2_000)
    handlers.wait_for(2_000)
    assert handlers.executor._slow < threads.NONE_SLOW
    assert handlers.turned_short == 1
    goes_on.set()
    handlers.wait_for(2_001)


def test_what_waits_is_run_though_all_think_that_another_will_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = Handlers(monkeypatch, 8)
    monkeypatch.setattr(threads, "SHORT", 60.0)  # all are short: threads go to sleep whenever two are awake
    count = 0
    for _ in range(60):
        handlers.executor._slow = 1.0
        handlers.submit(*[_nothing] * 8)
        handlers.executor._slow = 0.0
        handlers.submit(_nothing)
        count += 9
        handlers.wait_for(count)


def test_a_handler_that_does_not_return_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many as there are slots, and the first of them waits for the last: other threads have to come."""
    handlers = Handlers(monkeypatch, 4)
    handlers.prove_short()
    before, last_ran = len(handlers.done), threading.Event()
    handlers.submit(lambda: last_ran.wait(20), *[_nothing] * 6, last_ran.set)
    wait_until(lambda: handlers.executor.hurry() or len(handlers.done) == before + 8)  # type: ignore[func-returns-value]
    assert last_ran.is_set()
    assert len(handlers.workers) > 1


def test_while_short_handlers_go_on_nobody_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = Handlers(monkeypatch, 4)
    handlers.prove_short()
    handlers.executor._ended_before = -1  # a run has ended since the last look
    monkeypatch.setattr(Threads, "works_in_a_row", property(lambda self: True))
    handlers.executor.hurry()
    assert handlers.executor._slow < threads.MOST_SLOW
    monkeypatch.setattr(threads, "PATIENCE_WITH_ONE", -1.0)
    handlers.executor.hurry()
    assert handlers.executor._slow == 1.0


def test_handlers_that_wait_get_all_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four wait for each other: they end only if four threads run them. No one calls ``hurry``."""
    handlers = Handlers(monkeypatch, 4)
    handlers.prove_short()
    before, meeting = len(handlers.done), threading.Barrier(4)
    handlers.submit(*[lambda: time.sleep(0.002)] * 60)
    handlers.wait_for(before + 60)
    handlers.submit(*[lambda: meeting.wait(20)] * 4)
    handlers.wait_for(before + 64)
    assert len(handlers.workers) == 4


def test_never_more_threads_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = Handlers(monkeypatch, 3)
    handlers.submit(*[lambda: time.sleep(0.001)] * 200)
    handlers.wait_for(200)
    assert len(handlers.executor._threads) == 3
