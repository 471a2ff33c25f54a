"""Schedules of tasks that are unique: a tick meets a job with its key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest

from pulse_django import Every, Unique, task
from pulse_django.exceptions import InvalidSchedule
from pulse_django.models import Job, Schedule, Tick
from pulse_django.schedules import ticking
from pulse_django.schedules.planning import jobs_of
from pulse_django.schedules.ticking import run_now, tick_due
from pulse_django.unique.rule import OnConflict
from tests.database import empty_tables
from tests.faults import each_of
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

HOUR = timedelta(hours=1)


@task(name="tests.unique_by_customer", unique=Unique(by=("customer",)))
def report(customer: int = 0) -> None: ...


@task(name="tests.unique_or_error", unique=Unique(on_conflict="raise"))
def strict(customer: int = 0) -> None: ...


@task(name="tests.replaced", unique=Unique(by=(), on_conflict="replace"))
def replaced(customer: int = 0) -> None: ...


def due(name: str, **fields: Any) -> Schedule:
    schedule = Schedule.objects.create(name=name, timing=Every(HOUR, overlap="allow"), **fields)
    sql("UPDATE pulse_django_schedule SET next_at = date_trunc('hour', clock_timestamp()) WHERE id = %s", schedule.pk)
    return schedule


@each_of(report, strict)
def test_a_tick_that_meets_a_job_with_its_key_does_not_fire(*, declared: Any) -> None:
    empty_tables()
    there = declared.enqueue(customer=1)
    first = due("one", task=declared, kwargs={"customer": 1})
    second = due("two", task=declared, kwargs={"customer": 2})
    tick_due("default")
    met, fired = Tick.objects.get(schedule=first), Tick.objects.get(schedule=second)
    assert (met.outcome, met.note, met.job_id) == ("OVERLAP", f"job {there.id} has its unique key", None)
    assert fired.outcome == "FIRED"
    assert Job.objects.get(pk=fired.job_id).kwargs == {"customer": 2}
    assert Job.objects.count() == 2
    assert Schedule.objects.get(pk=first.pk).next_at is not None


def test_a_tick_of_a_task_that_replaces_changes_the_job_that_waits() -> None:
    there = replaced.using(run_after=HOUR).enqueue()
    schedule = due("one", task=replaced)
    tick_due("default")
    assert (Tick.objects.get().outcome, str(Tick.objects.get().job_id)) == ("FIRED", there.id)
    assert Job.objects.count() == 1
    assert Schedule.objects.get(pk=schedule.pk).last_job_id == int(there.id)


def test_a_tick_of_each_rule_fires() -> None:
    for conflict in get_args(OnConflict):
        unique = task(name=f"tests.unique_{conflict}", unique=Unique(on_conflict=conflict, by=()))(replaced.func)
        schedule = due(conflict, task=unique)
        tick_due("default")
        assert [tick.outcome for tick in Tick.objects.filter(schedule=schedule)] == ["FIRED"], conflict
        Job.objects.all().delete()
        assert run_now("default", schedule.pk)


def test_a_run_by_hand_of_a_schedule_that_changes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = due("one", task=report, kwargs={"customer": 1})

    def changing(*args: Any) -> Any:
        Schedule.objects.filter(pk=schedule.pk).update(kwargs={"customer": 2})
        return jobs_of(*args)

    monkeypatch.setattr(ticking, "jobs_of", changing)
    with pytest.raises(InvalidSchedule, match="it was changed at this moment"):
        run_now("default", schedule.pk)
    assert not Job.objects.exists()


def test_a_run_by_hand_says_which_job_has_the_key() -> None:
    there = report.enqueue(customer=1)
    schedule = due("one", task=report, kwargs={"customer": 1})
    with pytest.raises(InvalidSchedule, match=f"job {there.id} has its unique key"):
        run_now("default", schedule.pk)
    assert Tick.objects.count() == 0
