"""The board and the pages of queues and workers over several shards."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import OperationalError, connections
from django.db.models import Model, QuerySet
from django.test import Client, RequestFactory, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.console.board.facts import BoardFacts, gather
from pulse_django.console.shards import Shards
from pulse_django.console.workers import over_shards
from pulse_django.models import Job, Minute, Queue, Worker
from pulse_django.store import traffic
from pulse_django.store.queues import QueueManager
from pulse_django.store.workers import Presence
from pulse_django.words.counters import TrafficCounts, TrafficKind
from tests.faults import all_faults
from tests.shards.conftest import away
from tests.shards.console import SHARDED
from tests.shards.test_console_dead_letters import die
from tests.two_databases import SECOND, SHARDS

pytestmark = SHARDED
BOARD = reverse("admin:pulse_django_board_changelist")
EVERYWHERE = list(SHARDS)


@pytest.fixture(autouse=True)
def _none_left(operator: Client) -> Any:
    yield
    for alias in EVERYWHERE:
        for model in (Queue, Worker):
            model.objects.using(alias).all().delete()
        with connections[alias].cursor() as cursor:
            cursor.execute("DELETE FROM pulse_django_minute")


def fill() -> None:
    for alias, count in (("default", 2), (SECOND, 3)):
        for _ in range(count):
            Job.objects.using(alias).create(task="shop.add", queue="mail")
    Job.objects.using(SECOND).create(task="shop.add", queue="only-there")


def minute(alias: str, enqueued: int) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "INSERT INTO pulse_django_minute (minute, signs) VALUES (date_trunc('minute', now()) - interval '1 minute',"
            " jsonb_build_object('jobs_enqueued_total', jsonb_build_object('mail', %s::int)))",
            [enqueued],
        )


def presence(name: str, **said: Any) -> Presence:
    facts = {"versions": {}, "queues": [], "slots": 8, "in_flight": 3, "stuck_slots": 0}
    return Presence(name=name, boot_id="b", host="host", pid=1, **(facts | said))  # type: ignore[arg-type]


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table in a section of the board."""
    table = page.partition(f'id="{heading}"')[2].partition("</table>")[0].partition("<tbody>")[2]
    found = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("</tr>")]
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in row] for row in found if row]


def lost_for(model: type[Model]) -> Any:
    """Return a ``get()`` that finds the connection lost for rows of one model."""
    get = QuerySet.get

    def lost(rows: Any, *args: Any, **options: Any) -> Any:
        if rows.model is model:
            raise OperationalError("the connection is lost")
        return get(rows, *args, **options)

    return lost


def board() -> BoardFacts:
    request = RequestFactory().get(BOARD)
    request.user = User(is_superuser=True)
    return gather(request, "admin", Shards(EVERYWHERE))


class TestBoard:
    def test_it_has_a_row_for_each_shard(self, operator: Client) -> None:
        fill()
        die(SECOND)
        for alias, enqueued in (("default", 12), (SECOND, 30)):
            minute(alias, enqueued)
            Worker.objects.db_manager(alias).note(presence("w1"))
        Worker.objects.db_manager(SECOND).note(presence("w2"))
        page = operator.get(BOARD).content.decode()
        first, second = rows(page, "pulse-shards")
        assert [*first[:2], *first[3:7], first[8]] == ["default", "0", "2", "0", "0", "12", "1"]
        assert [*second[:2], *second[3:7], second[8]] == [SECOND, "1", "4", "0", "1", "30", "2"]

    def test_queues_are_added_up_and_workers_told_once(self, operator: Client) -> None:
        fill()
        for alias, enqueued in (("default", 12), (SECOND, 30)):
            minute(alias, enqueued)
            Worker.objects.db_manager(alias).note(presence("w1"))
            begin = Minute.objects.using(alias).latest("minute").minute
            traffic.write(alias, begin, {(TrafficKind.QUEUE, "mail"): TrafficCounts(enqueued=enqueued)})
        page = operator.get(BOARD).content.decode()
        queues = {row[0]: row for row in rows(page, "pulse-queues")}
        assert queues["mail"][1] == "5"
        assert queues["mail"][6] == "42"
        assert queues["only-there"][1] == "1"
        [worker] = rows(page, "pulse-workers")
        assert worker[0] == "w1"
        assert worker[4] == "3"
        assert worker[-1] == "default, s2"

    def test_a_finding_names_its_shard(self, operator: Client) -> None:
        with connections[SECOND].cursor() as cursor:
            cursor.execute("INSERT INTO pulse_django_limiter (name, numbers) VALUES ('x', '{}')")
        die(SECOND)
        found = board().alarms
        assert found
        assert {one.shard for one in found} <= set(EVERYWHERE)
        with connections[SECOND].cursor() as cursor:
            cursor.execute("DELETE FROM pulse_django_limiter")

    def test_a_shard_that_is_away_has_its_row(self, operator: Client) -> None:
        fill()
        with away(SECOND):
            answer = operator.get(BOARD)
        page = answer.content.decode()
        assert answer.status_code == 200
        assert "Shard s2 could not be read: " in page
        first, second = rows(page, "pulse-shards")
        assert first[3] == "2"
        assert second[:4] == [SECOND, "1", "does not respond", ""]
        assert "Problems" in page
        assert {row[0]: row[1] for row in rows(page, "pulse-queues")} == {"mail": "2"}

    def test_with_one_shard_there_are_no_shards(self, operator: Client) -> None:
        fill()
        with override_settings(PULSE={}), CaptureQueriesContext(connections["default"]) as sent:
            page = operator.get(BOARD).content.decode()
        assert not re.search("pulse-shards|>Shards<", page)
        assert len([one for one in sent if "pulse_django" in one["sql"]]) <= 10


