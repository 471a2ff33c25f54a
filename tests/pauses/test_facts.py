"""What conditions and facts say while a task is paused: a pause on purpose is no alarm."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pulse_django import conf
from pulse_django.health import snapshot
from pulse_django.health.conditions import Limits, ask, known, named, server
from pulse_django.models import Duty, Job, Pause
from pulse_django.pauses.facts import MOST_COUNTED, paused_tasks
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key
from tests.database import empty_tables, on_empty_tables
from tests.factories import make_job, now
from tests.faults import all_faults, combined, each_of
from tests.health.states import LONG_AGO, SIMPLE, live_worker
from tests.limits.test_facts import declare
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

TASK = "tests.add"


def keys(name: str) -> list[Any]:
    finding = ask(named(name), "default", Limits.of(conf.current()))
    assert finding.error == ""
    return [subject.key for subject in finding.subjects]


def swept(ago: timedelta = timedelta()) -> None:
    Duty.objects.update_or_create(name="sweep", defaults={"taken_at": now(-ago), "done_at": now(-ago)})


OF_WAITING = {
    name: SIMPLE[name] for name in ("queue-without-worker", "overdue-while-idle", "queue-overdue", "ready-overdue")
}
OF_WAITING |= {"limiter-starved": SIMPLE["limiter-starved"]}


@each_of(*combined([False, True], OF_WAITING), around=on_empty_tables)
def test_jobs_of_a_paused_task_raise_no_alarm(*, set_aside: Any, name: Any) -> None:
    OF_WAITING[name]()
    assert keys(name), "or this could not fail"
    Pause.objects.pause(TASK)
    if set_aside:
        Job.objects.promote()
        assert Job.objects.set_aside()
    assert keys(name) == []


@each_of("overdue-while-idle", "queue-overdue", around=on_empty_tables)
def test_those_of_other_tasks_behind_them_do(*, name: Any) -> None:
    OF_WAITING[name]()
    make_job(task="tests.other", next_run_at=now(LONG_AGO / 2))
    Pause.objects.pause(TASK)
    assert keys(name) == ["default"]


def test_no_condition_is_found_while_a_task_is_paused() -> None:
    live_worker()
    swept()
    declare("stripe", max_running=1)
    for key in ("", lane_key("stripe", None), lane_key("", "acme")):
        for ready in (True, None):
            make_job(next_run_at=now(LONG_AGO), lane_key=key, ready=ready)
    Pause.objects.pause(TASK)
    # Those of the server are left out: the dead rows of other tests are none of a pause's doing.
    asked = [one.name for one in known() if one.sql and one not in server.CONDITIONS]
    assert {name: found for name in asked if (found := keys(name))} == {}


@each_of(
    (False, None, ["default"]),
    (False, LONG_AGO, ["default"]),
    (False, timedelta(), []),
    (True, None, []),
    around=on_empty_tables,
)
def test_jobs_that_no_watchdog_brings_back_are_found(*, is_paused: Any, ago: Any, expected: Any) -> None:
    """While watchdogs sweep they come back, and it is no alarm that a million of them take a while."""
    make_job(ready=None, next_run_at=now(LONG_AGO))
    make_job(ready=None, next_run_at=now(LONG_AGO), task="tests.other", queue="other")
    Pause.objects.pause("tests.other", *([TASK] if is_paused else []))
    if ago is not None:
        swept(-ago if ago else ago)
    assert keys("ready-overdue") == expected


def counts() -> dict[str, Callable[[], Any]]:
    return {
        "queues": lambda: snapshot.queues("default"),
        "take": lambda: snapshot.take("default").queues,
        "glance": lambda: snapshot.glance("default").queues,
    }


def test_they_are_counted_as_later_and_not_as_due() -> None:
    with all_faults() as about:
        for how in counts():
            with about(how):
                empty_tables()
                make_job(next_run_at=now(LONG_AGO), ready=None)
                make_job(task="tests.other")
                [queue] = counts()[how]()
                assert (queue.due, queue.later) == (1, 1)
                assert queue.oldest_due < timedelta(minutes=1)


def test_they_are_still_jobs_that_wait() -> None:
    make_job(ready=None)
    statuses = {one.status: one.jobs for one in snapshot.take("default").statuses}
    assert statuses["PENDING"] == 1


class TestFacts:
    def test_what_is_paused_until_when_by_whom_and_why(self) -> None:
        Pause.objects.pause(lane_key=lane_key("", "acme"))
        Pause.objects.pause("b", duration=timedelta(hours=1), reason="down", by="ann")
        Pause.objects.pause("a", "over", duration=timedelta(hours=2))
        sql("UPDATE pulse_django_pause SET paused_until = clock_timestamp() WHERE task = 'over'")
        first, second = paused_tasks("default")
        assert (first.task, second.task, second.reason, second.paused_by) == ("a", "b", "down", "ann")
        assert second.paused_until is not None
        assert timedelta(minutes=59) < second.paused_until - second.paused_at <= timedelta(minutes=61)

    def test_jobs_are_counted_to_a_bound(self) -> None:
        Job.objects.enqueue_many([NewJob(task="a")] * (MOST_COUNTED + 5) + [NewJob(task="b")] * 3)
        Pause.objects.pause("a", "b")
        while Job.objects.set_aside():
            pass
        assert [one.waiting for one in paused_tasks("default")] == ["1000+", "3"]
        assert [one.as_json()["is_more"] for one in paused_tasks("default")] == [True, False]
