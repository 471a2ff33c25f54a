"""The schedules follow the code: what it declares, what people changed of it, and two versions at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse_django import Cron, Every, task
from pulse_django import Schedule as Declared
from pulse_django.exceptions import InvalidSchedule
from pulse_django.models import Declaration, Schedule, Tick
from pulse_django.queue.declarations import Declarer
from pulse_django.run.registry import registry
from pulse_django.schedules import declarations
from pulse_django.schedules.definitions import Definition
from pulse_django.schedules.ticking import tick_due
from pulse_django.schedules.verbs import clock
from tests.factories import WorkerFactory

pytestmark = pytest.mark.usefixtures("pulse_db")

HOUR, SILENCE = timedelta(hours=1), timedelta(minutes=1)


@task(name="tests.declared")
def work(customer: int = 0) -> int:
    return customer


def nightly() -> None: ...


def defined(name: str = "nightly", **fields: Any) -> Definition:
    given = {"task": "tests.declared", "timing": Cron("0 3 * * *", "Europe/Berlin"), **fields}
    return Definition(name=name, **given)


def declare(
    *definitions: Definition, worker: str = "w:1", booted: timedelta = timedelta(), scope: str = "project"
) -> bool:
    """Declare as a worker that started so long after now."""
    declarer = Declarer(scope, worker, clock("default") + booted)
    answer: bool = Schedule.objects.declare(declarer, definitions, silence=SILENCE)
    return answer


def one(name: str = "nightly") -> Schedule:
    return Schedule.objects.get(name=name)


class TestFollowing:
    def test_what_is_declared_is_there(self) -> None:
        assert declare(defined(kwargs={"customer": 3}))
        row = one()
        assert (row.task, row.cron, row.tz, row.kwargs) == (
            "tests.declared",
            "0 3 * * *",
            "Europe/Berlin",
            {"customer": 3},
        )
        assert row.next_at is not None
        assert row.next_at > clock("default")

    def test_declaring_the_same_again_writes_nothing(self) -> None:
        declare(defined())
        before, said = one(), Declaration.objects.get()
        declare(defined())
        after = one()
        assert (after.changed_at, after.next_at) == (before.changed_at, before.next_at)
        assert Declaration.objects.get().declared_at == said.declared_at

    def test_what_was_deleted_by_hand_comes_back(self) -> None:
        declare(defined())
        one().delete()
        declare(defined())
        assert one().next_at is not None

    def test_a_change_of_the_code_arrives(self) -> None:
        declare(defined())
        declare(defined(timing=Every(HOUR), kwargs={"customer": 4}))
        row = one()
        assert (row.cron, row.every, row.kwargs) == (None, HOUR, {"customer": 4})

    def test_only_a_change_of_the_time_moves_the_next_instant(self) -> None:
        declare(defined(timing=Every(HOUR)))
        Schedule.objects.update(next_at=clock("default") - timedelta(seconds=1))
        declare(defined(timing=Every(HOUR), kwargs={"customer": 4}))
        assert len(tick_due("default").job_ids) == 1

    def test_what_is_gone_from_the_code_stops_and_keeps_its_history(self) -> None:
        declare(defined(timing=Every(HOUR)))
        Schedule.objects.update(next_at=clock("default") - timedelta(seconds=1))
        tick_due("default")
        declare()
        row = one()
        assert row.gone_at is not None
        assert row.next_at is None
        assert Tick.objects.count() == 1
        assert tick_due("default").schedules == 0

    def test_what_comes_back_never_fires_for_before(self) -> None:
        declare(defined(timing=Every(HOUR, missed="all", overlap="allow")))
        declare()
        declare(defined(timing=Every(HOUR, missed="all", overlap="allow")))
        row = one()
        assert row.gone_at is None
        assert row.next_at is not None
        assert row.next_at > clock("default")

    def test_schedules_made_at_run_time_are_left_alone_and_keep_their_name(self) -> None:
        for name in ("theirs", "nightly"):
            Schedule.objects.create(name=name, task=work, timing=Every(HOUR))
        declare(defined())
        declare()
        for name in ("theirs", "nightly"):
            row = one(name)
            assert (row.gone_at, row.every, row.declared) == (None, HOUR, None)

    def test_another_project_in_the_same_database_has_its_own(self) -> None:
        declare(defined("ours"), scope="ours.settings")
        declare(defined("theirs"), scope="theirs.settings", worker="v:1")
        declare(defined("ours"), scope="ours.settings")
        assert one("ours").gone_at is None
        assert one("theirs").gone_at is None

    @pytest.mark.parametrize("zone", ["Asia/Kathmandu", "Europe/Berlin"])
    def test_they_fire_in_a_project_without_time_zones(self, zone: str, settings: Any) -> None:
        settings.USE_TZ, settings.TIME_ZONE = False, zone
        for worker in ("w:1", "w:2"):
            declare(defined(timing=Every(HOUR)), worker=worker)
        Schedule.objects.create(name="at run time", task="tests.declared", timing=Every(HOUR))
        due = one().next_at
        assert due is not None
        tick_due("default", until=due)
        assert list(Tick.objects.values_list("outcome", flat=True)) == ["FIRED", "FIRED"]
        settings.USE_TZ = True
        assert one().last_at == due

    def test_clocks_that_are_set_back_or_forward_move_no_instant_of_a_project_without_time_zones(
        self, settings: Any
    ) -> None:
        settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
        declare(defined(timing=Every(HOUR)))
        changes = (datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2027, 3, 28, 1, tzinfo=UTC))
        for change in changes:
            before, after = change - HOUR / 2, change + HOUR / 3
            Schedule.objects.update(next_at=before, last_at=after)
            row = one()
            assert (row.next_at, row.last_at) == (before, after)
            assert row.last_at - row.next_at == after - before
            assert row.next_at < row.last_at


class TestOverrides:
    def test_people_win_field_by_field(self) -> None:
        declare(defined(kwargs={"customer": 1}))
        row = one()
        row.kwargs = {"customer": 9}
        row.save(by="ada", reason="the tax office asked")
        declare(defined(timing=Cron("0 4 * * *", "Europe/Berlin"), kwargs={"customer": 2}))
        row = one()
        assert (row.cron, row.kwargs) == ("0 4 * * *", {"customer": 9})
        assert (row.overrides["kwargs"]["by"], row.overrides["kwargs"]["reason"]) == ("ada", "the tax office asked")
        assert row.changed_by in ("", "ada")

    def test_back_to_the_codes(self) -> None:
        declare(defined(kwargs={"customer": 1}))
        Schedule.objects.change(one().pk, {"kwargs": {"customer": 9}, "queue": "slow"}, by="ada")
        Schedule.objects.follow_code(one().pk, ["kwargs"])
        row = one()
        assert (row.kwargs, row.queue, list(row.overrides)) == ({"customer": 1}, "slow", ["queue"])
        Schedule.objects.follow_code(row.pk)
        assert (one().queue, one().overrides) == (None, {})

    def test_what_equals_the_code_is_no_override(self) -> None:
        declare(defined(kwargs={"customer": 1}))
        Schedule.objects.change(one().pk, {"kwargs": {"customer": 1}}, by="ada")
        assert one().overrides == {}

    def test_an_override_that_could_never_run_is_refused(self) -> None:
        declare(defined())
        with pytest.raises(InvalidSchedule, match="colour"):
            Schedule.objects.change(one().pk, {"kwargs": {"colour": "red"}})
        with pytest.raises(InvalidSchedule, match="cannot be changed"):
            Schedule.objects.change(one().pk, {"task": "another"})
        assert one().overrides == {}

    def test_a_changed_time_is_overridden_as_a_whole(self) -> None:
        declare(defined())
        row = one()
        row.cron, row.tz, row.every = None, None, HOUR
        row.save(by="ada")
        row = one()
        assert (row.every, row.overrides["timing"]["value"]) == (HOUR, {"every": 3600.0, "phase": 0.0})
        Schedule.objects.follow_code(row.pk)
        assert (one().cron, one().every) == ("0 3 * * *", None)


class TestTwoVersions:
    OLD, NEW = defined(kwargs={"customer": 1}), defined(kwargs={"customer": 2})

    def test_a_worker_that_started_later_wins_and_the_earlier_does_not_write_back(self) -> None:
        WorkerFactory(name="old", boot_id="1")
        WorkerFactory(name="new", boot_id="2")
        assert declare(self.OLD, worker="old:1")
        assert declare(self.NEW, worker="new:2", booted=timedelta(seconds=1))
        for _ in range(3):
            assert not declare(self.OLD, worker="old:1", booted=timedelta(seconds=-1))
        assert one().kwargs == {"customer": 2}

    def test_once_the_declarer_is_gone_the_next_worker_declares(self) -> None:
        """An old worker was started again in the middle of the deploy, and ended with it."""
        WorkerFactory(name="new", boot_id="2")
        restarted = WorkerFactory(name="old", boot_id="3")
        declare(self.NEW, worker="new:2")
        declare(self.OLD, worker="old:3", booted=timedelta(seconds=1))
        assert not declare(self.NEW, worker="new:2", booted=timedelta(seconds=-1))
        type(restarted).objects.filter(pk=restarted.pk).update(stopped_at=clock("default"))
        Declaration.objects.update(declared_at=clock("default") - 2 * SILENCE)
        assert declare(self.NEW, worker="new:2", booted=timedelta(seconds=-1))
        assert one().kwargs == {"customer": 2}


class TestWritingThemDown:
    @pytest.fixture(autouse=True)
    def clean(self) -> Iterator[None]:
        yield
        for name in ("warm", "cold"):
            declarations.forget(name)
        registry._tasks.pop("tests.with_schedule", None)

    def test_several_of_one_task(self) -> None:
        Declared("warm", task=work, every=HOUR, kwargs={"customer": 1})
        Declared("cold", Cron("0 3 * * *"), task=work, queue="slow")
        found = {one.name: one for one in declarations.declared()[0]}
        assert found["warm"].timing == Every(HOUR)
        assert found["cold"].queue == "slow"

    def test_the_schedule_of_a_task_has_its_name(self) -> None:
        task(name="tests.with_schedule", schedule=Cron("0 3 * * *", tz="Europe/Berlin", missed="skip"))(nightly)
        [found] = [one for one in declarations.declared()[0] if one.name == "tests.with_schedule"]
        assert found.timing == Cron("0 3 * * *", tz="Europe/Berlin", missed="skip")

    def test_what_can_never_be_due_is_refused_at_import(self) -> None:
        for wrong in ({}, {"every": HOUR, "timing": Every(HOUR)}, {"every": timedelta(0)}, {"every": "5"}):
            with pytest.raises(InvalidSchedule):
                Declared("warm", task=work, **wrong)  # type: ignore[arg-type]
        for expression in ("61 * * * *", "* * *", "0 0 30 2 *", "", "@reboot"):
            with pytest.raises(InvalidSchedule):
                Cron(expression)
        with pytest.raises(InvalidSchedule, match="missed"):
            Cron("0 3 * * *", missed="maybe")

    def test_two_tasks_cannot_have_schedules_of_one_name(self) -> None:
        other = task(name="tests.with_schedule")(nightly)
        Declared("warm", task=work, every=HOUR)
        Declared("warm", task=work, every=2 * HOUR)  # its module was loaded again
        with pytest.raises(InvalidSchedule, match="Two schedules"):
            Declared("warm", task=other, every=HOUR)

    def test_the_class_leads_to_the_rows(self) -> None:
        assert Declared.objects is Schedule.objects or Declared.objects.model is Schedule
