"""Weights: a heavy job counts for as many as it weighs, and lighter ones behind it do not take its place."""

from __future__ import annotations

from typing import Any

import pytest

from pulse_django.health.explanation import explain
from pulse_django.limits.rules import Limit, Rate
from pulse_django.models import Job, Limiter
from pulse_django.queue.claim import Slots
from pulse_django.queue.database.lane_queries import LaneUse
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from tests.database import empty_tables
from tests.faults import each_of
from tests.limits.test_claim_limited import MINUTE, declare
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

ME = Identity("me")


def enqueue(*weights: int, limiter: str = "", key: str | None = None, queue: str = "default") -> Lane:
    lane = Lane(queue, 0, lane_key(limiter, key) if limiter else "")
    Job.objects.enqueue_many([NewJob(task="t", queue=queue, lane_key=lane.key, weight=weight) for weight in weights])
    return lane


def claim(limit: int, slots: Slots | None = None) -> tuple[list[int], bool]:
    """Return the weights that a claim granted, and whether it left a job that is heavier than what is free."""
    takes = dict.fromkeys(Job.objects.lanes(), limit)
    claims = Job.objects.claim(ME, limit=limit, slots=slots, lanes=list(takes), takes=takes)
    return [one.options.weight for one in claims], claims.is_left


def claim_limited(*lanes: Lane, free: int = 100, limiter: str = "stripe") -> list[int]:
    answer = Job.objects.claim_limited(ME, limiter, lanes, dict.fromkeys(lanes, 100), limit=100, slots=Slots(100, free))
    return [one.options.weight for one in answer.claims]


# The weights in line, the jobs asked for, all slots and those that are free; what is claimed, and whether some is left.
PLAIN = [
    # Jobs of weight 1 may wait for a slot in their worker.
    ([1] * 20, 20, (8, 8), [1] * 20, False),
    ([1] * 20, 20, (8, 0), [1] * 20, False),
    # Heavier ones may not.
    ([4, 4, 4], 20, (8, 8), [4, 4], True),
    ([4], 20, (8, 3), [], True),
    # Nor may what is beside them.
    ([4] + [1] * 20, 20, (8, 8), [4, 1, 1, 1, 1], True),
    ([1, 1, 1, 4, 1, 1], 20, (8, 8), [1, 1, 1, 4, 1], True),
    # More jobs than slots before the heavy one: it waits until they have begun.
    ([1] * 9 + [4], 20, (8, 8), [1] * 9, True),
    # Heavier than the worker: alone.
    ([100], 1, (8, 8), [100], False),
    ([100], 1, (8, 7), [], True),
    ([100, 1], 20, (8, 8), [100], True),
    # Fewer jobs asked for than there are.
    ([2, 2, 2], 2, (8, 8), [2, 2], False),
]


@each_of(*PLAIN)
def test_a_claim_brings_no_more_than_its_worker_has_slots_for(
    *, weights: Any, limit: Any, slots: Any, claimed: Any, is_left: Any
) -> None:
    empty_tables()
    enqueue(*weights)
    assert claim(limit, Slots(*slots)) == (claimed, is_left)
    empty_tables()
    enqueue(*weights)
    found = Job.objects.claim(ME, limit=limit, slots=Slots(*slots))
    assert [one.options.weight for one in found] == claimed, "a claim that deals no slots"
    assert not found.is_left, "it does not ask"


def test_lighter_jobs_of_other_queues_do_not_take_the_place_of_a_heavy_one() -> None:
    enqueue(4, queue="a")
    enqueue(1, queue="b")
    assert claim(8, Slots(8, 3)) == ([], True)


def test_without_slots_a_claim_brings_as_much_as_is_asked_for() -> None:
    enqueue(4, 1)
    assert claim(1) == ([4], False)


def test_claims_of_single_jobs_ask_for_no_slots() -> None:
    enqueue(1_000)
    assert len(Job.objects.claim_these(ME, list(Job.objects.values_list("pk", flat=True)))) == 1


# The weights in line; what is claimed at first and after one of these has ended, under a limit of 10.
@each_of(
    ([4, 4, 4, 1], [4, 4], [4]),
    ([3, 3, 3, 3, 1], [3, 3, 3], [3]),
    ([10, 1], [10], [1]),
    ([5, 6, 1], [5], [6, 1]),
)
def test_a_limit_counts_weights(*, weights: Any, first: Any, then: Any) -> None:
    empty_tables()
    declare(max_running=10)
    lane = enqueue(*weights, limiter="stripe")
    assert claim_limited(lane) == first
    assert claim_limited(lane) == [], "nothing lighter takes the room that the next one needs"
    sql(
        "UPDATE pulse_django_job_hot SET lease_until = statement_timestamp() - interval '1 s' WHERE id = %s",
        _first(),
    )
    Job.objects.reap()
    assert claim_limited(lane)[: len(then)] == then


