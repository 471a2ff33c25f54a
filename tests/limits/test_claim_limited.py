"""Limits: never more leases than they allow, and never more starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from pulse_django.limits.claim_limited import LOCK_CLASS
from pulse_django.limits.rules import Limit, Rate
from pulse_django.models import Bucket, Job, Limiter
from pulse_django.queue.claim import Slots
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import key_of, lane_key, limiter_of, limiter_of_queue
from pulse_django.queue.words.lanes import Lane, deal
from pulse_django.queue.words.leases import Identity
from tests.citus import is_on_citus, statements_of_citus
from tests.database import empty_tables
from tests.factories import lease_of
from tests.faults import all_faults, each_of
from tests.queue.steps import sql
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("pulse_db")

ME = Identity("me")
MINUTE = timedelta(minutes=1)


# A plain server gets one message. What Citus gets can be shown there, too.
@pytest.fixture(autouse=True, params=["one by one"] if is_on_citus() else ["in one message", "one by one"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    with statements_of_citus() if request.param == "one by one" else nullcontext():
        yield


def declare(name: str = "stripe", **numbers: object) -> None:
    Limiter.objects.declare_new("project", {name: Limit(name, **numbers).numbers()})  # type: ignore[arg-type]


def enqueue(count: int = 10, *, limiter: str = "stripe", key: str | None = None, queue: str = "default") -> Lane:
    lane = Lane(queue, 0, lane_key(limiter, key))
    Job.objects.enqueue_many([NewJob(task="t", queue=queue, lane_key=lane.key)] * count)
    return lane


def claim(*lanes: Lane, limit: int = 100, limiter: str = "stripe") -> int:
    return len(Job.objects.claim_limited(ME, limiter, lanes, dict.fromkeys(lanes, limit), limit=limit).claims)


def wait_in_bucket(time: str) -> None:
    """Let a bucket have been written so much earlier. Citus computes nothing in SET."""
    sql(
        f"WITH earlier AS MATERIALIZED (SELECT scope, at - interval '{time}' AS at FROM pulse_django_bucket)"
        " UPDATE pulse_django_bucket AS bucket SET at = earlier.at FROM earlier WHERE bucket.scope = earlier.scope"
    )


def test_a_limit_of_each_key_also_in_two_queues_and_within_one_of_all() -> None:
    declare(max_running_per_key=2)
    lanes = [enqueue(key="a"), enqueue(key="b"), enqueue(key="a", queue="other")]
    assert claim(*lanes) == 4
    assert claim(*lanes) == 0
    declare("mail", max_running_per_key=2, max_running=5)
    lanes = [enqueue(limiter="mail", key=key) for key in ("a", "b", "c")]
    assert claim(*lanes, limiter="mail") == 5
    assert Job.objects.running().filter(lane_key__startswith="mail").values("lane_key").distinct().count() == 3


def test_a_rate_allows_its_burst_and_then_the_rest() -> None:
    declare(rate=Rate(10, per=MINUTE, burst=4))
    lane = enqueue()
    assert claim(lane) == 4
    answer = Job.objects.claim_limited(ME, "stripe", [lane], {lane: 100}, limit=100)
    assert answer.claims == []
    assert answer.due_in is not None
    assert 7 < answer.due_in <= 60 / 7
    wait_in_bucket("20 s")
    assert claim(lane) == 2
    assert Bucket.objects.get().tokens < 1


def test_a_rate_of_one_starts_one_in_each_period() -> None:
    declare(rate=Rate(1, per=MINUTE))
    lane = enqueue()
    assert claim(lane) == 1
    wait_in_bucket("59 s")
    assert claim(lane) == 0
    wait_in_bucket("1 s")
    assert claim(lane) == 1


def test_a_bucket_that_is_ahead_of_the_clock_by_more_than_its_period_starts_anew() -> None:
    """After the server's clock was set back. One that is less ahead waits until its instants are over."""
    rates = {
        "stripe": {"rate": Rate(10, per=MINUTE, burst=4)},
        "of_keys": {"rate_per_key": Rate(10, per=MINUTE, burst=4)},
    }
    with all_faults() as about:
        for limiter, numbers in rates.items():
            for ahead, starts in (("30 s", 0), ("50 s", 0), ("61 s", 4), ("1 day", 4)):
                with about((limiter, ahead)):
                    empty_tables()
                    declare(limiter, **numbers)
                    lane = enqueue(limiter=limiter, key=None if limiter == "stripe" else "acme")
                    assert claim(lane, limiter=limiter) == 4
                    wait_in_bucket(f"-{ahead}")
                    answer = Job.objects.claim_limited(ME, limiter, [lane], {lane: 100}, limit=100)
                    assert len(answer.claims) == starts
                    if not starts:
                        assert answer.due_in == pytest.approx(int(ahead[:2]) + 60 / 7, abs=2)
                    assert claim(lane, limiter=limiter) == 0, "it was given out twice"
                    if starts:
                        wait_in_bucket("20 s")
                        assert claim(lane, limiter=limiter) == 2, "it does not go on from there"


