"""``pulse_schedules``, and ``run_schedules`` for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import TestCase

from pulse_django import Cron, Every, task
from pulse_django.models import Job, Schedule, Tick
from pulse_django.schedules.verbs import clock
from pulse_django.testing import run_schedules
from tests.faults import each_of
from tests.operations.steps import run, run_json

HOUR = timedelta(hours=1)
RUNS: list[int] = []


@task(name="tests.counted")
def counted(number: int = 0) -> None:
    RUNS.append(number)


@task(name="tests.failing_once_an_hour")
def failing() -> None:
    raise ValueError("again")


call, call_json = partial(run, "pulse_schedules"), partial(run_json, "pulse_schedules")


@pytest.mark.usefixtures("pulse_db")
class TestTheCommand:
    @pytest.fixture(autouse=True)
    def schedule(self, pulse_db: None) -> Schedule:
        return Schedule.objects.create(name="nightly", task=counted, timing=Cron("0 3 * * *", "Europe/Berlin"))

    def test_list(self) -> None:
        assert "nightly  tests.counted  At 03:00 every day (Europe/Berlin)  due in" in call()
        [said] = call_json("list")["schedules"]
        assert (said["name"], said["state"], said["last"]) == ("nightly", "active", None)
        assert call_json("list", "--task", "another")["schedules"] == []

    def test_next(self) -> None:
        assert len(call("next", "nightly", "--count", "3").splitlines()) == 3
        said = call_json("next", "nightly", "--count", "2")["next"]
        assert [datetime.fromisoformat(one["local"]).hour for one in said] == [3, 3]

    def test_run(self) -> None:
        job = call_json("run", "nightly")["job"]
        assert Job.objects.get().pk == job
        assert Tick.objects.get().outcome == "MANUAL"

    def test_pause_and_resume(self) -> None:
        call("pause", "nightly", "--reason", "holiday", "--for", "2h")
        assert "paused: holiday" in call()
        assert call_json("resume", "nightly")["resumed"] is True
        assert call_json("resume", "nightly")["resumed"] is False
        assert call_json()["schedules"][0]["state"] == "active"

    @each_of("next", "run", "pause", "resume")
    def test_a_name_that_there_is_not(self, *, act: Any) -> None:
        with pytest.raises(CommandError, match="No schedule is called 'another'"):
            call(act, "another")

    def test_a_part_of_a_name_is_met_with_the_whole(self) -> None:
        Schedule.objects.create(name="shop.tasks.cleanup", task=counted, timing=Cron("0 3 * * *"))
        for said, meant in (("cleanup", "shop.tasks.cleanup"), ("nihgtly", "nightly")):
            with pytest.raises(CommandError, match=rf"No schedule is called '{said}'\. Did you mean '{meant}'\?"):
                call("run", said)

    def test_what_cannot_be_run_is_an_error(self) -> None:
        Schedule.objects.update(task="nobody.knows")
        with pytest.raises(CommandError, match=r"nobody\.knows"):
            call("run", "nightly")

    def test_names_from_rows_are_made_inert(self) -> None:
        Schedule.objects.update(name="a\x1b[2Jb")
        assert "\x1b" not in call()


class TestRunSchedules(TestCase):
    """In Django's TestCase, as a project writes it."""

    def setUp(self) -> None:
        RUNS.clear()

    def test_every_tick_until_then_runs_or_leaves_its_job_waiting(self) -> None:
        Schedule.objects.create(name="hourly", task=counted, timing=Every(HOUR), kwargs={"number": 7})
        fired = run_schedules(until=timedelta(hours=3), names=["hourly"])
        assert [one.outcome for one in fired] == ["FIRED"] * 3
        assert RUNS == [7] * 3
        fired = run_schedules(until=timedelta(hours=6), names=["hourly"], run_jobs=False)
        assert {one.outcome for one in fired} == {"FIRED", "OVERLAP"}
        assert Job.objects.filter(status="PENDING").count() == 1

    def test_a_job_that_is_retried_is_not_finished(self) -> None:
        Schedule.objects.create(name="failing", task=failing, timing=Every(HOUR))
        fired = run_schedules(until=timedelta(hours=2), names=["failing"], failures="keep")
        assert [one.outcome for one in fired] == ["FIRED", "OVERLAP"]

    def test_an_instant_may_be_given(self) -> None:
        Schedule.objects.create(name="yearly", task=counted, timing=Cron("0 0 1 1 *", "UTC"))
        year = clock("default").year
        [first] = run_schedules(until=datetime(year + 1, 6, 1, tzinfo=UTC), names=["yearly"])
        assert first.at == datetime(year + 1, 1, 1, tzinfo=UTC)