def _first() -> int:
    return int(Job.objects.running().order_by("pk").values_list("pk", flat=True)[0])


def test_a_limit_of_each_key_counts_weights_and_holds_up_no_other_key() -> None:
    declare(max_running_per_key=3, max_running=7)
    heavy = enqueue(2, 2, limiter="stripe", key="heavy")
    light = enqueue(1, 1, 1, 1, limiter="stripe", key="light")
    assert sorted(claim_limited(heavy, light)) == [1, 1, 1, 2]
    assert claim_limited(heavy, light) == []


def test_a_job_that_is_too_heavy_for_what_is_left_of_a_limit_is_no_empty_lane() -> None:
    declare(max_running=5)
    lane = enqueue(4, 4, limiter="stripe")
    assert claim_limited(lane) == [4]
    answer = Job.objects.claim_limited(ME, "stripe", [lane], {lane: 100}, limit=100)
    assert (answer.claims, answer.allowed, answer.refusal) == ([], {}, ("stripe", "full"))
    assert not answer.claims.is_left, "no slot of a worker is kept for it"


def test_a_job_that_is_heavier_than_a_limit_since_it_was_lowered_holds_up_no_other() -> None:
    declare(max_running=5)
    heavy = enqueue(4, 1, limiter="stripe", key="heavy")
    light = enqueue(1, 1, 1, limiter="stripe", key="light")
    Limiter.objects.override("stripe", Limit(max_running=3).numbers())
    assert claim_limited(heavy, light) == [1, 1, 1], "one of them was behind it"
    answer = Job.objects.claim_limited(ME, "stripe", [heavy], {heavy: 9}, limit=9)
    assert (answer.claims, answer.claims.is_left) == ([], False)


def test_slots_of_a_worker_are_kept_for_a_job_that_its_limit_lets_start() -> None:
    declare(max_running=10)
    lane = enqueue(4, limiter="stripe")
    answer = Job.objects.claim_limited(ME, "stripe", [lane], {lane: 3}, limit=3, slots=Slots(8, 3))
    assert (answer.claims, answer.claims.is_left, answer.refusal) == ([], True, None)


def test_the_limit_of_a_queue_counts_weights() -> None:
    Limiter.objects.declare_new("project", {"queue=default": Limit(max_running=5).numbers()})
    lane = enqueue(3, 3, limiter="queue=default")
    answer = Job.objects.claim_limited(ME, "", [lane], {lane: 9}, limit=9, queue="default")
    assert len(answer.claims) == 1


def test_a_rate_counts_starts() -> None:
    declare(rate=Rate(4, per=MINUTE, burst=2))
    assert claim_limited(enqueue(5, 5, 5, limiter="stripe")) == [5, 5]


def test_a_limit_that_probes_lets_one_job_run_whatever_it_weighs() -> None:
    declare(max_running=10)
    lane = enqueue(4, 4, limiter="stripe")
    sql("UPDATE pulse_django_limiter SET half_open = true")
    assert claim_limited(lane) == [4]
    assert claim_limited(lane) == []


def test_fairness_counts_weights() -> None:
    declare(max_running=10)
    lane = enqueue(4, 4, limiter="stripe")
    claim_limited(lane)
    assert Job.objects.use([lane]) == {lane: LaneUse(8, is_open=True)}


def test_a_heavy_job_that_waits_for_its_limit_is_explained() -> None:
    declare(max_running=5)
    lane = enqueue(4, 4, limiter="stripe")
    claim_limited(lane)
    waiting = Job.objects.get(status="PENDING")
    full = next(reason for reason in explain(waiting.pk).reasons if reason.code == "limit-full")
    assert "4 of 5" in full.sentence
    assert "It weighs 4" in full.sentence
    Limiter.objects.override("stripe", Limit(max_running=3).numbers())
    heavy = next(reason for reason in explain(waiting.pk).reasons if reason.code == "too-heavy")
    assert heavy.sentence == "It weighs 4, and the limit stripe allows 3. Raise the limit."