def test_a_rate_of_each_key() -> None:
    declare(rate_per_key=Rate(20, per=MINUTE))
    lanes = [enqueue(key="a"), enqueue(key="b")]
    assert claim(*lanes) == 4
    assert sorted(Bucket.objects.values_list("scope", flat=True)) == sorted(lane.key for lane in lanes)


def test_jobs_with_a_rate_are_claimed_for_free_slots_alone() -> None:
    """Their starts are counted: in a worker without a free slot they would start in a bunch."""
    rate = Rate(100, per=MINUTE, burst=100)
    declare(max_running=100)
    declare("rated", rate=rate)
    declare("rated by key", rate_per_key=rate)
    for name, most in (("stripe", 10), ("rated", 3), ("rated by key", 3)):
        lane = enqueue(limiter=name, key="a")
        found = Job.objects.claim_limited(ME, name, [lane], {lane: 100}, limit=100, slots=Slots(8, 3))
        assert (len(found.claims), found.may_wait is None) == (most, most == 3)


def test_jobs_of_a_limit_that_was_closed_once_are_claimed_for_free_slots_alone() -> None:
    """It may close again, and those that wait would start all the same."""
    for most, change in ((10, ""), (3, "NULL"), (10, "open")):
        declare(max_running=100)
        lane = enqueue(key="a")
        if change == "NULL":
            Limiter.objects.pause("stripe", duration=MINUTE)
            sql("UPDATE pulse_django_limiter SET paused_until = statement_timestamp() - interval '1 min'")
        elif change:
            Limiter.objects.resume("stripe")
        found = Job.objects.claim_limited(ME, "stripe", [lane], {lane: 10}, limit=10, slots=Slots(8, 3))
        assert (len(found.claims), found.may_wait is None) == (most, most == 3)


def test_a_start_stands_in_the_ledger_as_the_bucket_counts_it() -> None:
    declare(rate=Rate(10, per=MINUTE))
    claim(enqueue())
    [bucket] = Bucket.objects.all()
    assert set(Job.objects.running().values_list("started_at", flat=True)) == {bucket.at}


def test_a_closed_limiter_starts_nothing_until_then() -> None:
    declare(max_running=5)
    lane = enqueue()
    assert Limiter.objects.pause("stripe", duration=MINUTE, reason="429")
    assert not Limiter.objects.pause("stripe", duration=timedelta(seconds=1))
    answer = Job.objects.claim_limited(ME, "stripe", [lane], {lane: 9}, limit=9)
    assert answer.claims == []
    assert answer.due_in is not None
    assert 59 < answer.due_in <= 60
    assert Limiter.objects.resume("stripe")
    assert claim(lane) == 5


def test_a_limiter_that_was_closed_once_does_not_say_when_it_has_room() -> None:
    """Its end stays in the row. A worker that took it for the next start would ask again every millisecond."""
    declare(max_running=1)
    lane = enqueue()
    Limiter.objects.pause("stripe", duration=MINUTE)
    sql("UPDATE pulse_django_limiter SET paused_until = statement_timestamp() - interval '1 min'")
    assert claim(lane) == 1
    answer = Job.objects.claim_limited(ME, "stripe", [lane], {lane: 9}, limit=9)
    assert (answer.claims, answer.due_in) == ([], None)


def refusal(*lanes: Lane, limiter: str = "stripe", queue: str | None = None) -> tuple[str, str] | None:
    takes = dict.fromkeys(lanes, 9)
    answer = Job.objects.claim_limited(ME, limiter, lanes, takes, limit=9, queue=queue)
    assert bool(answer.claims) == (answer.refusal is None)
    found: tuple[str, str] | None = answer.refusal
    return found


