"""Where a claimer begins to look in a lane, and when it looks behind that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse_django.models import Job
from pulse_django.queue.claim import FROM_THE_FIRST, NO_BOUNDS
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.worker import lanes as lane_bounds
from pulse_django.worker.lanes import LaneBounds
from tests.factories import make_job
from tests.queue.steps import sql
from tests.worker.steps import claimer_for
from tests.worker.test_shared_leases import claim

MAIL, BULK = Lane("mail", 0), Lane("bulk", 0)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def due_at(lane: Lane, seconds: float) -> Claim:
    return claim(1)._replace(queue=lane.queue, priority=lane.priority, due_epoch=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bounds(clock: Clock) -> LaneBounds:
    """Bounds of a claimer that has just looked at everything."""
    bounds = LaneBounds(clock)
    bounds.of([MAIL])
    return bounds


def test_a_bound_is_the_last_instant_claimed_in_its_lane_and_never_falls(clock: Clock) -> None:
    bounds = LaneBounds(clock)
    bounds.claimed([due_at(MAIL, 50.0)])
    assert bounds.of([MAIL]) is NO_BOUNDS, "the first look has none"
    bounds.claimed([due_at(MAIL, 50.0), due_at(MAIL, 52.0), due_at(MAIL, 51.0)])
    found = bounds.of([MAIL, BULK])
    assert found[MAIL] == pytest.approx(52.0)
    assert found[MAIL] < 52.0, "jobs that are due in the same instant have to be found"
    assert BULK not in found
    bounds.claimed([due_at(MAIL, 40.0)])
    assert bounds.of([MAIL]) is NO_BOUNDS
    assert bounds.of([MAIL])[MAIL] == pytest.approx(52.0)


def test_while_it_finds_jobs_behind_a_bound_it_looks_at_everything(bounds: LaneBounds, clock: Clock) -> None:
    """As after the pause of a task, whose jobs were due long ago: they would get one claim in ten seconds."""
    bounds.claimed([due_at(MAIL, 50.0)])
    clock.now += lane_bounds.BETWEEN_FULL_LOOKS + 0.1
    for seconds in (10.0, 20.0, 30.0, 50.0):
        assert bounds.of([MAIL]) is NO_BOUNDS
        bounds.claimed([due_at(MAIL, seconds)])
    assert bounds.of([MAIL]) is not NO_BOUNDS
    bounds.claimed([due_at(MAIL, 50.0), due_at(MAIL, 51.0)])
    assert bounds.of([MAIL]) is not NO_BOUNDS


def test_a_lane_with_a_key_has_no_bound_and_gives_none_to_the_one_without(bounds: LaneBounds) -> None:
    """Jobs without a key may have been due before, and wait."""
    bounds.claimed([due_at(MAIL, 50.0)._replace(lane_key=":0000a")])
    assert bounds.of([MAIL]) is NO_BOUNDS
    bounds.claimed([due_at(MAIL, 20.0)])
    assert bounds.of([MAIL])[MAIL] == pytest.approx(20.0)


def test_it_looks_behind_once_in_a_while_and_at_once_where_nothing_was_found(bounds: LaneBounds, clock: Clock) -> None:
    bounds.claimed([due_at(MAIL, 50.0)])
    clock.now += lane_bounds.BETWEEN_FULL_LOOKS - 0.1
    assert bounds.of([MAIL]) is not NO_BOUNDS
    clock.now += 0.2
    assert bounds.of([MAIL]) is NO_BOUNDS, "every ten seconds it looks at everything"
    assert not bounds.must_look_behind(0), "after a full look there is nothing behind"
    assert bounds.of([MAIL]) is not NO_BOUNDS
    assert bounds.must_look_behind(0)
    assert not bounds.must_look_behind(3)
    clock.now += lane_bounds.BETWEEN_FULL_LOOKS_WITH_ROOM
    bounds.of([MAIL])
    assert [bounds.must_look_behind(3) for _ in range(2)] == [True, False], "with room left, once a second"


def test_it_does_not_grow_for_ever(bounds: LaneBounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_bounds, "MOST_LANES", 3)
    for number in range(20):
        bounds.claimed([due_at(Lane(f"q{number}", 0), 1.0)])
    assert len(bounds._since) <= 4


@pytest.mark.usefixtures("pulse_db")
class TestWithATable:
    def epoch(self, job: Job) -> float:
        [[instant]] = sql("SELECT date_part('epoch', next_run_at) FROM pulse_django_job WHERE id = %s", job.pk)
        return float(instant)

    def test_a_claim_leaves_out_what_was_due_before(self) -> None:
        old, new = make_job(queue="mail"), make_job(queue="mail")
        other = make_job(queue="bulk")
        since = {MAIL: self.epoch(new) - lane_bounds.ROUNDING}
        [first, second] = Job.objects.claim(Identity("w"), limit=5, lanes=[MAIL, BULK], since=since)
        assert {first.job_id, second.job_id} == {new.pk, other.pk}
        [last] = Job.objects.claim(Identity("w"), limit=5, lanes=[MAIL], since={MAIL: FROM_THE_FIRST})
        assert last.job_id == old.pk

    def test_a_claim_brings_when_its_job_was_due(self) -> None:
        job = make_job()
        [granted] = Job.objects.claim(Identity("w"))
        assert granted.due_epoch == self.epoch(job)

    def test_jobs_of_one_instant_are_all_found(self) -> None:
        jobs = [make_job(queue="mail") for _ in range(4)]
        sql("UPDATE pulse_django_job SET next_run_at = (SELECT min(next_run_at) FROM pulse_django_job)")
        bounds, found = LaneBounds(), []
        bounds.of([MAIL])
        for _ in jobs:
            claims = Job.objects.claim(Identity("w"), limit=1, lanes=[MAIL], since=bounds.of([MAIL]))
            bounds.claimed(claims)
            found += [one.job_id for one in claims]
        assert sorted(found) == sorted(job.pk for job in jobs)

    def test_a_job_behind_the_bound_is_claimed_when_nothing_else_is_there(self) -> None:
        """A long transaction enqueued it: its instant is older than those of jobs that were claimed before."""
        taken: list[Any] = []
        claimer = claimer_for(start=taken.extend)
        make_job(queue="mail")
        claimer.run_once()
        assert len(taken) == 1
        late = make_job(queue="mail")
        sql("UPDATE pulse_django_job SET next_run_at = next_run_at - %s WHERE id = %s", timedelta(hours=1), late.pk)
        claimer.wake("mail")
        claimer.run_once()
        assert [run.claim.job_id for run in taken[1:]] == [late.pk]
        claimer.database.hang_up()
