"""Arguments that are masked, or that a user may not see, come out nowhere: by a schedule, a search, a key or a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings
from django.urls import reverse

from pulse_django import Cron, Unique, amend, task
from pulse_django.console.mass import page as mass_page
from pulse_django.console.mass.operation import KIND
from pulse_django.models import Job, Pause, Schedule, StoredBatch
from pulse_django.run.registry import registry
from tests.console.staff import staff
from tests.console.test_job_list import found
from tests.factories import make_job
from tests.faults import all_faults, each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db

CARD = "4111-CARD"
EDITOR = ("pulse_view_schedules", "pulse_change_schedules", "pulse_view_arguments")


@task(name="hidden.pay", sensitive=("card",))
def pay(card: str = "") -> None: ...


@task(name="hidden.echo")
def echo(card: str = "") -> str:
    return card


@task(name="hidden.find", searchable=["email"], unique=Unique(by=["email"]), fair_by="email")
def find(email: str = "", **options: Any) -> None: ...


@task(name="hidden.find_too", searchable=["email"])
def find_too(email: str = "") -> None: ...


@pytest.fixture
def declared_again(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Deploy a task with another declaration."""

    def declare(**options: Any) -> None:
        monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))
        registry._tasks["hidden.find"] = task(name="hidden.find_now", **options)(find.func)

    return declare


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Deploy a release without a task."""

    def forget(key: str) -> None:
        monkeypatch.setattr(registry, "_tasks", {name: one for name, one in registry._tasks.items() if name != key})

    return forget


class TestSchedules:
    def daily(self, of: Any, **kwargs: Any) -> Schedule:
        return Schedule.objects.create(name="x", task=of, kwargs=kwargs or {"card": CARD}, timing=Cron("0 3 * * *"))

    def page(self, client: Client, schedule: Schedule) -> str:
        return client.get(reverse("admin:pulse_django_schedule_change", args=[schedule.pk])).content.decode()

    def post(self, client: Client, schedule: Schedule, **fields: Any) -> str:
        url = reverse("admin:pulse_django_schedule_change", args=[schedule.pk])
        given = {
            "name": "x",
            "task": "hidden.pay",
            "missed": "once",
            "overlap": "skip",
            "cron": "0 3 * * *",
            "tz": "UTC",
        }
        return client.post(url, given | fields, follow=True).content.decode()

    @each_of({"task": "hidden.echo"}, {"task": "hidden.echo", "args": "[]", "kwargs": "{}"})
    def test_another_task_does_not_show_what_the_first_hides(self, *, fields: Any) -> None:
        with undone():
            client = staff(*EDITOR)
            schedule = Schedule.objects.create(name="x", task=pay, kwargs={"card": CARD}, timing=Cron("0 3 * * *"))
            said = self.post(client, schedule, **fields)
            assert "are hidden" in said
            assert CARD not in said + self.page(client, schedule)
            assert Schedule.objects.get().task == "hidden.pay"

    def test_nor_for_who_may_not_see_arguments(self) -> None:
        client = staff("pulse_view_schedules", "pulse_change_schedules")
        schedule = self.daily(echo)
        assert "are hidden" in self.post(client, schedule, task="hidden.find_too")

    def test_the_task_can_be_changed_where_nothing_is_hidden(self) -> None:
        client = staff(*EDITOR)
        cases = [(pay, {}, {}), (echo, {"card": "A"}, {"args": "[]", "kwargs": '{"email": "B"}'})]
        with all_faults() as about:
            for first, kwargs, given in cases:
                with about((first, kwargs)), undone():
                    schedule = Schedule.objects.create(name="x", task=first, kwargs=kwargs, timing=Cron("0 3 * * *"))
                    self.post(client, schedule, task="hidden.find_too", **given)
                    assert Schedule.objects.get().task == "hidden.find_too"

    def test_of_a_task_that_is_not_known_here_nothing_is_shown(self, forgotten: Callable[[str], None]) -> None:
        schedule = self.daily(echo)
        client = staff(*EDITOR)
        assert CARD in self.page(client, schedule)
        forgotten("hidden.echo")
        assert CARD not in self.page(client, schedule)
        assert "are hidden" in self.post(client, schedule, task="hidden.find_too")

    def test_nor_of_one_that_is_encrypted_now(self) -> None:
        schedule = self.daily(echo)
        with override_settings(PULSE={"ENCRYPT_ALL": True}):
            assert CARD not in self.page(staff(*EDITOR), schedule)


class TestTheSearch:
    def test_it_does_not_confirm_what_is_masked_now(
        self, admin_client: Client, declared_again: Callable[..., None]
    ) -> None:
        find.enqueue(4711)
        [own] = Job.objects.values_list("pk", flat=True)
        assert found(admin_client, q="email:4711") == [own]
        assert found(admin_client, q="4711") == [own]
        declared_again(sensitive=("email",))
        other = Job.objects.get(pk=find_too.enqueue(4711).id)
        for text in ("email:4711", "4711"):
            assert found(admin_client, q=text) == [other.pk], "that of the task that shows it"

    def test_nor_what_is_masked_as_a_part_of_all_options(
        self, admin_client: Client, declared_again: Callable[..., None]
    ) -> None:
        declared_again(sensitive=("options",), searchable=["pin"])
        make_job(task="hidden.find", kwargs={"pin": 4711}, search_terms=["pin:4711"])
        for text in ("pin:4711", "4711"):
            assert found(admin_client, q=text) == []

    def test_nor_what_was_masked_when_the_job_was_enqueued(self, admin_client: Client) -> None:
        """The mask stays on the job, also when it is amended under a declaration that searches the argument."""
        job = Job.objects.get(pk=find.enqueue(1).id)
        Job.objects.filter(pk=job.pk).update(sensitive='{"names":["email"]}')
        assert amend(job.pk, kwargs={"email": 4711}, args=[]).refused is None
        for text in ("email:4711", "4711"):
            assert found(admin_client, q=text) == []

    def test_nor_of_a_task_that_is_not_known_here(self, admin_client: Client, forgotten: Callable[[str], None]) -> None:
        find.enqueue(4711)
        forgotten("hidden.find")
        assert found(admin_client, q="email:4711") == []

    def test_nor_does_the_count_of_an_operation(
        self, admin_client: Client, declared_again: Callable[..., None]
    ) -> None:
        find.enqueue(4711)
        url = reverse("admin:pulse_django_job_mass", args=["cancel"])
        assert "this action can change: 1" in admin_client.get(url, {"q": "email:4711"}).content.decode()
        declared_again(sensitive=("email",))
        assert "this action can change: 1" not in admin_client.get(url, {"q": "email:4711"}).content.decode()


class TestKeys:
    @pytest.fixture
    def job(self) -> Iterator[Job]:
        """A job with a unique key and a key of its limit, which is paused."""
        job = Job.objects.get(pk=find.enqueue(4711).id)
        Pause.objects.pause(lane_key=job.lane_key, reason="they owe us")
        assert str(job.unique_key)
        return job

    def page(self, client: Client, job: Job) -> str:
        return client.get(reverse("admin:pulse_django_job_change", args=[job.pk])).content.decode()

    def test_the_page_of_a_job_shows_its_keys_to_who_may_see_arguments(self, job: Job, admin_client: Client) -> None:
        shown = self.page(admin_client, job)
        assert str(job.unique_key) in shown
        assert "The key 4711 is paused" in shown

    def test_and_to_nobody_else(self, job: Job) -> None:
        shown = self.page(staff("pulse_view_jobs"), job)
        assert str(job.unique_key) not in shown
        assert "4711" not in shown
        assert "is paused until it is resumed" in shown
        assert "they owe us" in shown

    def test_nor_once_the_argument_is_masked(
        self, job: Job, admin_client: Client, declared_again: Callable[..., None]
    ) -> None:
        declared_again(sensitive=("email",))
        shown = self.page(admin_client, job)
        assert str(job.unique_key) not in shown
        assert "4711" not in shown

    def test_nor_the_key_of_a_period(self) -> None:
        once = task(name="hidden.hourly", unique=Unique(by=["card"], per=timedelta(hours=1)))(echo.func)
        job = Job.objects.get(pk=once.enqueue("4711").id)
        shown = self.page(staff("pulse_view_jobs"), job)
        assert "no other one before" not in shown


def test_the_name_of_an_operation_does_not_repeat_what_was_searched(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mass_page, "AT_ONCE", -1)
    texts = ['email:"4711 x"', "email:4711", "EMAIL:4711 error:Timeout", 'error:x "a b" email:4711 task:mail']
    with all_faults() as about:
        for text in texts:
            with about(text), undone():
                url = reverse("admin:pulse_django_job_mass", args=["cancel"])
                assert admin_client.post(f"{url}?{'q=' + text}", {"reason": "x"}).status_code == 302
                batch = StoredBatch.objects.get(kind=KIND)
                assert "4711" not in batch.name
                assert "4711" not in LogEntry.objects.latest("pk").change_message
                assert ("error" in text) == ("error" in batch.name), "the rest is said"
                page = reverse("admin:pulse_django_storedbatch_change", args=[batch.pk])
                client = staff("pulse_view_jobs", "pulse_view_workflows")
                assert "4711" not in client.get(page).content.decode()
