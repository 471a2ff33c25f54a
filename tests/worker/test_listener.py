"""Wake-ups are a hint: few are passed on however many are sent, and nobody relies on hearing them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pulse_django.queue.database.workers import Standing
from pulse_django.run.notify import watch_progress
from pulse_django.worker import listener as module
from pulse_django.worker.guarded_connection import keep_calling
from pulse_django.worker.listener import MOST_IN_VAIN, Listener, WakeUpBudget
from tests.crash.processes import database_url
from tests.crash.workers import wait_until
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")


class Heard:
    """A listener at work, and what it passed on."""

    def __init__(self, *queues: str) -> None:
        self.names: list[str] = []
        self.following: list[str | None] = []
        self.has_somebody = True  # who looks for work
        self.standing: Standing | None = None
        self.listener = Listener("default", queues, self._hear, tick=0.05, standing=lambda: self.standing)
        self._over = threading.Event()
        listener = self.listener
        calls = listener.database, self._over, listener.run_once, listener.hang_up
        self._thread = threading.Thread(target=keep_calling, args=calls)
        self._thread.start()

    def _hear(self, name: str, following: str | None) -> bool:
        self.names.append(name)
        self.following.append(following)
        return self.has_somebody

    def end(self) -> None:
        self._over.set()
        self.listener._budget.spend = lambda: True  # type: ignore[method-assign]  # what is left goes through at once
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def listen() -> Iterator[Any]:
    started: list[Heard] = []

    def start(*queues: str) -> Heard:
        started.append(Heard(*queues))
        wait_until(lambda: started[-1].listener.hears)
        return started[-1]

    yield start
    for heard in started:
        heard.end()


def notify(name: str, count: int = 1) -> None:
    """NOTIFY is open to everybody; PostgreSQL joins equal ones of a transaction, so that these differ."""
    payload = "%s || (g.n)::text" if count > 1 else "%s"
    sql(f"SELECT count(pg_notify('pulse_django', {payload})) FROM generate_series(1, {count}) AS g (n)", name)


def test_the_name_of_the_queue_is_passed_on(listen: Any) -> None:
    heard = listen()
    notify("mail")
    wait_until(lambda: heard.names == ["mail"])


def test_a_look_at_a_job_wakes_nobody(listen: Any) -> None:
    heard, watched = listen(), []
    heard.listener._watched = watched.append
    watch_progress("default", 4711)
    watch_progress("default", 4711)  # so soon, it is not said again
    notify("\x03" + "9" * 19)  # no id: the name of a queue that nobody has
    notify("mail")
    wait_until(lambda: heard.names[-1:] == ["mail"])
    assert watched == [4711]


def test_queues_of_others_wake_nobody(listen: Any) -> None:
    heard = listen("mail")
    notify("other", 50)
    notify("mail")
    wait_until(lambda: heard.names == ["mail"])


def test_a_worker_of_a_fleet_acts_on_its_share_and_knows_who_follows(listen: Any) -> None:
    heard = listen()
    heard.standing = Standing(rank=3, total=8)
    notify("mail\x021.0")  # for the ranks 1 and 2
    notify("mail\x022.0")  # for 2 and 3, which is at the second place
    wait_until(lambda: heard.names == ["mail"])
    assert heard.following == ["mail\x022.4"]
    notify("mail")
    wait_until(lambda: heard.names == ["mail", "mail"])
    assert heard.following[1] is None


def test_where_nobody_can_look_the_workers_that_follow_are_told(listen: Any) -> None:
    stopping, following = listen(), listen()
    stopping.standing, stopping.has_somebody = Standing(rank=0, total=3), False
    following.standing = Standing(rank=2, total=3)
    notify("mail\x020.0")
    wait_until(lambda: following.names == ["mail"])
    assert stopping.names == ["mail"]


def test_what_is_to_be_passed_on_is_not_forgotten_when_there_were_many(listen: Any) -> None:
    """A busy worker finds nothing, so its wake-ups are in vain. A job may wait for the workers that follow it."""
    heard = listen()
    heard.standing = Standing(rank=0, total=4)
    for number in range(0, 400, 4):
        notify(f"mail\x02{number}.0")
    wait_until(lambda: "" in heard.names)
    assert heard.following[heard.names.index("")] is not None


def test_ten_thousand_forged_wake_ups_cause_a_handful_of_looks(listen: Any) -> None:
    heard = listen()
    begin = time.monotonic()
    notify("forged", 10_000)
    wait_until(lambda: bool(heard.names))
    time.sleep(1.0)  # the figure is a rate
    took = time.monotonic() - begin
    assert len(heard.names) <= MOST_IN_VAIN * (2 + took)


def test_a_real_wake_up_is_heard_soon_after_ten_thousand_forged_ones(listen: Any) -> None:
    heard = listen()
    notify("forged", 10_000)
    notify("mail")
    wait_until(lambda: "mail" in heard.names or "" in heard.names, lambda: heard.names[-3:], patience=4)


def test_wake_ups_that_find_work_are_not_counted() -> None:
    budget = WakeUpBudget()
    assert [budget.spend() for _ in range(int(MOST_IN_VAIN) + 1)][-1] is False
    for _ in range(100):
        budget.refund()
        assert budget.spend()


def test_a_connection_that_is_closed_is_opened_again(listen: Any) -> None:
    heard = listen()
    closed = sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE query LIKE 'LISTEN%%' AND datname = current_database()"
    )
    assert closed == [(True,)]
    wait_until(lambda: not heard.listener.hears)
    wait_until(lambda: heard.listener.hears)
    notify("mail")
    wait_until(lambda: "mail" in heard.names)


def test_a_connection_on_which_nothing_happens_is_cut(listen: Any) -> None:
    listener = listen().listener
    listener.cut_if_hung(time.monotonic())
    assert listener.hears, "its last turn was just now"
    listener.cut_if_hung(time.monotonic() + module.PATIENCE + 1)
    wait_until(lambda: not listener.hears)
    wait_until(lambda: listener.hears)


def test_a_pooler_that_lets_nothing_through_is_found_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """LISTEN succeeds there, and then nothing is ever heard."""
    monkeypatch.setattr(module, "PATIENCE_FOR_TEST", 0.2)
    listener = Listener("default", (), lambda name, following: True, tick=0.05)
    monkeypatch.setattr(listener, "_receive", lambda *_: [])
    try:
        assert listener.run_once() == module.BEFORE_TRYING_AGAIN
    finally:
        listener.database.hang_up()
    assert not listener.hears
    assert "transaction pooler" in caplog.text
    assert "LISTEN_DSN" in caplog.text


def test_another_way_to_listen_can_be_named(listen: Any, settings: Any) -> None:
    settings.PULSE = {"LISTEN_DSN": database_url() + "&application_name=by_the_side_door"}
    heard = listen()
    assert sql("SELECT query FROM pg_stat_activity WHERE application_name = 'by_the_side_door'")
    notify("mail")
    wait_until(lambda: heard.names == ["mail"])


def test_a_database_that_is_away_is_not_asked_in_a_tight_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[float] = []

    def refused(**_: Any) -> None:
        attempts.append(time.monotonic())
        raise psycopg.OperationalError("connection refused")

    listener = Listener("default", (), lambda name, following: True, tick=0.05)
    pauses = []
    with monkeypatch.context() as away:
        away.setattr(module.psycopg, "connect", refused)
        for _ in range(8):
            with pytest.raises(psycopg.OperationalError) as caught:
                listener.run_once()
            pauses.append(listener.database.failed(caught.value))
    listener.database.hang_up()
    assert len(attempts) == 8
    assert pauses[-1] >= 0.5, "longer from failure to failure"
    assert "responding again" not in caplog.text
    assert caplog.text.count("wake-up") == 1, "told once"
