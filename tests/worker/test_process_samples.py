"""What the page of a worker shows of its processes: a sample a minute, for half an hour."""

from __future__ import annotations

import os

from pulse_django.worker.process_samples import BETWEEN, MOST_PROCESSES, MOST_SAMPLES, ProcessSamples, Use, use_of


class System:
    def __init__(self) -> None:
        self.now, self.asked = 0.0, 0
        self.uses: dict[int, Use] = {}

    def use(self, pid: int) -> Use | None:
        self.asked += 1
        return self.uses.get(pid)


def test_a_sample_is_taken_once_a_minute_and_processor_time_is_that_of_the_minute() -> None:
    system = System()
    samples = ProcessSamples(system.use, lambda: system.now)
    system.uses = {7: Use(rss=100, cpu=10.0)}
    assert samples.report({"1": 7}) == {"1": {"pid": 7, "rss": {"0": 100}, "cpu": {}}}
    system.now, system.uses[7] = BETWEEN / 2, Use(rss=500, cpu=11.0)
    assert samples.report({"1": 7}) == {"1": {"pid": 7, "rss": {"0": 100}, "cpu": {}}}
    system.now, system.uses[7] = BETWEEN, Use(rss=120, cpu=10.0 + BETWEEN / 2)
    assert samples.report({"1": 7}) == {"1": {"pid": 7, "rss": {"0": 100, "1": 120}, "cpu": {"0": 50}}}
    assert system.asked == 2


def test_there_are_few_samples_of_few_processes() -> None:
    system = System()
    samples = ProcessSamples(system.use, lambda: system.now)
    pids = {str(number): number for number in range(1, 100)}
    system.uses = {pid: Use(rss=pid, cpu=0.0) for pid in pids.values()}
    for _ in range(2 * MOST_SAMPLES):
        told = samples.report(pids)
        system.now += BETWEEN
    assert len(told) == MOST_PROCESSES
    assert {len(one["rss"]) for one in told.values()} == {MOST_SAMPLES}


def test_a_process_that_replaces_another_begins_anew_and_one_that_is_gone_is_left_out() -> None:
    system = System()
    samples = ProcessSamples(system.use, lambda: system.now)
    system.uses = {7: Use(rss=100, cpu=10.0), 8: Use(rss=1, cpu=1.0)}
    samples.report({"1": 7, "2": 8})
    system.now, system.uses = BETWEEN, {9: Use(rss=30, cpu=1.0)}
    assert samples.report({"1": 9, "2": 8}) == {"1": {"pid": 9, "rss": {"0": 30}, "cpu": {}}}


def test_a_process_that_begins_between_two_samples_is_told_at_once() -> None:
    system = System()
    samples = ProcessSamples(system.use, lambda: system.now)
    system.uses = {7: Use(rss=100, cpu=10.0), 8: Use(rss=1, cpu=1.0)}
    samples.report({"1": 7})
    system.now = BETWEEN / 2
    told = samples.report({"1": 7, "2": 8})
    assert {name: one["rss"] for name, one in told.items()} == {"1": {"0": 100}, "2": {"0": 1}}
    system.uses[8] = Use(rss=2, cpu=1.0 + BETWEEN / 2)
    system.now = BETWEEN
    assert samples.report({"1": 7, "2": 8})["2"] == {"pid": 8, "rss": {"0": 1, "1": 2}, "cpu": {"0": 100}}


def test_the_system_tells_of_this_process() -> None:
    use = use_of(os.getpid())
    assert use is not None
    assert use.rss > 10
    assert use.cpu > 0
    assert use_of(2**22 + 1) is None


def numbers_in(told: object) -> list[int]:
    return [one for value in told.values() for one in numbers_in(value)] if isinstance(told, dict) else [told]  # type: ignore[list-item]


def test_they_are_numbers_by_name_so_that_an_earlier_release_can_subtract_them() -> None:
    """Its minute recorder compares all that it finds with what it found before: a list ended it."""
    samples = ProcessSamples(lambda pid: Use(rss=pid, cpu=0.0), lambda: 0.0)
    assert {type(one) for one in numbers_in(samples.report({"keeper": 5, "1": 7}))} == {int}
