from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from pulse_django.models import Job
from pulse_django.operations import batches as masses
from pulse_django.operations.batches import Pace, Walk, interruptible
from pulse_django.queue.words.job_options import NewJob
from tests.faults import each_of
from tests.operations.steps import Time

pytestmark = pytest.mark.usefixtures("pulse_db")


@pytest.fixture
def seven() -> list[int]:
    return Job.objects.enqueue_many([NewJob(task="tests.add")] * 7)


class Batches(list[list[int]]):
    """A verb that only keeps what it was given."""

    def __call__(self, ids: Sequence[int]) -> dict[str, int]:
        self.append(list(ids))
        return {"kept": len(ids)}


def test_it_walks_by_id_in_batches_and_counts(seven: list[int]) -> None:
    batches = Batches()
    walk = Walk(Job.objects.all(), batches, pace=Pace(batch=3))
    walk.run(Time())
    assert batches == [seven[:3], seven[3:6], seven[6:]]
    assert (walk.met, walk.counts, walk.is_complete, walk.unsure) == (7, {"kept": 7}, True, ())


def test_a_job_that_comes_back_is_not_met_again(seven: list[int]) -> None:
    batches = Batches()  # it does nothing, so that all match still
    Walk(Job.objects.claimable(), batches, pace=Pace(batch=2)).run(Time())
    assert [job_id for batch in batches for job_id in batch] == seven


def test_a_job_that_moves_on_before_its_batch_is_not_met(seven: list[int]) -> None:
    batches = Batches()

    def act(ids: Sequence[int]) -> dict[str, int]:
        Job.objects.request_cancel([seven[2], seven[3], seven[6]])
        return batches(ids)

    walk = Walk(Job.objects.claimable(), act, pace=Pace(batch=2))
    walk.run(Time())
    assert batches == [seven[:2], seven[4:6]]
    assert (walk.met, walk.is_complete) == (4, True)


@each_of(None, 5, 7)
def test_it_looks_ahead_for_some_batches_and_misses_none(seven: list[int], *, limit: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masses, "AHEAD", 2)
        batches = Batches()
        walk = Walk(Job.objects.all(), batches, pace=Pace(batch=1), limit=limit)
        walk.run(Time())
        assert [job_id for [job_id] in batches] == seven[:limit]
        assert walk.is_complete


def test_nothing_at_all_is_complete_at_once() -> None:
    batches = Batches()
    walk = Walk(Job.objects.all(), batches)
    walk.run(Time())
    assert (batches, walk.is_complete) == ([], True)


@each_of(
    (60, 500, 1, 1.0),
    (90, 500, 1, 2 / 3),
    (1, 500, 1, 60.0),
    (120, 500, 2, 1.0),  # one second's worth
    (6_000, 3, 3, 0.03),  # a smaller batch wins
    (6_000_000, 500, 500, 0.005),
)
def test_a_throttle_spreads_the_work_evenly(*, per_minute: Any, batch: Any, size: Any, pause: Any) -> None:
    pace = Pace(batch=batch, per_minute=per_minute)
    assert (pace.at_a_time, pace.seconds_for(pace.at_a_time)) == (size, pytest.approx(pause))


def test_it_waits_between_batches_and_not_after_the_last(seven: list[int]) -> None:
    time, batches = Time(), Batches()
    Walk(Job.objects.all(), batches, pace=Pace(per_minute=120), clock=time).run(time)
    assert [len(batch) for batch in batches] == [2, 2, 2, 1]
    assert time.waits == [0, 1, 1, 1]


def test_a_slow_batch_is_part_of_the_pause_and_is_not_made_up_for(seven: list[int]) -> None:
    time, took = Time(), iter([0.25, 5.0, 0.0, 0.0])

    def act(ids: Sequence[int]) -> dict[str, int]:
        time.now += next(took)
        return {}

    Walk(Job.objects.all(), act, pace=Pace(per_minute=120), clock=time).run(time)
    assert time.waits == [0, 0.75, 0, 1]


@each_of(signal.SIGINT, signal.SIGTERM)
def test_the_first_signal_is_a_wish_the_second_an_order(*, number: Any) -> None:
    before = signal.getsignal(number)
    with interruptible() as stopping:
        os.kill(os.getpid(), number)
        assert stopping.wait(10)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_outside_of_the_main_thread_no_signal_is_touched() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def use() -> None:
        with interruptible():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [before]
