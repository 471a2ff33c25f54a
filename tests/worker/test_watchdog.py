"""The watchdog: it ends what is over, tells of it, and after an outage it believes no lease for one TTL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from pulse_django.models import Job
from pulse_django.queue.database.job_queries import ServerClock
from pulse_django.queue.words.states import HOT, Status
from pulse_django.signals import job_dead_lettered, job_reaped
from pulse_django.worker import watchdog
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.watchdog import Swept, Watchdog
from tests.factories import make_job, now
from tests.queue.steps import sql
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("pulse_db")


class Clock:
    """A monotonic clock that stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watchdog, "time", clock)
    return clock


@pytest.fixture
def database() -> Iterator[GuardedConnection]:
    database = GuardedConnection("default", "watchdog")
    yield database
    connection.close()  # it has the settings of the line by now
    database.hang_up()


@pytest.fixture
def up_for(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Since when the server is up: what the test says."""
    said = [1e6]
    monkeypatch.setattr("pulse_django.managers.JobManager.server_clock", lambda self: ServerClock(1.0, said[0]))
    return said


@pytest.fixture
def dog(database: GuardedConnection, clock: Clock, up_for: list[float]) -> Watchdog:
    """A watchdog that has swept once, and believes leases. They are 30 s long."""
    dog = Watchdog(database)
    dog.sweep()
    return dog


def expired() -> Job:
    return make_job(Status.RUNNING, expired=True)


def status_after(job: Job, *sweeps: Callable[[], Any]) -> str:
    for sweep in sweeps:
        sweep()
    job.refresh_from_db()
    return job.status


def test_it_tells_what_it_ended(dog: Watchdog) -> None:
    last, first = make_job(Status.RUNNING, expired=True, max_attempts=1), expired()
    told: list[Any] = []
    reasons: list[Any] = []

    def reaped(reaped: Any, **_: Any) -> None:
        told.append((reaped.lease.job_id, reaped.status))

    def dead(job_id: int, reason: str, **_: Any) -> None:
        reasons.append((job_id, reason))
        raise RuntimeError("a rude receiver")

    job_reaped.connect(reaped)
    job_dead_lettered.connect(dead)
    try:
        dog.sweep()
    finally:
        job_reaped.disconnect(reaped)
        job_dead_lettered.disconnect(dead)
    assert sorted(told) == sorted([(last.pk, Status.DEAD_LETTERED), (first.pk, Status.RETRYING)])
    assert reasons == [(last.pk, "worker lease expired")]


def fail(
    dog: Watchdog, monkeypatch: pytest.MonkeyPatch, *verbs: str, error: type[Exception] = OperationalError
) -> None:
    """Sweep while these verbs fail."""

    def fails(*_: Any, **__: Any) -> Any:
        raise error("gone")

    with monkeypatch.context() as broken, pytest.raises(error):
        for verb in verbs:
            broken.setattr(f"pulse_django.managers.JobManager.{verb}", fails)
        dog.sweep()


def test_after_an_outage_it_waits_for_one_lease_before_it_believes_that_any_ran_out(
    dog: Watchdog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(dog, monkeypatch, "server_clock")
    job = expired()
    for seconds in (0, 10, 19.9):
        clock.now += seconds
        assert status_after(job, dog.sweep) == Status.RUNNING, "its worker may extend it any moment"
    clock.now += 0.2
    assert status_after(job, dog.sweep) == Status.RETRYING


def test_an_outage_that_goes_on_starts_the_wait_again(
    dog: Watchdog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        fail(dog, monkeypatch, "reap", "server_clock")
        clock.now += 31
    assert status_after(expired(), dog.sweep) == Status.RUNNING


def test_a_server_that_has_just_been_started_was_away(
    database: GuardedConnection, clock: Clock, up_for: list[float]
) -> None:
    up_for[0] = 5.0
    job, dog = expired(), Watchdog(database)
    dog.sweep()
    for seconds, status in ((24, Status.RUNNING), (2, Status.RETRYING)):
        clock.now += seconds
        up_for[0] += seconds
        assert status_after(job, dog.sweep) == status


def test_a_connection_that_was_closed_is_no_outage(dog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> None:
    troubles = iter([OperationalError("idle for too long")])

    def once(*_: Any) -> ServerClock:
        for trouble in troubles:
            raise trouble
        return ServerClock(1.0, 1e6)

    monkeypatch.setattr("pulse_django.managers.JobManager.server_clock", once)
    assert status_after(expired(), dog.sweep) == Status.RETRYING


def test_a_mistake_is_no_outage(dog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(dog, monkeypatch, "reap", error=ZeroDivisionError)
    assert status_after(expired(), dog.sweep) == Status.RETRYING


def test_sweeps_come_early_at_most_and_not_in_step(
    database: GuardedConnection, clock: Clock, up_for: list[float], settings: Any
) -> None:
    settings.PULSE = {"WATCHDOG_INTERVAL": 10}
    dog = Watchdog(database)
    pauses = {dog.pause_after(dog.sweep()) for _ in range(10)}
    assert all(8 <= pause <= 10 for pause in pauses)
    assert len(pauses) > 5


def test_a_host_that_slept_for_a_lease_believes_none_until_its_workers_have_beaten_again(
    dog: Watchdog, clock: Clock, up_for: list[float]
) -> None:
    """Our own clock may have stood still meanwhile, as a suspended host's does."""
    up_for[0] += 12.0
    assert status_after(expired(), dog.sweep) == Status.RETRYING, "the usual pause is no sleep"
    up_for[0] += 45.0
    job = expired()
    assert status_after(job, dog.sweep) == Status.RUNNING
    for _ in range(4):
        up_for[0] += 10.0
        clock.now += 10.0
        dog.sweep()
    assert status_after(job) == Status.RETRYING


class TestTurns:
    """Of the watchdogs of a fleet, one sweeps in an interval."""

    def dogs(self, *databases: GuardedConnection) -> list[Watchdog]:
        dogs = [Watchdog(database, 10.0) for database in databases]
        for dog in dogs:
            dog._look_at_server = lambda clock: None  # type: ignore[method-assign]  # it was only just started
            dog._duties.clear()  # what each does when it starts
        return dogs

    def is_due_again(self) -> None:
        sql("UPDATE pulse_django_duty SET taken_at = taken_at - interval '1 h', done_at = done_at - interval '1 h'")

    def test_the_others_leave_it_to_the_one_that_came_first(self, database: GuardedConnection) -> None:
        one, other = self.dogs(database, database)
        job = expired()
        assert ended_in_turn(one) == [job.pk]
        assert other.take_turn() is None
        assert one.take_turn() is None
        self.is_due_again()
        assert other.take_turn() is not None

    def test_one_that_starts_sweeps_and_keeps_house_at_once(
        self, database: GuardedConnection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those that swept before may be the ones that died."""
        [one] = self.dogs(database)
        assert one.take_turn() is not None
        new, kept = Watchdog(database, 10.0), []  # type: ignore[var-annotated]
        monkeypatch.setattr(new, "_look_at_server", lambda clock: None)
        monkeypatch.setattr(new, "_keep_house", kept.append)
        assert new.take_turn() is not None
        assert len(kept) == 1
        assert new.take_turn() is None

    def test_one_alone_sweeps_each_time_however_early_it_comes(self, database: GuardedConnection) -> None:
        assert watchdog.DUE_AFTER < 1 - watchdog.JITTER
        [dog] = self.dogs(database)
        for _ in range(2):
            assert dog.take_turn() is not None
            earliest = (1 - watchdog.JITTER) * dog.interval
            sql("UPDATE pulse_django_duty SET taken_at = taken_at - %s * interval '1 s'", earliest)

    def test_a_sweep_that_failed_is_done_again_by_who_took_it(
        self, database: GuardedConnection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = self.dogs(database, database)
        job = expired()
        with monkeypatch.context() as failing:
            failing.setattr(one, "_reap", _fail)
            with pytest.raises(ZeroDivisionError):
                one.take_turn()
        assert other.take_turn() is None
        assert ended_in_turn(one) == [job.pk]
        assert one.take_turn() is None

    def test_a_sweep_that_left_something_goes_on(
        self, database: GuardedConnection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [dog] = self.dogs(database)
        left = [True, True, False]
        monkeypatch.setattr(dog, "_keep_house", lambda swept: setattr(swept, "has_more", left.pop(0)))
        while left:
            swept = dog.take_turn()
            assert swept is not None
            assert (dog.pause_after(swept) == 0.0) == bool(left)
        assert dog.take_turn() is None

    def test_housekeeping_is_done_once_in_its_interval(
        self, database: GuardedConnection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = self.dogs(database, database)
        kept: list[str] = []
        for name, dog in (("one", one), ("other", other)):
            monkeypatch.setattr(dog, "_keep_house", lambda swept, name=name: kept.append(name))
        one.take_turn()
        sql("UPDATE pulse_django_duty SET taken_at = '1900-01-01' WHERE name = 'sweep'")
        assert other.take_turn() is not None
        assert kept == ["one"]
        self.is_due_again()
        other.take_turn()
        assert kept == ["one", "other"]
        sql("UPDATE pulse_django_duty SET taken_at = '1900-01-01' WHERE name = 'housekeeping'")
        assert one.take_turn() is not None
        assert kept == ["one", "other", "one"], "also while no sweep is due"

    def test_one_that_trusts_no_lease_takes_no_duty(self, database: GuardedConnection) -> None:
        one, other = self.dogs(database, database)
        one._outages.trusts_leases_at = float("inf")
        job = expired()
        assert one.take_turn() is None
        assert ended_in_turn(other) == [job.pk]

    def test_who_noticed_an_outage_looks_for_its_end(self, database: GuardedConnection) -> None:
        one, other = self.dogs(database, database)
        assert other.take_turn() is not None
        one._outages.away()
        assert one.take_turn() is not None
        assert not one._outages.is_on

    def test_one_that_takes_over_from_one_that_did_not_get_through_gives_holders_a_lease(
        self, database: GuardedConnection, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The jobs may have been locked for long. An idle worker's watchdog has not noticed it."""
        one, other = self.dogs(database, database)
        assert other.take_turn() is not None
        self.is_due_again()
        with monkeypatch.context() as failing:
            failing.setattr(one, "_reap", _fail)
            with pytest.raises(ZeroDivisionError):
                one.take_turn()
        job = expired()
        clock.now += 20
        assert other.take_turn() is None
        for status in (Status.RUNNING, Status.RETRYING):
            self.is_due_again()
            assert other.take_turn() is not None
            assert status_after(job) == status
            clock.now += 30

    def test_housekeeping_that_fails_is_no_reason_to_distrust_leases(
        self, database: GuardedConnection, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [dog] = self.dogs(database)

        def fails_slowly(_: Any) -> Swept:
            clock.now += 20
            raise ZeroDivisionError

        monkeypatch.setattr(dog, "_keep_house", fails_slowly)
        for _ in range(3):
            job = expired()
            with pytest.raises(ZeroDivisionError):
                dog.take_turn()
            assert status_after(job) == Status.RETRYING
            self.is_due_again()

    def test_a_row_that_somebody_holds_keeps_no_fleet_from_sweeping(
        self, database: GuardedConnection, rival: Rival, caplog: pytest.LogCaptureFixture
    ) -> None:
        [dog] = self.dogs(database)
        assert dog.take_turn() is not None
        self.is_due_again()
        rival.begin()
        rival.lock_duties()
        assert dog.take_turn() is None
        assert dog.take_turn() is not None
        assert "Check whether a row of pulse_django_duty is locked" in caplog.text
        rival.rollback()

    def test_without_the_table_each_sweeps(self, database: GuardedConnection, caplog: pytest.LogCaptureFixture) -> None:
        [dog] = self.dogs(database)
        job = expired()
        sql("ALTER TABLE pulse_django_duty RENAME TO elsewhere")
        make_job(Status.COMPLETED, era=HOT, finished_at=now(-timedelta(days=400)))
        try:
            swept, again = dog.take_turn(), dog.take_turn()
        finally:
            sql("ALTER TABLE elsewhere RENAME TO pulse_django_duty")
        assert swept is not None
        assert again is not None
        assert [reaped.lease.job_id for reaped in swept.reaped] == [job.pk]
        assert (sum(swept.pruned.values()), again.pruned) == (1, {}), "it keeps house, and not with every sweep"
        assert "Sweeping without knowing when others last swept" in caplog.text


def _fail() -> list[Any]:
    raise ZeroDivisionError


def ended_in_turn(dog: Watchdog) -> list[int]:
    swept = dog.take_turn()
    assert swept is not None
    return [reaped.lease.job_id for reaped in swept.reaped]
