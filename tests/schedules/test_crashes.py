"""Schedules with real workers: they fire, they survive deaths, and they follow the code of a rolling deploy."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from pulse_django.models import Job, Schedule, Tick
from tests.crash.workers import Workers, wait_until
from tests.schedules.versions import noted

VERSIONS: dict[str, Any] = {"TASK_MODULES": ["tests.schedules.versions"], "LEASE_TTL": 3, "WATCHDOG_INTERVAL": 0.3}


def started(workers: Workers, version: str) -> Any:
    return workers.ready(settings=VERSIONS, env={"PULSE_TEST_VERSION": version})


def said(version: str) -> bool:
    return Job.objects.filter(result=version).exists()


def test_two_versions_of_the_code_do_not_take_turns(workers: Workers) -> None:
    old = started(workers, "1")
    wait_until(lambda: said("1"))
    assert set(Schedule.objects.filter(gone_at=None).values_list("name", flat=True)) == {
        "versions.both",
        "versions.old",
    }
    new = started(workers, "2")
    wait_until(lambda: said("2"))
    seen = Job.objects.filter(result="2").earliest("id").pk
    wait_until(lambda: Job.objects.filter(result="2").count() >= 4)
    assert not Job.objects.filter(pk__gt=seen, kwargs={"version": "1"}).exists()
    assert set(Schedule.objects.filter(gone_at=None).values_list("name", flat=True)) == {
        "versions.both",
        "versions.new",
    }
    assert old.stop() == 0
    wait_until(lambda: Job.objects.filter(result="2").count() >= 6)
    assert not Job.objects.filter(pk__gt=seen, kwargs={"version": "1"}).exists()
    assert new.popen.poll() is None


def test_every_tick_fires_once_though_workers_are_killed(workers: Workers) -> None:
    first, _second = started(workers, "1"), started(workers, "1")
    wait_until(lambda: said("1"))
    first.kill()
    since = Tick.objects.count()
    wait_until(lambda: Tick.objects.count() >= since + 4)
    ticks = list(Tick.objects.filter(schedule__name="versions.both").order_by("at").values_list("at", "outcome"))
    gaps = {round((later[0] - earlier[0]).total_seconds()) for earlier, later in pairwise(ticks)}
    assert gaps == {1}
    assert all(outcome in ("FIRED", "OVERLAP") for _, outcome in ticks)
    fired = Tick.objects.filter(outcome="FIRED")
    assert Job.objects.filter(task="versions.noted").count() == fired.count() == len(set(fired.values_list("job_id")))


def test_a_schedule_made_at_run_time_begins_by_itself(workers: Workers) -> None:
    workers.ready(settings=VERSIONS)
    Schedule.objects.create(name="theirs", task=noted, kwargs={"version": "theirs"}, every=timedelta(seconds=1))
    wait_until(lambda: said("theirs"))
