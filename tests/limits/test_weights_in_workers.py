"""Weights in workers: a heavy job takes several slots, and gets them though lighter ones keep coming."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate
from typing import Any

import pytest
from django.db.models import F

from pulse_django import capabilities, enqueue_many
from pulse_django.exceptions import InvalidJob
from pulse_django.limits.keys import lane_key_of_call
from pulse_django.limits.rules import Limit, Rate
from pulse_django.models import Job, Limiter, Pause
from pulse_django.queue import capability
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key, lane_of_chunks, limiter_of_queue
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.outcomes import Succeeded
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.run.registry import InvalidTask
from pulse_django.run.run import Run
from pulse_django.tasks import task
from pulse_django.worker.lanes import GATHER_FOR
from tests.crash.workers import Workers, wait_for, wait_until
from tests.faults import all_faults, each_of
from tests.limits import handlers as limited_handlers
from tests.limits.handlers import MODULES
from tests.queue.steps import sql
from tests.worker.steps import claimer_for

SLOTS = 8


class Stepped:
    """A claimer whose runs end when the test says so."""

    def __init__(self, slots: int = SLOTS, max_jobs: int = 0) -> None:
        self.begun: list[Run] = []
        self.claimer = claimer_for(slots, self.begun.extend, max_jobs=max_jobs)
        self.in_flight = self.claimer._in_flight
        self.claimer._turn = 0
        self.claimer.interrupt()  # its waits end at once

    def claim(self) -> list[int]:
        """Claim until nothing more comes. Return the weights of all that run."""
        before = -1
        while before != len(self.begun):
            before = len(self.begun)
            self.claimer._lanes_at = float("-inf")
            self.claimer._look(room, None) if (room := self.in_flight.room()) else None
        return [run.claim.options.weight for run in self.begun]

    def end(self, *, weight: int = 1) -> None:
        """End the first run of this weight."""
        run = next(run for run in self.begun if run.claim.options.weight == weight)
        self.begun.remove(run)
        self.in_flight.ended(run)
        Job.objects.settle([Report(run.claim.lease, Succeeded(), Complete())])
        self.in_flight.settled([run])


@pytest.fixture
def stepped(pulse_db: None) -> Stepped:
    return Stepped()


def enqueue(*weights: int, **options: Any) -> None:
    Job.objects.enqueue_many([NewJob(task="t", weight=weight, **options) for weight in weights])


def learn_that_jobs_are_short(stepped: Stepped) -> None:
    for _ in range(9):
        stepped.in_flight.prefetch.learn([0.0001] * 10)


def declare_rate(name: str) -> None:
    """Let starts be counted: then jobs are claimed for free slots alone."""
    rate = Rate(1_000, per=timedelta(minutes=1), burst=1_000)
    Limiter.objects.declare_new("project", {name: Limit(name, rate=rate).numbers()})


def test_a_run_takes_as_many_slots_as_it_weighs_and_all_if_it_is_heavier(stepped: Stepped) -> None:
    enqueue(3, 3, 3)
    assert stepped.claim() == [3, 3]
    assert stepped.in_flight.free_slots == 2
    stepped.end(weight=3)
    assert stepped.claim() == [3, 3]
    for _ in range(2):
        stepped.end(weight=3)
    enqueue(100, 1)
    assert stepped.claim() == [100]
    assert (stepped.in_flight.free_slots, stepped.in_flight.room()) == (0, 0)
    stepped.end(weight=100)
    assert stepped.claim() == [1]


def test_nothing_is_claimed_ahead_beside_a_heavy_run(stepped: Stepped) -> None:
    learn_that_jobs_are_short(stepped)
    enqueue(4)
    enqueue(*[1] * 50)
    assert stepped.claim() == [4, 1, 1, 1, 1]


@pytest.mark.parametrize("lane", ["", lane_key("", "acme")], ids=["plain", "share"])
def test_slots_gather_for_a_heavy_job_though_lighter_ones_keep_coming(stepped: Stepped, lane: str) -> None:
    enqueue(*[1] * SLOTS, queue="light", lane_key=lane)
    assert stepped.claim() == [1] * SLOTS
    enqueue(4, queue="heavy")
    for _ in range(2 * SLOTS):
        enqueue(1, queue="light", lane_key=lane)
        stepped.end()
        if 4 in stepped.claim():
            break
    else:
        pytest.fail("the heavy job has not begun")
    enqueue(*[4] * 3, queue="heavy")
    stepped.end(weight=4)
    ran = stepped.claim()
    while stepped.begun and ran.count(4) == 0:
        stepped.end()
        ran = stepped.claim()
    assert len(ran) > ran.count(4), "nor do heavy ones keep out the lighter ones"


@pytest.mark.parametrize("lane", ["", lane_key("", "acme")], ids=["plain", "share"])
def test_a_claimer_waits_for_slots_and_does_not_ask_meanwhile(stepped: Stepped, lane: str) -> None:
    enqueue(*[1] * 6, 4, lane_key=lane)
    assert stepped.claim() == [1] * 6
    stepped.claimer._look(2, None)
    assert stepped.claimer._look(2, None) > 0
    assert stepped.claimer.keyed.wanted_slots == (3 if lane else None), "without keys any slot is worth a look"
    stepped.end()
    assert stepped.claimer._has_wanted_slots


def test_a_slot_that_is_freed_during_a_look_is_noticed(stepped: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    claimer, waits = stepped.claimer, []
    monkeypatch.setattr(claimer._news, "wait", waits.append)
    monkeypatch.setattr(claimer, "_look", lambda limit, woken: claimer.slot_freed() or 60.0)
    claimer.run_once()
    assert waits == []
    monkeypatch.setattr(claimer, "_look", lambda limit, woken: 60.0)
    claimer.run_once()
    assert waits == [60.0]


def test_jobs_with_a_rate_are_claimed_for_half_of_the_slots_while_jobs_prove_short(stepped: Stepped) -> None:
    declare_rate("short")
    learn_that_jobs_are_short(stepped)
    enqueue(*[1] * 30, lane_key=lane_key("short", None))
    assert stepped.claim() == [1] * SLOTS
    for free in range(1, SLOTS // 2):
        stepped.end()
        stepped.claimer.keyed._gather_until = float("inf")
        assert stepped.claimer._look(stepped.in_flight.room(), None) == GATHER_FOR
        assert len(stepped.begun) == SLOTS - free
    stepped.claimer.keyed._gather_until = float("-inf")
    assert stepped.claim() == [1] * SLOTS, "it does not wait for long"
    for _ in range(SLOTS // 2):
        stepped.end()
    stepped.claimer.keyed.wanted_slots = stepped.in_flight.worthwhile_slots
    assert stepped.claimer._has_wanted_slots
    assert stepped.claim() == [1] * SLOTS
    stepped.in_flight.prefetch.jobs = 0
    stepped.end()
    assert stepped.claim() == [1] * SLOTS, "a slot is not left idle beside long jobs"


def test_jobs_with_limits_are_claimed_ahead_while_jobs_prove_short(stepped: Stepped) -> None:
    learn_that_jobs_are_short(stepped)
    enqueue(*[1] * 30, lane_key=lane_key("ahead", "a"))
    assert stepped.claim() == [1] * 30
    enqueue(*[1] * 30, lane_key=lane_key("ahead", "a"))
    declare_rate("ahead")
    assert stepped.claim() == [1] * 30, "the next claim knows of the rate"
    for _ in range(30):
        stepped.end()
    assert stepped.claim() == [1] * SLOTS


def test_jobs_are_claimed_ahead_only_within_a_part_of_their_limit(pulse_db: None) -> None:
    """What one process holds while it waits for a slot is for the others of the fleet."""
    cases = [
        ({"max_running": 40}, [30], 2, 20),
        ({"max_running": 40}, [30], 1, 30),
        ({"max_running": 40}, [30], 0, SLOTS),  # it is not yet known how many there are
        ({"max_running": 12}, [30], 2, SLOTS),
        ({"max_running_per_key": 6}, [3] * 10, 3, 20),
        ({"max_running_per_key": 1}, [3] * 10, 3, 10),  # one of each key: most keys have jobs in one process alone
        ({"max_running_per_key": 6}, [3] * 10, 1, 30),
    ]
    with all_faults() as about:
        for number, (numbers, jobs_of_keys, fleet, most) in enumerate(cases):
            with about((numbers, jobs_of_keys, fleet)):
                name, stepped = f"part{number}", Stepped()
                stepped.in_flight._shared_leases.note_standing(0, fleet)
                learn_that_jobs_are_short(stepped)
                Limiter.objects.declare_new("project", {name: Limit(name, **numbers).numbers()})
                for key, count in enumerate(jobs_of_keys):
                    enqueue(*[1] * count, lane_key=lane_key(name, f"key {key}"))
                assert len(stepped.claim()) == most
                sql("DELETE FROM pulse_django_job")


def test_what_waits_under_a_limit_that_a_run_has_closed_does_not_begin(stepped: Stepped) -> None:
    cases = [("api", {"a", "b"}), (lane_key("api", "a"), {"a"}), (limiter_of_queue("default"), {"a", "b", "other"})]
    learn_that_jobs_are_short(stepped)
    lanes = {"a": lane_key("api", "a"), "b": lane_key("api", "b"), "other": lane_key("other", None)}
    with all_faults() as about:
        for closed, refused in cases:
            with about(closed):
                for name in lanes:
                    enqueue(*[1] * 2, lane_key=lanes[name])
                    assert stepped.claim()
                stepped.in_flight.refuse(closed)
                begun = {run.claim.lane_key for run in stepped.begun if stepped.in_flight.begin(run)}
                assert begun == {key for name, key in lanes.items() if name not in refused}
                while stepped.begun:
                    stepped.end()
                enqueue(1, lane_key=lanes["a"])
                assert stepped.claim() == [1]
                assert stepped.in_flight.begin(stepped.begun[0]), "it was claimed afterwards"
                stepped.end()


def test_a_worker_claims_ahead_soon_after_it_began(workers: Workers) -> None:
    """It has to know how many workers there are."""
    workers.ready("--concurrency", "2", settings=MODULES | {"LEASE_TTL": 90, "HEARTBEAT_INTERVAL": 30})
    enqueue_many(limited_handlers.fails_now_and_then, [(number * 10 + 1,) for number in range(3_000)])
    wait_until(lambda: Job.objects.running().count() > 100)


def test_a_failure_that_closes_no_limit_keeps_nothing_from_beginning(workers: Workers) -> None:
    enqueue_many(limited_handlers.fails_now_and_then, [(number,) for number in range(300)])
    workers.ready("--concurrency", "4", settings=MODULES)
    wait_until(lambda: not Job.objects.filter(finished_at=None).exists())
    assert Job.objects.filter(refunds=0).count() == Job.objects.count(), "none was handed back"


def test_a_run_that_closes_its_limit_lets_no_other_of_it_begin(workers: Workers) -> None:
    enqueue_many(limited_handlers.asks_api, [(number, 1_000) for number in range(2_000)])
    workers.ready("--concurrency", "4", settings=MODULES)
    wait_until(lambda: Limiter.objects.filter(paused_until__isnull=False).exists())
    wait_until(lambda: not Job.objects.running().exists())
    refused = [line["job"] for line in workers.trace.lines() if line["what"] == "refused"]
    assert 1 <= len(refused) <= 8, "those that had a slot, and none of those that waited"
    assert not Job.objects.filter(attempts__gt=F("refunds"), finished_at=None).exists()


def test_a_process_that_may_run_a_few_more_jobs_claims_them(pulse_db: None) -> None:
    """Fewer than are worth a claim otherwise."""
    stepped = Stepped(max_jobs=2)
    learn_that_jobs_are_short(stepped)
    enqueue(*[1] * 9, lane_key=lane_key("short", None))
    assert stepped.claim() == [1, 1]


def test_short_jobs_beside_a_heavy_run_are_claimed_for_the_slots_that_are_free(stepped: Stepped) -> None:
    enqueue(6)
    assert stepped.claim() == [6]
    learn_that_jobs_are_short(stepped)
    assert stepped.in_flight.room() == 2


def test_a_heavy_job_takes_the_slots_that_are_not_stuck(stepped: Stepped) -> None:
    enqueue(1)
    stepped.claim()
    [stuck] = stepped.begun
    assert stepped.in_flight.given_up(stuck)
    enqueue(SLOTS, 1)
    assert stepped.claim() == [1, SLOTS]
    assert stepped.in_flight.free_slots == 0
    stepped.end(weight=SLOTS)
    assert stepped.claim() == [1, 1]


def test_a_process_knows_which_leases_it_has_settled(stepped: Stepped) -> None:
    """Those of others are counted several times a second; its own need no statement."""
    keyed, share, plain = stepped.claimer.keyed, Lane("default", 0, lane_key("", "acme")), Lane("default", 0)
    enqueue(3, 2, lane_key=share.key)
    enqueue(1)
    stepped.claim()
    assert (keyed._held[share], keyed._held[plain]) == (5, 1)
    stepped.end(weight=3)
    stepped.end(weight=1)
    assert keyed._note_settled() == set()
    assert (keyed._held[share], keyed._held[plain]) == (2, 0)


@pytest.mark.alters_statements
def test_lanes_of_a_capability_that_was_taken_out_are_claimed(pulse_db: None) -> None:
    capability.install()
    try:
        enqueue(1, lane_key=lane_key("stripe", "acme"))
        enqueue(1, lane_key=lane_of_chunks("t"))
        enqueue(1, lane_key="night")
        assert Stepped().claim() == [1, 1, 1]
    finally:
        capabilities.install()


def test_a_paused_queue_does_not_close_a_limit_for_others(stepped: Stepped) -> None:
    Limiter.objects.declare_new("project", {"stripe": Limit("stripe", max_running=9).numbers()})
    lanes = [Lane(queue, 0, "stripe") for queue in ("paused", "open")]
    for lane in lanes:
        enqueue(1, 1, queue=lane.queue, lane_key=lane.key)
    Pause.objects.pause(queue="paused")
    for _ in range(2):
        stepped.claimer._grant(stepped.claimer.keyed.claim(1, lanes, 0))
    assert [run.claim.queue for run in stepped.begun] == ["open", "open"]


def test_a_limit_that_is_full_keeps_no_slots_and_is_asked_again_when_a_run_of_it_was_settled(stepped: Stepped) -> None:
    for _ in range(2):
        limited_handlers.heavy.using(weight=3).enqueue(0.0)
    assert stepped.claim() == [3]
    assert stepped.claimer.keyed._closed
    enqueue(*[1] * 10, queue="other")
    assert sorted(stepped.claim()) == [1, 1, 1, 1, 1, 3]
    stepped.end(weight=3)
    for _ in range(3):
        stepped.end()
    assert stepped.claim().count(3) == 1


def test_runs_of_real_workers_take_their_slots(workers: Workers) -> None:
    jobs = [int(limited_handlers.weighs.using(weight=weight).enqueue(0.3).id) for weight in (4, 3, 4, 3, 8, 2)]
    workers.start("--concurrency", "8", "--processes", "1", settings=MODULES)
    wait_for(Status.COMPLETED, *jobs)
    edges = []
    for weight, (begun, ended) in Job.objects.values_list("weight", "result"):
        edges += [(begun, weight), (ended, -weight)]
    heights = list(accumulate(weight for _, weight in sorted(edges)))
    assert max(heights) == 8, "and not 7 at most, which would be one job after the other"


@task
def plain() -> None:
    """Do nothing."""


def test_a_weight_beyond_the_limit_is_refused_where_it_is_declared() -> None:
    with pytest.raises(InvalidTask, match="weight: 4 is more than the limit allows at once, which is 3"):
        task(limit=Limit(max_running=3), weight=4)(plain.func)
    with pytest.raises(InvalidTask, match="which is 5"):
        limited_handlers.heavy.using(weight=6)


def test_a_weight_beyond_the_limit_of_the_queue_is_refused_at_enqueue(settings: Any) -> None:
    settings.PULSE = {**settings.PULSE, "QUEUE_LIMITS": {"default": {"max_running": 3}}}
    assert lane_key_of_call(plain.using(weight=3), [], {}) == "queue=default"
    with pytest.raises(InvalidJob, match="weight: 4 is more than the queue 'default' allows at once"):
        lane_key_of_call(plain.using(weight=4), [], {})


@each_of(0, -1, 1_001, 1.5, True, "2")
def test_what_is_no_weight_is_refused(*, weight: Any) -> None:
    with pytest.raises(InvalidTask, match="weight"):
        plain.using(weight=weight)