class TestRefusals:
    """A claim that brought nothing says which limit stood in the way, and why."""

    @each_of(
        ({"max_running": 1}, "full"),
        ({"max_running_per_key": 1}, "full"),
        ({"rate": Rate(1, per=MINUTE)}, "rate"),
        ({"rate_per_key": Rate(1, per=MINUTE)}, "rate"),
        ({"max_running": 1, "rate": Rate(1, per=MINUTE)}, "full"),
    )
    def test_full_and_used_up(self, *, numbers: Any, reason: Any) -> None:
        empty_tables()
        declare(**numbers)
        lane = enqueue(key="a")
        assert refusal(lane) is None
        assert refusal(lane) == ("stripe", reason)

    def test_a_pause_comes_first(self) -> None:
        declare(max_running=1)
        lane = enqueue()
        assert refusal(lane) is None
        Limiter.objects.pause("stripe", duration=MINUTE)
        assert refusal(lane) == ("stripe", "paused")
        sql("UPDATE pulse_django_limiter SET paused_until = statement_timestamp() - interval '1 min'")
        assert refusal(lane) == ("stripe", "full")

    def test_one_free_key_is_no_refusal(self) -> None:
        declare(max_running_per_key=1)
        busy, free = enqueue(key="a"), enqueue(key="b")
        assert refusal(busy) is None
        assert refusal(busy, free) is None
        assert refusal(busy, free) == ("stripe", "full")

    def test_the_limit_of_the_queue_is_named(self) -> None:
        whole = limiter_of_queue("default")
        declare(max_running=5)
        Limiter.objects.declare_new("project", {whole: Limit(max_running=1).numbers()})
        lane = enqueue()
        assert refusal(lane, queue="default") is None
        assert refusal(lane, queue="default") == (whole, "full")

    @each_of(*{"name": {"max_running": 5}, "key": {"max_running_per_key": 5}}.items())
    def test_another_claimer_has_the_lock(self, rival: Rival, *, case: Any, numbers: Any) -> None:
        empty_tables()
        declare(**numbers)
        lane = enqueue(key="a")
        scope = "stripe" if "max_running" in numbers else lane.key
        rival.begin()  # the lock is where the limiter is
        rival.run(
            sql,
            "SELECT pg_advisory_xact_lock(%s, hashtext(%s)) FROM pulse_django_limiter",
            LOCK_CLASS,
            scope,
        )
        assert refusal(lane) == ("stripe", "contended")
        rival.rollback()
        assert refusal(lane) is None


def test_people_override_field_by_field_and_for_a_time() -> None:
    declare(max_running=5, max_running_per_key=1)
    lanes = [enqueue(key=key) for key in ("a", "b", "c")]
    Limiter.objects.override("stripe", {"max_running": 2}, duration=MINUTE, by="ann", reason="slow")
    assert claim(*lanes) == 2
    sql("UPDATE pulse_django_limiter SET override_until = statement_timestamp()")
    assert claim(*lanes) == 1
    Limiter.objects.override("stripe", {"max_running_per_key": None})
    assert claim(*lanes) == 2


def test_a_limit_counts_leases_and_without_a_row_there_is_none() -> None:
    lane = enqueue()
    declare(max_running=3)
    assert claim(lane) == 3
    assert claim(lane) == 0
    job = Job.objects.running().first()
    assert job is not None
    Job.objects.release([lease_of(job)])
    assert claim(lane) == 1
    assert claim(enqueue(limiter="without a row"), limiter="without a row") == 10


def test_lane_keys_say_what_they_were_made_of() -> None:
    for limiter, key in (("stripe", "a:b"), ("stripe", None), ("", "tenant")):
        made = lane_key(limiter, key)
        assert (limiter_of(made), key_of(made)) == (limiter, key)


@each_of(
    ((0, 0, 0), 3, (1, 1, 1)),
    ((0, 0, 0), 4, (2, 1, 1)),
    ((5, 0, 1), 3, (0, 2, 1)),
    ((9, 9, 9), 1, (1, 0, 0)),
    ((2, 0, 0), 0, (0, 0, 0)),
)
def test_slots_go_to_who_holds_fewest(*, held: Any, limit: Any, takes: Any) -> None:
    lanes = [Lane("q", 0, key) for key in "abc"]
    dealt = deal(lanes, limit, held=dict(zip(lanes, held, strict=True)))
    assert tuple(dealt.get(lane, 0) for lane in lanes) == takes


def test_weights_divide_what_is_held() -> None:
    lanes = [Lane("q", 0, key) for key in "ab"]
    assert deal(lanes, 8, held={}, weight=lambda lane: 3.0 if lane.key == "a" else 1.0) == {lanes[0]: 6, lanes[1]: 2}
    assert deal(lanes, 4, held={lanes[0]: 6}, weight=lambda lane: 3.0 if lane.key == "a" else 1.0)[lanes[1]] == 3


def test_jobs_from_before_their_limit_had_keys_are_claimed_by_the_rate_of_all() -> None:
    declare(rate=Rate(10, per=MINUTE, burst=3), rate_per_key=Rate(10, per=MINUTE, burst=1))
    without_key, with_key = enqueue(5), enqueue(5, key="a")
    assert claim(without_key, with_key) == 3
    scopes = {bucket.scope: bucket.tokens for bucket in Bucket.objects.all()}
    assert scopes["stripe"] < 1


