"""The pages of the admin where there are several shards: each is about one, which its address names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest import mock
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import DataError, OperationalError, connections
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django import Batch, pause_task
from pulse_django.console.dead_letters import groups
from pulse_django.console.jobs import page_window
from pulse_django.console.jobs.admin import JobAdmin
from pulse_django.console.mass import page as mass_page
from pulse_django.console.mass.operation import KIND
from pulse_django.models import Job, Limiter, Pause, Schedule, StoredBatch, Tick, Worker
from pulse_django.queue.words.states import CLAIMABLE, Status
from pulse_django.shards import moving, placement, transfer
from pulse_django.testing import drain
from testproject.shop import tasks
from testproject.shop.models import Order
from tests.console.staff import text as text_of
from tests.console.test_every_page import presence
from tests.faults import all_faults, each_of
from tests.shards.conftest import away, empty_shards
from tests.shards.console import SHARDED, moved
from tests.two_databases import SECOND, SHARDS

pytestmark = [pytest.mark.usefixtures("two_shards"), *SHARDED]
ERROR = "ValueError: no"
LISTS = (
    *("job_changelist", "deadletter_changelist", "queue_changelist", "worker_changelist"),
    *("schedule_changelist", "limiter_changelist", "storedbatch_changelist", "taskoverview_changelist"),
)
BOARD = "board_changelist"
SWITCH = '<nav class="pulse-switch".*?</nav>|<h2 id="pulse-shards".*?</table>'  # what leads to other shards


@pytest.fixture(autouse=True)
def _none_left(operator: Client) -> Iterator[None]:
    yield
    for alias in SHARDS:
        for model in (Tick, Schedule, StoredBatch, Limiter, Pause, Worker):
            model._default_manager.using(alias).all().delete()
        with connections[alias].cursor() as cursor:
            cursor.execute("DELETE FROM pulse_django_minute")


def link(view: str, *args: Any, **query: Any) -> str:
    return reverse(f"admin:pulse_django_{view}", args=args) + (f"?{urlencode(query)}" if query else "")


def die(alias: str, error: str = ERROR, age: int = 60, **fields: Any) -> int:
    """Create a dead letter that died so many seconds ago."""
    job = Job.objects.using(alias).create(task="shop.add", **fields)
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "UPDATE pulse_django_job SET status = 'DEAD_LETTERED', attempts = max_attempts, started_at = created_at,"
            " created_at = now() - %s, finished_at = now() - %s, last_error = %s WHERE id = %s",
            [timedelta(hours=1), timedelta(seconds=age), error, job.pk],
        )
    return job.pk


def schedule(alias: str, name: str) -> Schedule:
    schedules = Schedule.objects.db_manager(alias)
    return schedules.create(name=name, task="shop.echo", args=[1], every=timedelta(hours=1))


def fill(alias: str) -> None:
    """Let each page of a shard have a row that is called after it."""
    Job.objects.using(alias).create(task=f"shop.of_{alias}", queue=f"of-{alias}")
    Job.objects.using(alias).create(
        task=f"shop.of_{alias}", queue=f"of-{alias}", next_run_at="2100-01-01T00:00Z", tags=["one"]
    )
    with connections[alias].cursor() as cursor:
        cursor.execute("UPDATE pulse_django_job SET next_run_at = now() + interval '5 minutes' WHERE tags <> '{}'")
    die(alias, error=f"ValueError: of_{alias}", queue=f"of-{alias}")
    Worker.objects.db_manager(alias).note(presence(f"of_{alias}"))
    schedule(alias, f"of_{alias}")
    Limiter.objects.db_manager(alias).override(f"of_{alias}", {"max_running": 3}, reason="first")
    pause_task(f"shop.other_of_{alias}", reason="why", using=alias)
    Batch.open(f"of_{alias}", using=alias)


def statuses(alias: str) -> list[str]:
    return list(Job.objects.using(alias).filter(task="shop.add").order_by("id").values_list("status", flat=True))


class TestTheShardOfAPage:
    def test_each_list_shows_the_rows_of_the_shard_in_its_address(self, operator: Client) -> None:
        for alias in SHARDS:
            fill(alias)
        with all_faults() as about:
            for name in (*LISTS, BOARD):
                for address, own, other in (
                    (link(name), "default", SECOND),
                    (link(name, shard="default"), "default", SECOND),
                    (link(name, shard=SECOND), SECOND, "default"),
                ):
                    with about(address):
                        page = text_of(operator, address)
                        assert re.search(f"of[_-]{own}", page)
                        assert not re.search(f"of[_-]{other}", page)

    def test_the_switch_leads_to_the_same_list_of_the_others(self, operator: Client) -> None:
        page = text_of(operator, link("job_changelist", queue="mail", older=7, shard=SECOND))
        assert f'<strong aria-current="true">{SECOND}</strong>' in page
        assert '<a href="/admin/pulse_django/job/?queue=mail&amp;shard=default">default</a>' in page
        with override_settings(PULSE={}):
            assert "pulse-switch" not in text_of(operator, link("job_changelist"))

    def test_from_the_page_of_a_row_it_leads_to_the_lists(self, operator: Client) -> None:
        there = tasks.add.using(database=SECOND).enqueue(1, 1)
        page = text_of(operator, link("job_change", there.id, shard=SECOND))
        assert f'<a href="{link("job_changelist", shard="default")}">default</a>' in page

    def test_all_links_and_forms_carry_the_shard(self, operator: Client) -> None:
        fill(SECOND)
        parent = tasks.add.using(database=SECOND).enqueue(1, 1)
        Job.objects.using(SECOND).create(task="shop.add", parent_id=int(parent.id))
        seen, left = set(), [link(name, shard=SECOND) for name in (*LISTS, BOARD)]
        with all_faults() as about:
            while left and len(seen) < 150:
                address = left.pop()
                seen.add(address)
                with about(address):
                    answer = operator.get(address)
                    assert answer.status_code in (200, 302), answer.status_code
                    if answer.status_code == 302:
                        found = [answer["Location"]]
                    elif answer.streaming:
                        continue
                    else:
                        page = re.sub(SWITCH, "", answer.content.decode(), flags=re.DOTALL)
                        links = re.findall(r'\s(?:href|action|formaction)="([^"#]*)', page)
                        found = [one.replace("&amp;", "&") for one in links]
                        forms = re.findall("<form[^>]*method=.get.*?</form>", page, re.DOTALL)
                        assert all(f'name="shard" value="{SECOND}"' in form for form in forms)
                    ours = [one for one in found if one.startswith(("/admin/pulse_django/", "?"))]
                    ours = [one for one in ours if one != "/admin/pulse_django/"]
                    assert [one for one in ours if f"shard={SECOND}" not in one] == []
                    path = address.partition("?")[0]
                    urls = [path + one if one.startswith("?") else one for one in ours]
                    left += [
                        one
                        for one in urls
                        if one not in seen
                        and not re.search("/(act|resume|pause|retry|group/delete|preview|event)/", one)
                    ]
        assert len(seen) > 50

    def test_from_a_page_that_was_posted_the_switch_leads_to_the_lists(self, operator: Client) -> None:
        for alias in SHARDS:
            die(alias)
        for address, data in (
            (link("schedule_preview", shard=SECOND), {"every": "01:00:00"}),
            (link("deadletter_mass", "retry", error=ERROR, shard=SECOND), {"ask": "all"}),
            (link("deadletter_mass", "delete", error=ERROR, shard=SECOND), {"ask": "all"}),
            (link("schedule_add", shard=SECOND), {}),
        ):
            page = operator.post(address, data).content.decode()
            for one in re.findall('<a href="([^"]*)"', re.findall(SWITCH, page, re.DOTALL)[0]):
                text_of(operator, one.replace("&amp;", "&"))

    def test_forms_name_it_though_the_address_does_not(self, operator: Client) -> None:
        fill("default")
        row, job = Schedule.objects.using("default").get(), Job.objects.using("default").first()
        assert job is not None
        with all_faults() as about:
            for address in (link("schedule_add"), link("schedule_change", row.pk), link("job_changelist", q="x")):
                with about(address):
                    forms = re.findall("<form[^>]*method=.post.[^>]*>", text_of(operator, address))
                    ours = [form for form in forms if "logout" not in form and "i18n" not in form]
                    assert ours
                    assert [form for form in ours if "shard=default" not in form] == []

    def test_a_name_that_no_row_can_have_is_not_found(self, operator: Client) -> None:
        with all_faults() as about:
            for settings in ({}, {"SHARDS": SHARDS}):
                for view in ("limiter_change", "limiter_history", "worker_change", "schedule_change"):
                    with about((view, settings)), override_settings(PULSE=settings):
                        assert operator.get(link(view, "\0x")).status_code == 404
                with override_settings(PULSE=settings):
                    assert operator.post(link("limiter_act", "\0x", "reset")).status_code == 404

    def test_a_redirect_carries_it(self, operator: Client) -> None:
        answer = operator.post(
            link("queue_pause", shard=SECOND), {"name": "mail", "seen": "none", "reason": "x", "duration": "0"}
        )
        assert answer["Location"] == link("queue_one", name="mail", shard=SECOND)

    def test_the_page_of_a_row_is_that_of_its_shard(self, operator: Client) -> None:
        fill(SECOND)
        there = tasks.add.using(database=SECOND).enqueue(20, 22)
        pages = {
            "job": there.id,
            "schedule": Schedule.objects.using(SECOND).get().pk,
            "worker": Worker.objects.using(SECOND).get().pk,
            "storedbatch": StoredBatch.objects.using(SECOND).get().pk,
            "limiter": f"of_{SECOND}",
        }
        with all_faults() as about:
            for name, key in pages.items():
                with about(name):
                    quoted = str(key).replace("_", "_5F")
                    for view in ("change", "history"):
                        answer = operator.get(link(f"{name}_{view}", quoted))
                        assert answer["Location"] == link(f"{name}_{view}", quoted, shard=SECOND)
                        text_of(operator, answer["Location"])
        assert operator.get(link("job_change", there.id, shard="default"))["Location"].endswith(f"?shard={SECOND}")

    def test_it_follows_a_job_that_was_moved(self, operator: Client) -> None:
        there = tasks.add.using(database=SECOND).enqueue(20, 22)
        address = link("job_change", there.id, shard=SECOND)
        text_of(operator, address)
        moved(SECOND, "default")
        assert operator.get(address)["Location"] == link("job_change", there.id, shard="default")
        with away(SECOND):
            assert "22" in text_of(operator, link("job_change", there.id, shard="default"))
        data = {"cancel-attempts": 0, "cancel-reason": "no"}
        operator.post(link("job_act", there.id, "cancel", shard=SECOND), data)
        assert Job.objects.using("default").get().status == Status.CANCELLED

    def test_the_log_leads_to_the_queue_of_any_shard(self, operator: Client) -> None:
        Pause.objects.db_manager(SECOND).pause(queue="mail")
        found = operator.get(link("queue_change", "mail", shard=SECOND), follow=True)
        assert found.redirect_chain[-1][0] == link("queue_one", name="mail", shard=SECOND)

    def test_a_name_that_is_no_shard_is_not_found(self, operator: Client) -> None:
        with all_faults() as about:
            for name in ("x", "", "\0", "replica"):
                with about(name):
                    assert operator.get(link("job_changelist", shard=name)).status_code == 404
        with override_settings(PULSE={}):
            assert operator.get(link("job_changelist", shard="x")).status_code == 200

    @each_of("x", "9" * 30, (7 << 48) + 1, (1 << 48) + 999_999)
    def test_an_id_of_no_job_is_no_error(self, operator: Client, *, strange: Any) -> None:
        assert operator.get(link("job_change", strange), follow=True).status_code == 200
        assert operator.get(link("worker_change", strange), follow=True).status_code == 200

    def test_nobody_sees_more_than_with_one(self, operator: Client) -> None:
        there, client = tasks.add.using(database=SECOND).enqueue(2, 2), Client()
        assert "login" in client.get(link("job_change", there.id))["Location"]
        assert SECOND not in client.get(link("job_change", there.id))["Location"]
        client.force_login(User.objects.create_user("staff", is_staff=True))
        assert client.get(link("job_change", there.id)).status_code == 403
        act = link("job_act", there.id, "cancel", shard=SECOND)
        assert client.post(act, {"cancel-attempts": 0, "cancel-reason": "no"}).status_code == 403
        with away(SECOND):
            assert client.get(link("job_change", there.id, shard=SECOND)).status_code == 403


class TestAway:
    SAID = "Shard s2 could not be read: "

    def test_pages_of_a_shard_that_is_away_say_so_and_those_of_others_open(self, operator: Client) -> None:
        there, batch = tasks.add.using(database=SECOND).enqueue(2, 2), Batch.open("one", using=SECOND)
        addresses = [link(name, shard=SECOND) for name in LISTS]
        addresses += [link("queue_one", name="mail", shard=SECOND), link("deadletter_group", error="x", shard=SECOND)]
        addresses += [link("job_change", there.id), link("job_history", there.id), link("storedbatch_change", batch.id)]
        with away(SECOND), all_faults() as about:
            for address in addresses:
                with about(address):
                    answer = operator.get(address, follow=True)
                    assert answer.status_code == 503
                    assert self.SAID in answer.content.decode()
                    assert "Try again when the shard responds." in answer.content.decode()
                    assert "shard=default" in answer.content.decode()
            for name in LISTS:
                with about(name):
                    assert self.SAID not in text_of(operator, link(name))
            acted = operator.post(
                link("queue_pause", shard=SECOND), {"name": "mail", "seen": "none", "reason": "x", "duration": "0"}
            )
        assert acted.status_code == 503
        assert "It is not known whether the action was performed." in acted.content.decode()

    def test_a_job_on_its_way_is_said_to_be(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(placement, "LONGEST_WAIT", 0)
        there = tasks.add.using(database=SECOND).enqueue(2, 2)
        transfer.depart(Job.objects.db_manager(SECOND), moving.movable(Job.objects.using(SECOND).all()), 0)
        answer = operator.get(link("job_change", there.id))
        assert answer.status_code == 503
        assert "left one shard and did not arrive in another" in answer.content.decode()
        moving.finish(SECOND)
        assert operator.get(link("job_change", there.id), follow=True).status_code == 200

    def test_an_error_of_a_shard_that_responds_is_raised(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pulse_django.workflows.console.admin.workflows.batches", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            operator.get(link("storedbatch_changelist", shard=SECOND))

    @pytest.mark.parametrize("is_atomic", [False, True])
    def test_an_error_of_a_statement_is_not_taken_for_a_shard_that_is_away(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch, is_atomic: bool
    ) -> None:
        def ask(alias: str, **_: Any) -> None:
            with connections[alias].cursor() as cursor:
                cursor.execute("SELECT 1 / 0")

        monkeypatch.setattr("pulse_django.workflows.console.admin.workflows.batches", ask)
        monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", is_atomic)
        with pytest.raises(DataError):
            operator.get(link("storedbatch_changelist"))
        with away(SECOND), pytest.raises(DataError):
            operator.get(link("storedbatch_changelist"))

    def test_that_a_shard_is_away_is_logged(self, operator: Client, caplog: pytest.LogCaptureFixture) -> None:
        with away(SECOND):
            operator.get(link("job_changelist", shard=SECOND))
        assert self.SAID in caplog.text

    def test_no_file_of_it_is_begun(self, operator: Client) -> None:
        with away(SECOND), all_faults() as about:
            for name in ("csv", "json"):
                with about(name):
                    answer = operator.get(link("job_export", name, status__exact="PENDING", shard=SECOND))
                    assert answer.status_code == 503
                    assert self.SAID in answer.content.decode()


class TestBoard:
    def rows(self, page: str) -> list[list[str]]:
        table = page.partition('id="pulse-shards"')[2].partition("</table>")[0].partition("<tbody>")[2]
        found = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("</tr>")]
        return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in row] for row in found if row]

    def test_it_has_a_row_for_each_shard(self, operator: Client) -> None:
        for alias, count, enqueued in (("default", 2, 12), (SECOND, 4, 30)):
            for _ in range(count):
                Job.objects.using(alias).create(task="shop.add", queue="mail")
            Worker.objects.db_manager(alias).note(presence("w1"))
            with connections[alias].cursor() as cursor:
                cursor.execute(
                    "INSERT INTO pulse_django_minute (minute, signs) VALUES (date_trunc('minute', now()) - interval"
                    " '1 minute', jsonb_build_object('jobs_enqueued_total', jsonb_build_object('mail', %s::int)))",
                    [enqueued],
                )
        Worker.objects.db_manager(SECOND).note(presence("w2"))
        die(SECOND)
        for address in (link(BOARD), link(BOARD, shard=SECOND)):
            page = text_of(operator, address)
            first, second = self.rows(page)
            assert [*first[:2], *first[3:7], first[8]] == ["default", "0", "2", "0", "0", "12", "1"]
            assert [*second[:2], *second[3:7], second[8]] == [SECOND, "1", "4", "0", "1", "30", "2"]
            assert f'<a href="?shard={SECOND}">{SECOND}</a>' in page

    def test_a_shard_that_is_away_has_its_row(self, operator: Client) -> None:
        Job.objects.create(task="shop.add", queue="mail")
        with away(SECOND):
            pages = [text_of(operator, link(BOARD)), text_of(operator, link(BOARD, shard=SECOND))]
        for page in pages:
            first, second = self.rows(page)
            assert first[3] == "1"
            assert second[:4] == [SECOND, "1", "does not respond", ""]
            assert "Problems" in page
        assert "The rest of this page could not be read" in pages[1]

    def test_with_one_shard_there_are_no_shards(self, operator: Client) -> None:
        with override_settings(PULSE={}), CaptureQueriesContext(connections["default"]) as sent:
            page = text_of(operator, link(BOARD))
        assert not re.search("pulse-shards|pulse-switch", page)
        assert len([one for one in sent if "pulse_django" in one["sql"]]) <= 10


class TestTheListOfJobs:
    @pytest.fixture(autouse=True)
    def _short_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(JobAdmin, "list_per_page", 5)

    def walk(self, client: Client, **query: str) -> list[int]:
        """Follow the links to older pages from the first to the last, and return the ids of all."""
        found, address = [], link("job_changelist", **query)
        while address:
            page = text_of(client, address)
            found += [int(one) for one in re.findall(r'name="_selected_action" value="(\d+)"', page)]
            older = re.findall('<a rel="next" href="([^"]*)"', page)
            address = link("job_changelist") + older[0].replace("&amp;", "&") if older else ""
            assert len(found) < 100, "it does not end"
        return found

    def fill(self) -> list[int]:
        return [Job.objects.using(one).create(task="shop.add").pk for one in ["default", SECOND] * 12]

    def test_pages_hold_each_job_of_the_shard_once(self, operator: Client) -> None:
        ids = self.fill()
        assert self.walk(operator) == ids[::2][::-1]
        assert self.walk(operator, shard=SECOND) == ids[1::2][::-1]
        assert self.walk(operator, shard=SECOND, q="task:add") == ids[1::2][::-1]

    def test_jobs_that_were_moved_are_listed_by_their_ids(self, operator: Client) -> None:
        ids = self.fill()
        moved("default", SECOND, ids=tuple(ids[:6]))
        assert self.walk(operator, shard=SECOND) == sorted([*ids[1::2], *ids[:6:2]], reverse=True)

    def test_a_search_by_windows_ends_with_every_match(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(page_window, "WINDOW", 3)
        ids = self.fill()
        moved("default", SECOND)
        assert self.walk(operator, shard=SECOND, task="shop.add") == sorted(ids, reverse=True)

    @each_of({}, {"older": str(1 << 60)}, {"status__exact": "PENDING"}, {"task": "shop.add"}, {"q": "7"})
    def test_a_shard_is_asked_as_a_single_database_is(self, operator: Client, *, query: Any) -> None:
        empty_shards()
        self.fill()
        with override_settings(PULSE={}):
            alone = self.sent(operator, "default", **query)
        assert len(self.sent(operator, SECOND, shard=SECOND, **query)) == len(alone)
        assert self.sent(operator, "default", shard=SECOND, **query) == []

    def sent(self, client: Client, alias: str, **query: str) -> list[str]:
        with CaptureQueriesContext(connections[alias]) as sent:
            text_of(client, link("job_changelist", **query))
        return [one["sql"] for one in sent if "pulse_django_job" in one["sql"]]


class TestActs:
    """What is done on a page is done in its shard alone."""

    def test_selected_dead_letters_are_retried(self, operator: Client) -> None:
        ids = [die(alias) for alias in SHARDS]
        data: Any = {"action": "retry_dead_letters", "_selected_action": ids}
        page = operator.post(link("job_changelist", shard=SECOND), data, follow=True).content.decode()
        assert "1 retried, 1 no longer matched." in page
        assert [statuses(alias) for alias in SHARDS] == [[Status.DEAD_LETTERED], [Status.PENDING]]

    @pytest.mark.parametrize(("name", "left"), [("retry", [Status.PENDING]), ("delete", [])])
    def test_a_group_is_retried_or_deleted(self, operator: Client, name: str, left: list[Status]) -> None:
        for alias in SHARDS:
            die(alias)
        group = groups.group(SECOND, ERROR)
        assert group is not None
        assert group.letters == 1
        data = {"confirmed": "yes", "asked_at": group.last_seen.isoformat(), "runs": 1, "reason": "old"}
        operator.post(link("deadletter_mass", name, error=ERROR, shard=SECOND), data)
        assert [statuses(alias) for alias in SHARDS] == [[Status.DEAD_LETTERED], left]

    def test_a_change_that_is_rolled_back_is_not_logged(self, operator: Client) -> None:
        die(SECOND)
        refuse = mock.patch.object(connections[SECOND], "_commit", side_effect=OperationalError("refused"))
        with refuse, suppress(OperationalError):
            operator.post(link("deadletter_mass", "retry", error=ERROR, shard=SECOND), {"runs": 1})
        assert statuses(SECOND) == [Status.DEAD_LETTERED]
        assert not LogEntry.objects.exists()

    def test_an_operation_starts_there(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mass_page, "AT_ONCE", -1)
        for alias in SHARDS:
            Job.objects.using(alias).create(task="shop.add", queue="mail")
        address = link("job_mass", "cancel", queue="mail", shard=SECOND)
        assert "this action can change: 1" in text_of(operator, address)
        answer = operator.post(address, {"reason": "no"})
        batch = StoredBatch.objects.using(SECOND).get(kind=KIND)
        assert answer["Location"] == link("storedbatch_change", batch.pk, shard=SECOND)
        assert not StoredBatch.objects.using("default").exists()
        drain(using=SECOND)
        assert set(statuses("default")) <= set(CLAIMABLE)
        assert statuses(SECOND) == [Status.CANCELLED]

    def test_a_file_has_its_jobs(self, operator: Client) -> None:
        ids = [Job.objects.using(alias).create(task="shop.add", queue="mail").pk for alias in SHARDS]
        answer: Any = operator.get(link("job_export", "json", queue="mail", shard=SECOND))
        found = b"".join(answer.streaming_content).decode()
        assert re.findall(r'"id": "?(\d+)', found) == [str(ids[1])]

    def test_a_queue_is_paused_and_resumed(self, operator: Client) -> None:
        data = {"name": "mail", "reason": "why", "duration": "0"}
        page = operator.post(link("queue_pause", shard=SECOND), data, follow=True).content.decode()
        assert "Paused (until resumed): why" in page
        assert [Pause.objects.using(alias).filter(queue="mail").exists() for alias in SHARDS] == [False, True]
        [seen] = re.findall(r'name="seen" value="([^"]*)"', page)
        operator.post(link("queue_resume", shard=SECOND), data | {"seen": seen})
        assert not Pause.objects.using(SECOND).exists()
        assert LogEntry.objects.count() == 2

    def test_a_limit_and_a_task_are_changed(self, operator: Client) -> None:
        for alias in SHARDS:
            Limiter.objects.db_manager(alias).override("mail", {"max_running": 3}, reason="first")
        operator.post(link("limiter_act", "mail", "reset", shard=SECOND))
        assert [Limiter.objects.using(alias).get().override for alias in SHARDS] == [{"max_running": 3}, None]
        data = {"task-task": "shop.add", "task-reason": "x", "task-duration": 600, "task-force": "on"}
        operator.post(link("limiter_pause_task", shard=SECOND), data)
        assert [Pause.objects.using(alias).exists() for alias in SHARDS] == [False, True]
        operator.post(link("limiter_resume_task", shard=SECOND), data)
        assert not Pause.objects.using(SECOND).exists()

    def test_the_log_says_where_it_was_done(self, operator: Client) -> None:
        die(SECOND)
        Limiter.objects.db_manager(SECOND).override("mail", {"max_running": 3}, reason="first")
        task = {"task-task": "shop.add", "task-reason": "x", "task-duration": 600, "task-force": "on"}
        for view, args, data in (
            ("queue_pause", (), {"name": "mail", "seen": "none", "reason": "why", "duration": "0"}),
            ("limiter_act", ("mail", "reset"), {}),
            ("limiter_pause_task", (), task),
            ("deadletter_mass", ("retry",), {"runs": 1}),
        ):
            query = {"error": ERROR} if view == "deadletter_mass" else {}
            operator.post(link(view, *args, shard=SECOND, **query), data)
        said = list(LogEntry.objects.values_list("change_message", flat=True))
        assert len(said) == 4
        assert [one for one in said if not one.endswith(f"({SECOND})")] == []

    def test_a_worker_is_acknowledged_and_asked(self, operator: Client) -> None:
        for alias in SHARDS:
            Worker.objects.db_manager(alias).note(presence("both"))
        row = Worker.objects.using(SECOND).get()
        job = Job.objects.using(SECOND).create(task="shop.add")
        operator.post(link("worker_act_stack", row.pk, shard=SECOND), {"job": job.pk})
        assert [Worker.objects.using(alias).get().stack_wanted for alias in SHARDS] == [None, job.pk]
        for alias in SHARDS:
            Worker.objects.db_manager(alias).mark_lost(-timedelta(minutes=1))
        operator.post(link("worker_act", row.pk, shard=SECOND))
        assert [Worker.objects.using(alias).get().acknowledged_by for alias in SHARDS] == ["", "operator"]

    def test_a_workflow_is_cancelled(self, operator: Client) -> None:
        batch = Batch.open("two", using=SECOND)
        member = batch.add(tasks.add.prepare(1, 1))
        assert f"/job/{member.id}/change/" in text_of(operator, link("storedbatch_change", batch.id, shard=SECOND))
        operator.post(link("storedbatch_act", batch.id, "cancel"), {"cancel-reason": "no"})
        assert Job.objects.using(SECOND).get(pk=member.id).status == Status.CANCELLED


class TestSchedules:
    FORM = {
        "task": "shop.echo", "args": "[1]", "kwargs": "{}", "queue": "", "priority": "", "cron": "", "tz": "",
        "every": "01:00:00", "missed": "skip", "grace": "", "overlap": "allow", "jitter": "0", "reason": "",
    }  # fmt: skip

    def test_one_is_changed_where_it_is_and_created_where_its_jobs_go(self, operator: Client) -> None:
        there, form = schedule(SECOND, "there"), self.FORM | {"name": "there", "priority": "7"}
        assert operator.post(link("schedule_change", there.pk), form).status_code == 302
        assert Schedule.objects.using(SECOND).get().priority == 7
        with override_settings(PULSE={"SHARDS": SHARDS, "QUEUE_SHARDS": {"mail": SECOND}}):
            answer = operator.post(link("schedule_add"), self.FORM | {"name": "new", "queue": "mail"})
        assert answer["Location"] == link("schedule_changelist", shard=SECOND)
        assert Schedule.objects.using(SECOND).filter(name="new").exists()
        assert not Schedule.objects.using("default").exists()
        operator.post(link("schedule_act", there.pk, "run"))
        assert Job.objects.using(SECOND).get().task == "shop.echo"
        assert operator.post(link("schedule_delete", there.pk), {"post": "yes"}).status_code == 302
        assert not Schedule.objects.using(SECOND).filter(name="there").exists()

    def test_a_name_is_taken_once_over_all_shards(self, operator: Client) -> None:
        schedule(SECOND, "there")
        page = operator.post(link("schedule_add"), self.FORM | {"name": "there"}).content.decode()
        assert "Shard s2 has a schedule of this name." in page

    def test_none_is_created_in_a_shard_that_is_away(self, operator: Client) -> None:
        with away(SECOND), override_settings(PULSE={"SHARDS": SHARDS, "QUEUE_SHARDS": {"mail": SECOND}}):
            answer = operator.post(link("schedule_add"), self.FORM | {"name": "new", "queue": "mail"})
        assert answer.status_code == 200
        assert TestAway.SAID in answer.content.decode()


def test_the_page_of_an_object_has_its_jobs_by_shard(operator: Client) -> None:
    order = Order.objects.create(number=1)
    add, address = tasks.add.using(tags=[order]), reverse("admin:shop_order_change", args=[order.pk])
    here, there = add.enqueue(1, 1), add.using(database=SECOND).enqueue(2, 2)
    shown = text_of(operator, address)
    assert shown.index(f">#{here.id}<") < shown.index(f">#{there.id}<")
    assert link("job_change", there.id, shard=SECOND) in shown
    with away(SECOND):
        shown = text_of(operator, address)
    assert f">#{here.id}<" in shown
    assert TestAway.SAID in shown
