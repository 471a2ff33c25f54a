"""One worker serves several shards, and each of them fails alone."""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from pulse_django import api
from pulse_django.conf import PulseSettings
from pulse_django.models import Attempt, Job, Worker
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status
from pulse_django.worker.claimer import Claimer
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.in_flight import InFlight, fair_share, share_slots
from pulse_django.worker.shared_leases import SharedLeases
from pulse_django.worker.worker_options import WorkerOptions
from testproject.shop import tasks
from tests.crash.workers import Workers, wait_until
from tests.faults import each_of
from tests.shards.conftest import away
from tests.two_databases import MORE, SECOND, SHARDS, new_database
from tests.worker import handlers
from tests.worker.test_shared_leases import PREFIX, claim

pytestmark = pytest.mark.usefixtures("two_shards")

BOTH = list(SHARDS)
THIRD = "s3"


def done(alias: str) -> int:
    return Job.objects.using(alias).filter(status=Status.COMPLETED).count()


def runs(alias: str) -> Counter[str]:
    return Counter(Job.objects.using(alias).values_list("status", flat=True))


class TestOneWorker:
    def test_it_runs_the_jobs_of_all_and_children_stay_with_their_parent(
        self, workers: Workers, environment: dict[str, str]
    ) -> None:
        for alias in BOTH:
            tasks.start_children.using(database=alias).enqueue(3)
        worker = workers.ready(env=environment)
        wait_until(lambda: all(done(alias) == 4 for alias in BOTH), explain=lambda: [runs(alias) for alias in BOTH])
        for alias, number in SHARDS.items():
            assert {one >> 48 for one in Job.objects.using(alias).values_list("id", flat=True)} == {number}
            assert Worker.objects.using(alias).filter(stopped_at=None).count() == 1
        worker.stop()
        assert all(not Worker.objects.using(alias).filter(stopped_at=None).exists() for alias in BOTH)

    def test_it_serves_those_that_are_named(self, workers: Workers, environment: dict[str, str]) -> None:
        for alias in BOTH:
            tasks.add.using(database=alias).enqueue(1, 1)
        workers.ready("--shard", SECOND, "--shard", SECOND, env=environment)
        wait_until(lambda: done(SECOND) == 1)
        assert done("default") == 0

    def test_a_job_is_noticed_at_once_in_each(self, workers: Workers, environment: dict[str, str]) -> None:
        workers.ready(env=environment, settings={"POLL_INTERVAL": 60})
        for alias in BOTH:
            wait_until(lambda alias=alias: Worker.objects.using(alias).filter(stopped_at=None).exists())
        for alias in BOTH:
            tasks.add.using(database=alias).enqueue(1, 1)
            wait_until(lambda alias=alias: done(alias) == 1, patience=30.0)

    def test_what_a_dead_child_held_is_recovered_in_each(self, workers: Workers, environment: dict[str, str]) -> None:
        for alias in BOTH:
            handlers.naps.using(database=alias).enqueue(60)
        workers.ready("--concurrency", "4", env=environment, settings={"LEASE_TTL": 30, "HEARTBEAT_INTERVAL": 1})
        wait_until(lambda: all(runs(alias)["RUNNING"] == 1 for alias in BOTH))
        handlers.is_killed.using(max_attempts=1).enqueue()
        wait_until(
            lambda: all(Attempt.objects.using(alias).filter(outcome="WORKER_LOST").exists() for alias in BOTH),
            explain=lambda: [runs(alias) for alias in BOTH],
        )

    def test_a_burst_ends_when_nothing_is_due_in_any(self, workers: Workers, environment: dict[str, str]) -> None:
        for alias in BOTH:
            api.enqueue_many(tasks.add, [(number, 1) for number in range(50)], using=alias)
        worker = workers.start("--burst", env=environment)
        assert worker.wait() == 0
        assert [done(alias) for alias in BOTH] == [50, 50]


class TestOneShardIsAway:
    def test_the_others_go_on_and_it_is_served_when_it_is_back(
        self, workers: Workers, environment: dict[str, str]
    ) -> None:
        api.enqueue_many(handlers.naps, [(0.02,)] * 200, using=SECOND)
        workers.ready("--concurrency", "4", env=environment)
        wait_until(lambda: done(SECOND) > 4)
        with away(SECOND):
            ids = api.enqueue_many(handlers.naps, [(0.02,)] * 300)
            wait_until(lambda: done("default") == 300, explain=lambda: runs("default"))
        assert set(Job.objects.filter(pk__in=ids).values_list("attempts", flat=True)) == {1}
        wait_until(lambda: done(SECOND) == 200, explain=lambda: runs(SECOND))

    def test_a_worker_can_be_started_meanwhile(self, workers: Workers, environment: dict[str, str]) -> None:
        tasks.add.using(database=SECOND).enqueue(1, 1)
        tasks.add.enqueue(1, 1)
        with away(SECOND):
            worker = workers.ready(env=environment)
            wait_until(lambda: done("default") == 1)
            assert "Shard 's2' cannot be queried" in worker.log
        wait_until(lambda: done(SECOND) == 1)