class TestLimitsOfQueues:
    """``queue=mail`` is the limit of the queue mail: for all its jobs with lane keys, whatever their own limits."""

    def in_queue(self, *lanes: Lane, limiter: str = "", limit: int = 100) -> int:
        takes = dict.fromkeys(lanes, limit)
        answer = Job.objects.claim_limited(ME, limiter, lanes, takes, limit=limit, queue=lanes[0].queue)
        return len(answer.claims)

    def declare(self, **numbers: object) -> None:
        Limiter.objects.declare_new("project", {limiter_of_queue("mail"): Limit(**numbers).numbers()})  # type: ignore[arg-type]

    def test_it_counts_all_leases_of_the_queue_and_none_elsewhere(self) -> None:
        declare(max_running=3)
        own, elsewhere = enqueue(queue="mail"), enqueue()
        assert self.in_queue(own, limiter="stripe", limit=1) == 1, "without numbers of its own that of the task holds"
        self.declare(max_running=5)
        assert claim(elsewhere, limit=1) == 1
        bare = enqueue(limiter=limiter_of_queue("mail"), queue="mail")
        assert self.in_queue(own, limiter="stripe") == 1
        assert self.in_queue(bare) == 3
        assert self.in_queue(bare) == 0
        assert self.in_queue(own, limiter="stripe") == 0

    def test_its_rate_is_spent_by_all(self) -> None:
        self.declare(rate=Rate(10, per=MINUTE, burst=4))
        own = enqueue(queue="mail")
        bare = enqueue(limiter=limiter_of_queue("mail"), queue="mail")
        assert self.in_queue(own, limiter="stripe", limit=3) == 3
        assert self.in_queue(bare) == 1
        assert Bucket.objects.get().scope == "queue=mail"

    def test_it_can_be_closed(self) -> None:
        self.declare(max_running=2)
        bare = enqueue(limiter=limiter_of_queue("mail"), queue="mail")
        Limiter.objects.pause(limiter_of_queue("mail"), duration=MINUTE)
        answer = Job.objects.claim_limited(ME, "", [bare], {bare: 1}, limit=1, queue="mail")
        assert answer.claims == []
        assert 0 < (answer.due_in or 0) <= 60

    def test_shares_within_it(self) -> None:
        self.declare(max_running=3)
        lanes = [enqueue(limiter="", key=key, queue="mail") for key in "ab"]
        takes = {lanes[0]: 2, lanes[1]: 2}
        assert len(Job.objects.claim_limited(ME, "", lanes, takes, limit=4, queue="mail").claims) == 3

    def test_its_mark_is_the_smallest_token(self) -> None:
        self.declare(max_running=3)
        bare = enqueue(limiter=limiter_of_queue("mail"), queue="mail")
        answer = Job.objects.claim_limited(ME, "", [bare], {bare: 2}, limit=2, queue="mail")
        assert answer.marks == {"queue=mail": min(claim.token for claim in answer.claims)}
        again = Job.objects.claim_limited(ME, "", [bare], {bare: 2}, limit=2, queue="mail", marks=answer.marks)
        assert len(again.claims) == 1
        assert again.marks == answer.marks


@each_of(
    ("", (), ""),
    ("", ("mail",), "queue=mail"),
    (":abcdk", ("mail",), "queue=mail:abcdk"),
    ("queue=default", (), ""),
    ("queue=default", ("mail",), "queue=mail"),
    ("queue=default:abcdk", (), ":abcdk"),
    ("queue=default:abcdk", ("mail",), "queue=mail:abcdk"),
    ("stripe", ("mail",), "stripe"),
    ("stripe:abcdk", (), "stripe:abcdk"),
)
def test_a_job_that_moves_has_the_limit_of_its_new_queue(
    settings: Any, *, before: Any, limited: Any, after: Any
) -> None:
    empty_tables()
    settings.PULSE = {"QUEUE_LIMITS": {queue: {"max_running": 1} for queue in limited}}
    job = Job.objects.enqueue(NewJob(task="t", lane_key=before))
    assert Job.objects.move([job.id], priority=3).changed
    assert Job.objects.get().lane_key == before
    assert Job.objects.move([job.id], queue="mail").changed
    moved = Job.objects.get()
    assert moved.lane_key == after
    assert moved.ready == (before == after)
    Job.objects.promote()
    [lane] = [one.lane for one in Job.objects.waiting()]
    assert lane == Lane("mail", 3, after)