class TestQueues:
    LIST = reverse("admin:pulse_django_queue_changelist")

    def one(self, name: str) -> str:
        return f"{reverse('admin:pulse_django_queue_one')}?name={name}"

    def act(self, client: Client, name: str, act: str, seen: str | None = None) -> str:
        if seen is None:
            seen = self.seen(client, name)
        data = {"name": name, "seen": seen, "reason": "why", "lasting": "0"}
        return client.post(reverse(f"admin:pulse_django_queue_{act}"), data, follow=True).content.decode()

    def seen(self, client: Client, name: str) -> str:
        [seen] = set(re.findall(r'name="seen" value="([^"]*)"', client.get(self.one(name)).content.decode()))
        return seen

    def paused(self) -> dict[str, bool]:
        return {
            alias: Queue.objects.using(alias).filter(name="mail", paused_at__isnull=False).exists()
            for alias in EVERYWHERE
        }

    def test_the_list_adds_up(self, operator: Client) -> None:
        fill()
        Queue.objects.db_manager(SECOND).pause("only-there", reason="why")
        page = operator.get(self.LIST).content.decode()
        found = {row[0]: row for row in rows(page.replace('<div class="pulse-wide">', '<div id="t">', 1), "t")}
        assert found["mail"][1] == "5"
        assert found["only-there"][-1].startswith("Paused (s2): why")

    def test_a_queue_is_paused_and_resumed_in_all_shards(self, operator: Client) -> None:
        fill()
        assert "Paused (until resumed): why" in self.act(operator, "mail", "pause")
        assert self.paused() == {"default": True, SECOND: True}
        assert "Not paused" not in operator.get(self.one("mail")).content.decode()
        assert "Resumed: why" in self.act(operator, "mail", "resume")
        assert self.paused() == {"default": False, SECOND: False}
        assert "Not paused" in operator.get(self.one("mail")).content.decode()
        assert LogEntry.objects.count() == 2

    def test_one_that_is_paused_in_one_shard_is_resumed_there(self, operator: Client) -> None:
        Queue.objects.db_manager(SECOND).pause("mail", reason="there")
        assert "Paused" in operator.get(self.one("mail")).content.decode()
        assert "Resumed" in self.act(operator, "mail", "resume")
        assert self.paused() == {"default": False, SECOND: False}

    def test_what_somebody_else_did_meanwhile_stays(self, operator: Client) -> None:
        seen = self.seen(operator, "mail")
        Queue.objects.db_manager(SECOND).pause("mail", reason="theirs")
        page = self.act(operator, "mail", "pause", seen)
        assert "Another user has paused or resumed the queue in the meantime in shard s2." in page
        assert Queue.objects.using(SECOND).get(name="mail").pause_reason == "theirs"
        assert Queue.objects.using("default").get(name="mail").pause_reason == "why"
        page = self.act(operator, "mail", "pause", seen)
        assert "Nothing was changed." in page

    def test_a_form_that_does_not_say_what_it_saw_changes_nothing(self, operator: Client) -> None:
        with all_faults() as about:
            for seen in ["", "none", "x", "0=none 1=x", "0=none", "9=none", "=", "0"]:
                with about(seen):
                    self.act(operator, "mail", "pause", seen)
                    assert not self.paused()[SECOND]

    def test_a_shard_that_is_away_is_named(self, operator: Client) -> None:
        fill()
        seen = self.seen(operator, "mail")
        with away(SECOND):
            pages = [operator.get(self.LIST).content.decode(), operator.get(self.one("mail")).content.decode()]
            pages.append(self.act(operator, "mail", "pause", seen))
        assert all("Shard s2 could not be read: " in page for page in pages)
        assert self.paused() == {"default": True, SECOND: False}

    def test_no_other_user_is_named_where_no_shard_responds(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = self.seen(operator, "mail")

        def lost(*_args: Any, **_options: Any) -> bool:
            raise OperationalError("the connection is lost")

        monkeypatch.setattr(QueueManager, "pause", lost)
        page = self.act(operator, "mail", "pause", seen)
        assert "Another user" not in page
        assert "Shard default could not be read: " in page

    def test_a_shard_that_was_missing_on_the_page_is_named_and_can_be_paused_then(self, operator: Client) -> None:
        fill()
        with away(SECOND):
            seen = self.seen(operator, "mail")
        missing = "Shard s2 was missing on the page that was shown. Nothing was changed there."
        assert missing in self.act(operator, "mail", "pause", seen)
        assert self.paused() == {"default": True, SECOND: False}
        page = operator.get(self.one("mail")).content.decode()
        assert 'queue/resume/"' in page
        assert 'queue/pause/"' in page
        assert missing not in self.act(operator, "mail", "pause")
        assert self.paused() == {"default": True, SECOND: True}
        assert 'queue/pause/"' not in operator.get(self.one("mail")).content.decode()

    def test_what_was_done_is_told_though_the_shard_is_lost_after_it(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = self.seen(operator, "mail")
        with monkeypatch.context() as patched:
            patched.setattr("django.db.models.query.QuerySet.get", lost_for(Queue))
            page = self.act(operator, "mail", "pause", seen)
        assert "Paused (until resumed): why" in page
        assert self.paused() == {"default": True, SECOND: True}
        assert LogEntry.objects.count() == 1

    def test_the_log_leads_to_the_queue_of_any_shard(self, operator: Client) -> None:
        Queue.objects.db_manager(SECOND).pause("mail")
        pk = Queue.objects.using(SECOND).get().pk
        answer = operator.get(reverse("admin:pulse_django_queue_change", args=[pk]))
        assert answer["Location"].endswith("?name=mail")


class TestWorkers:
    LIST = reverse("admin:pulse_django_worker_changelist")

    def test_one_that_serves_several_shards_is_listed_once(self, operator: Client) -> None:
        for alias in EVERYWHERE:
            Worker.objects.db_manager(alias).note(presence("both"))
        Worker.objects.db_manager(SECOND).note(presence("there"))
        page = operator.get(self.LIST).content.decode()
        assert page.count(">both</a>") == page.count(">there</a>") == 1
        assert "default, s2" in page
        assert operator.get(self.LIST, {"host": "nowhere"}).content.decode().count("</a></th>") == 0
        for one in Worker.objects.using(SECOND).all():
            assert operator.get(reverse("admin:pulse_django_worker_change", args=[one.pk])).status_code == 200

    def test_its_page_shows_what_it_runs_in_all_shards(self, operator: Client) -> None:
        ids = []
        for alias in EVERYWHERE:
            Worker.objects.db_manager(alias).note(presence("both"))
            job = Job.objects.using(alias).create(task="shop.add")
            with connections[alias].cursor() as cursor:
                cursor.execute(
                    "UPDATE pulse_django_job SET status = 'RUNNING', locked_by = 'both:b:1', attempts = 1,"
                    " started_at = now(), lease_until = now() + interval '1 minute', token = 1 WHERE id = %s",
                    [job.pk],
                )
            ids.append(job.pk)
        for alias in EVERYWHERE:
            address = reverse("admin:pulse_django_worker_change", args=[Worker.objects.using(alias).get().pk])
            page = operator.get(address).content.decode()
            assert all(f"/job/{one}/change/" in page for one in ids)

    def test_that_more_are_there_is_said(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(over_shards, "MOST_LISTED", 1)
        said = "Only the first 1 of each shard are shown."
        Worker.objects.db_manager(SECOND).note(presence("one"))
        assert said not in operator.get(self.LIST).content.decode()
        Worker.objects.db_manager(SECOND).note(presence("two"))
        assert operator.get(self.LIST).content.decode().count(said) == 1

    def test_a_shard_that_is_away_is_named(self, operator: Client) -> None:
        for alias in EVERYWHERE:
            Worker.objects.db_manager(alias).note(presence("both"))
        here = reverse("admin:pulse_django_worker_change", args=[Worker.objects.using("default").get().pk])
        there = reverse("admin:pulse_django_worker_change", args=[Worker.objects.using(SECOND).get().pk])
        with away(SECOND):
            answers = [operator.get(one) for one in (self.LIST, here, there)]
        assert [one.status_code for one in answers] == [200, 200, 503]
        assert all("Shard s2 could not be read: " in one.content.decode() for one in answers)