def test_a_shard_is_added_under_load(workers: Workers, environment: dict[str, str]) -> None:
    """Enqueuers go on all the time. No call fails, and each job runs once."""
    shards = {**SHARDS, THIRD: len(SHARDS)}
    spread = {"PLACEMENT": "by_key", "QUEUE_SHARDS": {"default": list(shards)}}
    ids: list[int] = []
    errors: list[Exception] = []
    over = Event()

    def enqueue() -> None:
        while not over.is_set():
            try:
                ids.append(int(tasks.add.enqueue(1, 1).id))
            except Exception as error:
                errors.append(error)
        connections.close_all()

    old = workers.ready("--concurrency", "2", env=environment)
    with new_database(THIRD) as url, ThreadPoolExecutor(2) as enqueuers:
        enqueuing = [enqueuers.submit(enqueue) for _ in range(2)]
        try:
            wait_until(lambda: done("default") > 50)
            with override_settings(PULSE={"SHARDS": shards}):
                call_command("pulse_shards", "add", "--shard", THIRD, stdout=io.StringIO())
                more = {**json.loads(environment[MORE]), THIRD: url}
                workers.ready("--concurrency", "2", env=environment | {MORE: json.dumps(more)}, settings=spread)
                old.stop()
            with override_settings(PULSE={"SHARDS": shards, **spread}):
                wait_until(lambda: done(THIRD) > 50)
                over.set()
                for one in enqueuing:
                    one.result()
                wait_until(lambda: sum(map(done, shards)) == len(ids), explain=lambda: [runs(one) for one in shards])
                assert all(api.get(one).attempts == 1 for one in ids[-100:])
        finally:
            over.set()
        workers.last().kill()
    assert errors == []


class TestSlots:
    @each_of(
        (8, 0, [], 8),
        (8, 0, [0], 4),
        (8, 4, [0], 0),
        (8, 7, [1], -3),
        (8, 1, [7], 3),
        (1, 0, [0], 1),
        (1, 0, [1], 1),
        (3, 1, [1], 1),
        (3, 1, [2], 1),
        (8, 0, [8, 0], 3),
    )
    def test_a_share(self, *, slots: Any, mine: Any, others: Any, more: Any) -> None:
        assert fair_share(slots, mine, others) == more

    @pytest.fixture
    def flights(self) -> dict[str, InFlight]:
        flights = {alias: InFlight(SharedLeases(PREFIX), alias, 8) for alias in BOTH}
        share_slots(list(flights.values()))
        return flights

    def take(self, flight: InFlight, count: int) -> list[Any]:
        return flight.take([claim(number + 1) for number in range(count)], time.monotonic())

    def test_hungry_shards_share_and_one_alone_takes_all(self, flights: dict[str, InFlight]) -> None:
        first, second = flights.values()
        assert (first.room(), second.room()) == (4, 4)
        second.wants_jobs = False
        assert first.room() == 8
        taken = self.take(first, 8)
        second.wants_jobs = True
        assert (first.room(), second.room()) == (0, 0)
        first.ended(taken[0])
        assert (first.room(), second.room()) == (0, 1), "the freed slot is for the shard that has none"
        assert (len(first.active), second.active) == (7, [])
        assert second.of(taken[0]) is first

    @each_of(*range(1, 9))
    def test_a_child_with_nothing_in_hand_claims_whatever_it_has_learned(self, *, shards: Any) -> None:
        flights = {str(number): InFlight(SharedLeases(PREFIX), str(number), 8) for number in range(shards)}
        share_slots(list(flights.values()))
        for _ in range(20):
            assert all(one.room() > 0 for one in flights.values())
            for one in flights.values():
                one.prefetch.learn([0.0001])

    def test_a_shard_that_has_learned_nothing_gets_its_share_beside_others_that_have(self) -> None:
        """Else it waits until the backlogs of the others are empty."""
        flights = [InFlight(SharedLeases(PREFIX), str(number), 8) for number in range(3)]
        share_slots(flights)
        for one in flights[:2]:
            for _ in range(20):
                one.prefetch.learn([0.0001])
        shares = [one.room() for one in flights]
        assert shares[0] > 100
        for one, room in zip(flights[:2], shares, strict=False):
            self.take(one, room)
        assert flights[2].room() == shares[0]

    def test_a_shard_that_does_not_answer_keeps_no_slots_from_the_others(
        self, flights: dict[str, InFlight], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its next look may hang until it is given up: it asks for one job, and nothing is kept for it."""
        first, second = flights.values()
        looks: list[tuple[int, int, bool]] = []

        def look(limit: int, woken: str | None) -> float:
            looks.append((limit, second.reserved, second.wants_jobs))
            if len(looks) == 1:
                raise ConnectionError
            return 0.0

        claimer = Claimer(
            WorkerOptions.of(PulseSettings(), "w", {}), GuardedConnection(SECOND, "claims"), Identity("w"), second,
            lambda runs: None, lambda queue, more: None, lambda: None,
        )  # fmt: skip
        monkeypatch.setattr(claimer, "_look", look)
        with pytest.raises(ConnectionError):
            claimer.run_once()
        assert (first.room(), second.reserved) == (8, 0)
        claimer.interrupt()
        claimer.run_once()
        claimer.interrupt()
        claimer.run_once()
        assert looks == [(4, 4, True), (1, 0, False), (4, 4, True)]

    def test_slots_of_a_claim_that_is_on_its_way_are_kept(self, flights: dict[str, InFlight]) -> None:
        first, second = flights.values()
        second.wants_jobs = False
        first.reserved = 6
        assert (second.free_slots, second.room(), first.free_slots) == (2, 2, 8)

    def test_a_backlog_in_one_does_not_hold_up_the_other(self, workers: Workers, environment: dict[str, str]) -> None:
        api.enqueue_many(handlers.naps, [(0.3,)] * 200)
        workers.ready("--concurrency", "2", env=environment)
        wait_until(lambda: done("default") >= 2)
        api.enqueue_many(handlers.naps, [(0.3,)] * 10, using=SECOND)
        wait_until(lambda: done(SECOND) == 10, explain=lambda: [runs(alias) for alias in BOTH])
        assert done("default") < 60, "they are shared about equally"
