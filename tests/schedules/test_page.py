"""Schedules in the admin: the list, the page, the buttons, the form and the preview."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from pulse_django import Cron, Every, task
from pulse_django.models import Job, Schedule, Tick
from pulse_django.queue.declarations import Declarer
from pulse_django.queue.words.states import Status
from pulse_django.schedules import facts
from pulse_django.schedules.definitions import Definition
from pulse_django.schedules.forms import ScheduleForm
from pulse_django.schedules.ticking import tick_due
from pulse_django.schedules.verbs import clock
from tests.console.staff import staff
from tests.console.staff import text as page
from tests.factories import make_job
from tests.faults import each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
MAY_CHANGE = (
    "pulse_view_schedules",
    "pulse_change_schedules",
    "pulse_add_schedules",
    "pulse_delete_schedules",
    "pulse_view_arguments",
    "pulse_view_jobs",
)


@task(name="tests.report")
def report(customer: int = 0) -> int:
    return customer


@task(name="tests.secret_report", sensitive=("password",))
def secret_report(password: str = "") -> None: ...


def nightly(**fields: Any) -> Schedule:
    return Schedule.objects.create(
        **{"name": "nightly", "task": report, "timing": Cron("0 3 * * *", "Europe/Berlin"), **fields}
    )


def from_code(**fields: Any) -> Schedule:
    definition = Definition(name="nightly", task="tests.report", timing=Every(HOUR), **fields)
    declarer = Declarer("project", "w:1", clock("default"))
    Schedule.objects.declare(declarer, [definition], silence=timedelta(minutes=1))
    return Schedule.objects.get()


def url(view: str, *args: Any) -> str:
    return reverse(f"admin:pulse_django_schedule_{view}", args=args)


def form(**fields: Any) -> dict[str, Any]:
    given = {"name": "nightly", "task": "tests.report", "args": "[]", "kwargs": "{}", "missed": "once"}
    return {**given, "overlap": "skip", "cron": "0 3 * * *", "tz": "Europe/Berlin", **fields}


class TestTheList:
    def test_it_shows_when_and_what_became_of_the_last_and_marks_an_overdue_one(self) -> None:
        schedule = nightly(name="hourly", timing=Every(HOUR))
        Schedule.objects.filter(pk=schedule.pk).update(next_at=clock("default") - timedelta(seconds=1))
        tick_due("default")
        nightly()
        late = nightly(name="late")
        Schedule.objects.filter(pk=late.pk).update(next_at=clock("default") - HOUR)
        shown = page(staff(*MAY_CHANGE), url("changelist"))
        assert "At 03:00 every day (Europe/Berlin)" in shown
        assert "Pending" in shown
        assert "in " in shown
        assert "overdue for 1h" in shown

    def test_it_needs_as_many_queries_however_many_rows(self, django_assert_max_num_queries: Any) -> None:
        for number in range(30):
            nightly(name=f"customer {number}")
        client = staff(*MAY_CHANGE)
        with django_assert_max_num_queries(12):
            client.get(url("changelist"))

    @each_of("paused", "gone", "changed", around=undone)
    def test_states_can_be_filtered(self, *, state: Any) -> None:
        nightly()
        assert "nightly" not in page(staff(*MAY_CHANGE), f"{url('changelist')}?state={state}").split("result_list")[-1]


class TestThePage:
    def test_it_shows_the_next_ten_instants(self) -> None:
        shown = page(staff(*MAY_CHANGE), url("change", nightly().pk))
        assert len(re.findall(r">\w{3} \d{4}-\d\d-\d\d 03:00:00 CES?T</time></td>", shown)) == 10

    def test_changes_of_clocks_are_marked(self) -> None:
        schedule = nightly()
        schedule.next_at = datetime(2026, 10, 23, 1, tzinfo=UTC)
        found = facts.next_instants(schedule, datetime(2026, 10, 22, 12, tzinfo=UTC), 4)
        assert [f"{one.local:%d %H:%M %Z}" for one in found] == [
            "23 03:00 CEST",
            "24 03:00 CEST",
            "25 03:00 CET",
            "26 03:00 CET",
        ]
        assert [one.changes for one in found] == [False, False, True, False]

    def test_it_shows_the_last_ticks_with_their_jobs(self) -> None:
        schedule = nightly(timing=Every(HOUR))
        Schedule.objects.update(next_at=clock("default") - timedelta(seconds=1))
        tick_due("default")
        job = Job.objects.get()
        shown = page(staff(*MAY_CHANGE), url("change", schedule.pk))
        assert reverse("admin:pulse_django_job_changelist") + f"{job.pk}/change/" in shown
        assert "FIRED" in shown

    def test_a_tick_is_not_an_hour_late_because_clocks_changed(self, settings: Any) -> None:
        settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
        at, second = datetime(2026, 10, 25, 0, 59, 59, tzinfo=UTC), timedelta(seconds=1)
        job = make_job(Status.COMPLETED, started_at=at, finished_at=at + second)
        schedule = nightly()
        Tick.objects.create(schedule=schedule, at=at, outcome="FIRED", job_id=job.pk, decided_at=at + second)
        [tick] = facts.recent("default", [schedule.pk])[schedule.pk]
        assert (tick.at, tick.late, tick.took) == (at, second, second)

    def test_arguments_are_not_shown_if_they_are_masked_or_their_reader_may_see_none(self) -> None:
        secret = nightly(name="secret", task=secret_report, kwargs={"password": "hunter2"})
        assert "hunter2" not in page(staff(*MAY_CHANGE), url("change", secret.pk))
        User.objects.all().delete()
        may = [one for one in MAY_CHANGE if one != "pulse_view_arguments"]
        assert "4711" not in page(staff(*may), url("change", nightly(kwargs={"customer": 4711}).pk))


class TestActs:
    def act(self, client: Client, schedule: Schedule, name: str, **data: Any) -> None:
        fields = {f"{name}-{field}": value for field, value in data.items()}
        assert client.post(url("act", schedule.pk, name), fields).status_code == 302

    def test_run_now(self) -> None:
        schedule, client = nightly(), staff(*MAY_CHANGE)
        self.act(client, schedule, "run")
        assert Tick.objects.get().note == "by operator"
        assert Job.objects.count() == 1
        assert "Ran now" in LogEntry.objects.get().change_message

    def test_pause_and_resume(self) -> None:
        schedule, client = nightly(), staff(*MAY_CHANGE)
        self.act(client, schedule, "pause", reason="holiday", duration=3600)
        schedule.refresh_from_db()
        assert (schedule.pause_reason, schedule.changed_by) == ("holiday", "operator")
        assert "holiday" in page(client, url("change", schedule.pk))
        self.act(client, schedule, "resume")
        assert url("act", schedule.pk, "resume") not in page(client, url("change", schedule.pk))
        assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
            "Paused (1 hour): holiday",
            "Resumed",
        ]

    def test_a_pause_needs_a_reason(self) -> None:
        schedule = nightly()
        self.act(staff(*MAY_CHANGE), schedule, "pause", reason="", duration=0)
        schedule.refresh_from_db()
        assert schedule.paused_at is None

    def test_back_to_the_code(self) -> None:
        schedule, client = from_code(), staff(*MAY_CHANGE)
        Schedule.objects.change(schedule.pk, {"queue": "slow"}, by="ada", reason="for now")
        assert "for now" in page(client, url("change", schedule.pk))
        self.act(client, schedule, "follow-code")
        schedule.refresh_from_db()
        assert (schedule.queue, schedule.overrides) == (None, {})

    def test_those_who_may_only_look_cannot_act(self) -> None:
        schedule, client = nightly(), staff("pulse_view_schedules")
        for name in ("run", "pause", "resume", "follow-code"):
            assert client.post(url("act", schedule.pk, name)).status_code == 403
        assert Job.objects.count() == 0


class TestEditing:
    def test_a_schedule_can_be_created(self) -> None:
        client = staff(*MAY_CHANGE)
        assert client.post(url("add"), form(kwargs='{"customer": 7}')).status_code == 302
        schedule = Schedule.objects.get()
        assert (schedule.cron, schedule.kwargs, schedule.changed_by) == ("0 3 * * *", {"customer": 7}, "operator")
        assert schedule.next_at is not None

    def test_instants_are_local_in_a_project_without_time_zones(self, settings: Any) -> None:
        settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
        at = datetime(2031, 7, 1, 12, tzinfo=UTC)
        client, address = staff(*MAY_CHANGE), url("change", nightly(starts_at=at).pk)
        shown = page(client, address)
        assert 'value="14:00:00"' in shown
        assert shown.count("Wed 2031-07-02 03:00:00 CEST") == 2  # in the zone of the schedule, and of the page
        assert client.post(address, form(starts_at_0="2031-07-01", starts_at_1="14:00:00")).status_code == 302
        assert Schedule.objects.get().starts_at == at
        User.objects.all().delete()
        assert "July 1, 2031, 2 p.m." in page(staff("pulse_view_schedules"), address)

    @each_of(
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"tz": "Nowhere/Land"}, "is no time zone"),
        ({"kwargs": '{"colour": "red"}'}, "colour"),
        ({"every": "01:00:00"}, "either cron or every"),
        ({"cron": "0 0 30 2 *"}, "never due|Bad day"),
        around=undone,
    )
    def test_what_could_never_run_is_refused_on_the_page(self, *, fields: Any, says: Any) -> None:
        response = staff(*MAY_CHANGE).post(url("add"), form(**fields))
        assert response.status_code == 200
        assert re.search(says, response.content.decode())
        assert Schedule.objects.count() == 0

    def test_a_change_of_a_schedule_of_the_code_is_an_override_with_who_and_why(self) -> None:
        schedule = from_code()
        data = form(cron="", tz="", every="02:00:00", reason="too often")
        assert staff(*MAY_CHANGE).post(url("change", schedule.pk), data).status_code == 302
        schedule.refresh_from_db()
        override = schedule.overrides["timing"]
        assert (schedule.every, override["by"], override["reason"]) == (2 * HOUR, "operator", "too often")

    def test_it_cannot_be_deleted_while_the_code_declares_it(self) -> None:
        schedule, client = from_code(), staff(*MAY_CHANGE)
        assert client.post(url("delete", schedule.pk), {"post": "yes"}).status_code == 403
        own = nightly(name="own")
        assert client.post(url("delete", own.pk), {"post": "yes"}).status_code == 302
        assert Schedule.objects.get() == schedule

    def test_the_preview_saves_nothing(self) -> None:
        response = staff(*MAY_CHANGE).post(url("preview"), form())
        shown = response.content.decode()
        assert "03:00:00" in shown
        assert Schedule.objects.count() == 0
        assert "Bad minute" in staff_again(url("preview"), form(cron="61 * * * *"))


def staff_again(address: str, data: dict[str, Any]) -> str:
    client = Client()
    client.force_login(User.objects.get(username="operator"))
    return client.post(address, data).content.decode()


class TestTheFormOfAProject:
    def test_a_quota_bounds_what_one_owner_has(self) -> None:
        options: dict[str, Any] = {"owner": "customer:1", "quota": 1, "tasks": ["tests.report"]}
        first = ScheduleForm(form(name="one"), **options)
        assert first.is_valid(), first.errors
        assert first.save().owner == "customer:1"
        second = ScheduleForm(form(name="two"), **options)
        assert not second.is_valid()
        assert "at most 1" in str(second.errors)
        other = ScheduleForm(form(name="two"), **{**options, "owner": "customer:2"})
        assert other.is_valid()
        other.save()

    def test_two_requests_do_not_both_get_the_last_place(self) -> None:
        options: dict[str, Any] = {"owner": "customer:1", "quota": 1}
        first, second = (ScheduleForm(form(name=name), **options) for name in ("one", "two"))
        assert first.is_valid()
        assert second.is_valid()
        first.save()
        with pytest.raises(ValidationError, match="at most 1"):
            second.save()

    def test_other_tasks_cannot_be_chosen(self) -> None:
        assert not ScheduleForm(form(), tasks=["shop.echo"]).is_valid()
