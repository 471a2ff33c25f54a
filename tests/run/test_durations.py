"""A number of seconds is a duration, and a name is a list of one, wherever they are given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import pulse_django
from pulse_django import Backoff, Breaker, Every, Limit, Rate, Unique, event_link, pause_queue, progress_token, task
from pulse_django.exceptions import InvalidJob, InvalidSchedule, RateLimited, Snooze
from pulse_django.models import Dependency, Job, Limiter, Pause, Schedule
from pulse_django.queue.words.durations import as_timedelta
from pulse_django.queue.words.options import DURATIONS
from pulse_django.run.registry import InvalidTask, registry
from pulse_django.schedules.timings import Cron
from pulse_django.tasks import PulseTask
from pulse_django.testing import assert_enqueued, jump_to_next_run, run_job, run_schedules
from tests.faults import all_faults, each_of

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NONSENSE = [True, -1, float("nan"), float("inf"), 1e300, "60"]


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))


def plain(order: int = 0) -> None: ...


def rest(context: Any) -> None:
    context.pause_limit(60, limit="bank")
    if context.attempt == 1:
        context.snooze(60)
    if context.attempt == 2:
        raise RateLimited(60)
    if context.attempt == 3:
        context.sleep(60)
    context.wait_for_event("never", timeout=60)


@each_of(
    (60, MINUTE),
    (0.5, timedelta(milliseconds=500)),
    (HOUR, HOUR),
    (None, None),
    (True, True),  # its caller refuses it
    (1e300, timedelta.max),  # no bounds allow it
    (-1e300, timedelta.min),
)
def test_a_number_is_seconds(*, given: Any, meant: Any) -> None:
    assert as_timedelta(given) == meant


def test_options_take_seconds() -> None:
    with all_faults() as about:
        for option in DURATIONS:
            with about(option):
                also = {"chunk": 2} if option == "chunk_wait" else {}
                made: PulseTask[..., None] = PulseTask(func=plain, name="t", **{option: 20, **also})
                assert getattr(made, option) == timedelta(seconds=20)
                for wrong in NONSENSE:
                    with pytest.raises((InvalidTask, TypeError), match=option):
                        task(name="t", **{option: wrong, **also})(plain)
    declared = task(name="test.durations", expires=60)(plain)
    assert declared.using(expires=30, run_after=10, timeout=5) == declared.using(
        expires=timedelta(seconds=30), run_after=timedelta(seconds=10), timeout=timedelta(seconds=5)
    )


def test_values_take_seconds() -> None:
    rows: list[tuple[Callable[[Any], Any], type[Exception]]] = [
        (lambda given: Rate(5, per=given).per, InvalidJob),
        (lambda given: Breaker(window=given).window, InvalidJob),
        (lambda given: Breaker(pause_for=given).pause_for, InvalidJob),
        (lambda given: Backoff(unit=given).unit, InvalidJob),
        (lambda given: Backoff(cap=given).cap, InvalidJob),
        (lambda given: Unique(per=given).per, InvalidJob),
        (lambda given: Unique(max_delay=given, on_conflict="debounce").max_delay, InvalidJob),
        (lambda given: Every(given).interval, InvalidSchedule),
        (lambda given: Every(DAY, given).phase, InvalidSchedule),
        (lambda given: Cron("@daily", grace=given).grace, InvalidSchedule),
        (lambda given: Cron("@daily", jitter=given).jitter, InvalidSchedule),
        (lambda given: Snooze(given).delay, TypeError),
        (lambda given: RateLimited(given).delay, TypeError),
    ]
    with all_faults() as about:
        for number, (made, error) in enumerate(rows):
            with about(f"row {number}"):
                assert made(60) == made(MINUTE) == MINUTE
                for wrong in (True, -1, "60"):
                    with pytest.raises(error):
                        made(wrong)


@pytest.mark.django_db
def test_functions_take_seconds() -> None:
    send = task(name="test.durations.send")(plain)
    job = send.using(run_after=3_600).enqueue(1)
    assert_enqueued(send.using(run_after=HOUR), 1)
    assert pulse_django.retry(job.id, delay=60).revived == frozenset()
    pause_queue("slow", duration=60)
    assert Pause.objects.get().paused_until - datetime.now(UTC) <= MINUTE  # type: ignore[operator]
    Limiter.objects.override("pay", {"max_running": 1}, duration=60)
    assert Limiter.objects.pause("pay", duration=60)
    assert progress_token(job.id, expires_in=60)
    with pytest.raises(InvalidJob, match="not in the future"):
        progress_token(job.id, expires_in=-1)
    assert event_link("paid", title="Paid?", by="ada", expires_in=60)
    by_columns = Schedule.objects.create(name="columns", task=send, every=60, jitter=5)
    assert by_columns.timing == Every(60, jitter=5)
    by_columns.delete()
    made = Schedule.objects.create(name="t", task=send, timing=Every(minutes=5))
    assert Schedule.objects.pause(made.pk, duration=60) == [made.pk]
    with pytest.raises(ValueError, match="duration"):
        Schedule.objects.pause(made.pk, duration=-1)
    assert {one.note for one in run_schedules(until=360, run_jobs=False)} == {""}


@pytest.mark.django_db(transaction=True)
def test_a_context_takes_seconds() -> None:
    job = task(name="test.durations.context", takes_context=True)(rest).enqueue()
    for _ in range(3):
        run_job(job)
        found = Job.objects.get(pk=job.id)
        assert found.status == "PENDING"
        assert timedelta(seconds=50) < found.next_run_at - datetime.now(UTC) <= MINUTE
        jump_to_next_run(found)
    run_job(job)
    assert Dependency.objects.get(job_id=job.id).until - datetime.now(UTC) <= MINUTE  # type: ignore[operator]


def test_an_interval_has_the_words_of_timedelta() -> None:
    assert Every(minutes=5) == Every(300) == Every(timedelta(minutes=5))
    assert Every(hours=1, minutes=30, phase=60).interval == timedelta(hours=1, minutes=30)
    for wrong in ({}, {"interval": 5, "minutes": 1}, {"minutes": -1}):
        with pytest.raises(InvalidSchedule, match="every: "):
            Every(**wrong)  # type: ignore[arg-type]


def test_rates_are_read() -> None:
    rows: list[tuple[Any, int, timedelta]] = [
        (Rate(60, per="minute"), 60, MINUTE),
        (Rate(5, per="second"), 5, timedelta(seconds=1)),
        (Rate(5, per="hour"), 5, HOUR),
        (Rate(5, per="day"), 5, DAY),
        (Rate.parse("60/m"), 60, MINUTE),
        (Rate.parse("60/minute"), 60, MINUTE),
        (Rate.parse("5/s"), 5, timedelta(seconds=1)),
        (Rate.parse("7/h"), 7, HOUR),
        (Rate.parse("1/d"), 1, DAY),
    ]
    with all_faults() as about:
        for rate, n, per in rows:
            with about(rate):
                assert (rate.n, rate.per) == (n, per)
        for wrong in ("60", "60/", "60/w", "/m", "m/60", "-5/m", "0/m", "1.5/m", 60):
            with about(wrong), pytest.raises(InvalidJob, match="rate"):
                Rate.parse(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="per='week' is neither second, minute, hour, day nor a number"):
        Rate(5, per="week")  # type: ignore[arg-type]


def test_a_single_name_is_a_list_of_one() -> None:
    made: PulseTask[..., None] = PulseTask(func=plain, name="t", sensitive="order", aliases="old.name", tags="vip")
    assert (made.sensitive, made.aliases, made.tags) == (("order",), ("old.name",), ("vip",))
    assert PulseTask(func=plain, name="t", searchable="order").searchable == ("order",)
    assert made.using(tags="mail").tags == ("vip", "mail")
    assert Unique(by="order").by == ("order",)
    keyed = PulseTask(func=plain, name="t", limit=Limit(max_running_per_key=1), limit_key="order")
    assert keyed.limit_key == ("order",)
    with pytest.raises(InvalidTask, match=r"sensitive: plain\(\) has no parameter 'ordre'"):
        PulseTask(func=plain, name="t", sensitive="ordre")
