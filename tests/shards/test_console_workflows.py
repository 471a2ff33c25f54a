"""The pages of workflows, schedules and limits over several shards."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings
from django.urls import reverse

from pulse_django import Batch, pause_task
from pulse_django.fleet import workflows
from pulse_django.models import Job, Limiter, PausedKey, Schedule, StoredBatch, Tick
from pulse_django.words.limiting import lane_key
from pulse_django.words.states import Status
from testproject.shop import tasks
from tests.faults import all_faults
from tests.shards.conftest import away, empty_shards
from tests.shards.console import SHARDED
from tests.two_databases import SECOND, SHARDS

pytestmark = SHARDED
EVERYWHERE = list(SHARDS)
AWAY = "Shard s2 could not be read: "


@pytest.fixture(autouse=True)
def _none_left(operator: Client) -> Any:
    yield
    for alias in EVERYWHERE:
        for model in (Tick, Schedule, StoredBatch, Limiter, PausedKey):
            model._default_manager.using(alias).all().delete()


def link(name: str, *args: Any) -> str:
    return reverse(f"admin:pulse_django_{name}", args=args)


class TestWorkflows:
    LIST = link("storedbatch_changelist")

    def opened(self, pattern: str) -> list[int]:
        return [Batch.open("one", using={"a": "default", "b": SECOND}[letter]).id for letter in pattern]

    def test_pages_hold_each_once_and_the_newest_first(self, operator: Client) -> None:
        with all_faults() as about:
            for pattern in ["abbabaab", "aaaabbbb", "bbbbaaaa", "aaaaa", "bbbbb", "ab"]:
                with about(pattern), pytest.MonkeyPatch.context() as patch:
                    empty_shards()
                    patch.setattr(workflows, "PAGE", 3)
                    ids, found, address = self.opened(pattern), [], "?"
                    while address:
                        page = operator.get(self.LIST + address).content.decode()
                        found += [int(one) for one in re.findall(r"/storedbatch/(\d+)/change/", page)]
                        older = re.findall(r'<a href="(\?[^"]*before=[^"]*)"', page)
                        address = older[0].replace("&amp;", "&") if older else ""
                        assert len(found) <= len(ids)
                    assert found == ids[::-1]

    def test_the_list_names_shards(self, operator: Client) -> None:
        self.opened("ab")
        page = operator.get(self.LIST).content.decode()
        assert "<td>default</td>" in page
        assert "<td>s2</td>" in page

    def test_a_page_and_its_acts_reach_the_shard(self, operator: Client) -> None:
        batch = Batch.open("two", using=SECOND)
        member = batch.add(tasks.add.prepare(1, 1))
        page = operator.get(link("storedbatch_change", batch.id)).content.decode()
        assert f"/job/{member.id}/change/" in page
        assert link("storedbatch_change", batch.id) in operator.get(link("job_change", member.id)).content.decode()
        assert operator.get(link("storedbatch_history", batch.id)).status_code == 200
        operator.post(link("storedbatch_act", batch.id, "cancel"), {"cancel-why": "no"})
        assert Job.objects.using(SECOND).get(pk=member.id).status == Status.CANCELLED

    def test_a_shard_that_is_away_is_named(self, operator: Client) -> None:
        here, there = self.opened("ab")
        with away(SECOND):
            answers = [operator.get(one) for one in (self.LIST, link("storedbatch_change", there))]
        assert [one.status_code for one in answers] == [200, 503]
        assert all(AWAY in one.content.decode() for one in answers)
        assert f"/storedbatch/{here}/change/" in answers[0].content.decode()


class TestSchedules:
    LIST = link("schedule_changelist")

    def create(self, alias: str, name: str) -> Schedule:
        schedules = Schedule.objects.db_manager(alias)
        return schedules.create(name=name, task="shop.echo", args=[1], every=timedelta(hours=1))

    def test_the_list_holds_those_of_all_shards_by_name(self, operator: Client) -> None:
        self.create(SECOND, "b"), self.create("default", "c"), self.create("default", "a")
        page = operator.get(self.LIST).content.decode()
        assert re.findall(r'/change/[^"]*">(\w)</a>', page) == ["a", "b", "c"]
        assert re.findall(r'field-stored_in">(\w+)<', page) == ["default", SECOND, "default"]
        searched = operator.get(self.LIST, {"q": "b"}).content.decode()
        assert re.findall(r'/change/[^"]*">(\w)</a>', searched) == ["b"]
        assert operator.get(self.LIST, {"state": "paused"}).status_code == 200

    def test_a_page_and_its_acts_reach_the_shard(self, operator: Client) -> None:
        there = self.create(SECOND, "there")
        page = operator.get(link("schedule_change", there.pk)).content.decode()
        assert 'value="there"' in page
        operator.post(link("schedule_act", there.pk, "pause"), {"pause-reason": "no", "pause-lasting": 0})
        assert Schedule.objects.using(SECOND).get().paused_at is not None
        operator.post(link("schedule_act", there.pk, "run"))
        assert Job.objects.using(SECOND).get().task == "shop.echo"
        assert operator.get(link("schedule_history", there.pk)).status_code == 200
        assert operator.post(link("schedule_delete", there.pk), {"post": "yes"}).status_code == 302
        assert not Schedule.objects.using(SECOND).exists()

    def test_it_is_changed_where_it_is_and_created_where_its_jobs_go(self, operator: Client) -> None:
        there, form = self.create(SECOND, "there"), self.form(name="there", priority="7")
        assert operator.post(link("schedule_change", there.pk), form).status_code == 302
        assert Schedule.objects.using(SECOND).get().priority == 7
        with override_settings(PULSE={"SHARDS": SHARDS, "QUEUE_SHARDS": {"mail": SECOND}}):
            answer = operator.post(link("schedule_add"), self.form(name="new", queue="mail"))
        assert answer.status_code == 302, answer.content.decode()
        assert Schedule.objects.using(SECOND).filter(name="new").exists()
        assert not Schedule.objects.using("default").exists()

    def test_a_name_is_taken_once_over_all_shards(self, operator: Client) -> None:
        self.create(SECOND, "there")
        page = operator.post(link("schedule_add"), self.form(name="there")).content.decode()
        assert "Shard s2 has a schedule of this name." in page

    def test_a_shard_that_is_away_is_named(self, operator: Client) -> None:
        self.create("default", "here")
        there = self.create(SECOND, "there")
        with away(SECOND):
            answers = [operator.get(one) for one in (self.LIST, link("schedule_change", there.pk))]
            with override_settings(PULSE={"SHARDS": SHARDS, "QUEUE_SHARDS": {"mail": SECOND}}):
                added = operator.post(link("schedule_add"), self.form(name="new", queue="mail"))
        assert [one.status_code for one in answers] == [200, 503]
        assert ">here</a>" in answers[0].content.decode()
        assert added.status_code == 200
        assert all(AWAY in one.content.decode() for one in [*answers, added])

    def form(self, **fields: str) -> dict[str, str]:
        return {
            "task": "shop.echo", "args": "[1]", "kwargs": "{}", "queue": "", "priority": "", "cron": "", "tz": "",
            "every": "01:00:00", "missed": "skip", "grace": "", "overlap": "allow", "jitter": "0", "why": "",
        } | fields  # fmt: skip


class TestLimits:
    LIST = link("limiter_changelist")

    def limit(self, *aliases: str) -> None:
        for alias in aliases:
            Limiter.objects.db_manager(alias).override("mail", {"running": 3}, reason="first")

    def numbers(self) -> dict[str, Any]:
        return {alias: Limiter.objects.using(alias).get().override for alias in EVERYWHERE}

    def test_the_list_says_the_shard_of_each(self, operator: Client) -> None:
        self.limit(*EVERYWHERE)
        PausedKey.objects.db_manager(SECOND).pause(lane_key("mail", "7"), reason="why")
        page = operator.get(self.LIST).content.decode()
        assert "<td>default</td>" in page
        assert f"{link('limiter_change', 'mail')}?shard={SECOND}" in page

    def test_the_page_is_that_of_the_shard_that_is_named(self, operator: Client) -> None:
        self.limit(*EVERYWHERE)
        Limiter.objects.db_manager(SECOND).close("mail", for_=timedelta(minutes=5), reason="only there")
        here = operator.get(link("limiter_change", "mail")).content.decode()
        there = operator.get(link("limiter_change", "mail"), {"shard": SECOND}).content.decode()
        assert "only there" not in here
        assert "only there" in there
        assert operator.get(link("limiter_change", "none")).status_code == 404

    def test_one_that_a_single_shard_has_is_found_there(self, operator: Client) -> None:
        self.limit(SECOND)
        assert operator.get(link("limiter_change", "mail")).status_code == 200

    def test_one_that_a_shard_has_which_is_away_may_be_there(self, operator: Client) -> None:
        self.limit(SECOND)
        with away(SECOND):
            shown = operator.get(link("limiter_change", "mail"))
            acted = operator.post(link("limiter_act", "mail", "reset"))
        assert [shown.status_code, acted.status_code] == [503, 503]
        assert AWAY in shown.content.decode()
        assert "Try again when the shard responds." in shown.content.decode()
        assert "It is not known whether this was done." in acted.content.decode()

    def test_shards_in_which_nothing_was_changed_are_named(self, operator: Client) -> None:
        self.limit(*EVERYWHERE)
        Limiter.objects.db_manager(SECOND).close("mail", for_=timedelta(hours=5), reason="longer")
        close = {"close-reason": "x", "close-lasting": 600}
        page = operator.post(link("limiter_act", "mail", "close"), close, follow=True).content.decode()
        assert f"(nothing was changed in {SECOND})" in page
        [entry] = LogEntry.objects.all()
        assert entry.object_repr == "mail"
        pause_task("shop.add", for_=timedelta(hours=5), reason="longer", using=SECOND)
        data = {"task-task": "shop.add", "task-reason": "x", "task-lasting": 600, "task-force": "on"}
        page = operator.post(link("limiter_pause_task"), data, follow=True).content.decode()
        assert f"(nothing was changed in {SECOND})" in page

    def test_acts_hold_in_all_shards_that_have_it(self, operator: Client) -> None:
        self.limit(*EVERYWHERE)
        change = {"running": 5, "per": 60, "key_per": 60, "lasting": 0, "reason": "why"}
        operator.post(link("limiter_act", "mail", "change"), change)
        assert self.numbers() == {alias: {"running": 5} for alias in EVERYWHERE}
        operator.post(link("limiter_act", "mail", "close"), {"close-reason": "x", "close-lasting": 600})
        assert all(Limiter.objects.using(alias).get().closed_until for alias in EVERYWHERE)
        operator.post(link("limiter_act", "mail", "open"))
        assert not any(Limiter.objects.using(alias).get().closed_until for alias in EVERYWHERE)
        pause = {"pause-key": "7", "pause-lasting": 600, "pause-reason": "x"}
        operator.post(link("limiter_act", "mail", "pause"), pause)
        assert all(PausedKey.objects.using(alias).exists() for alias in EVERYWHERE)
        operator.post(link("limiter_act", "mail", "resume"), {"lane_key": lane_key("mail", "7")})
        assert not any(PausedKey.objects.using(alias).exists() for alias in EVERYWHERE)
        operator.post(link("limiter_act", "mail", "reset"))
        assert self.numbers() == dict.fromkeys(EVERYWHERE)

    def test_a_wrong_form_is_told_once(self, operator: Client) -> None:
        self.limit(*EVERYWHERE)
        page = operator.post(link("limiter_act", "mail", "change"), {}, follow=True).content.decode()
        assert page.count('class="error"') == 1

    def test_a_task_is_paused_in_all_shards_and_listed_once(self, operator: Client) -> None:
        data = {"task-task": "shop.add", "task-reason": "x", "task-lasting": 600, "task-force": "on"}
        operator.post(link("limiter_pause_task"), data)
        assert all(PausedKey.objects.using(alias).exists() for alias in EVERYWHERE)
        assert operator.get(self.LIST).content.decode().count('<th scope="row">shop.add</th>') == 1
        operator.post(link("limiter_resume_task"), data)
        assert not any(PausedKey.objects.using(alias).exists() for alias in EVERYWHERE)

    def test_a_shard_that_is_away_knows_no_name(self, operator: Client) -> None:
        data = {"task-task": "shop.tasks.add", "task-reason": "x", "task-lasting": 600}
        with away(SECOND):
            page = operator.post(link("limiter_pause_task"), data, follow=True).content.decode()
        assert "No task is called shop.tasks.add. Did you mean testproject.shop.tasks.add?" in page
        assert not PausedKey.objects.exists()

    def test_a_shard_that_is_away_is_named(self, operator: Client) -> None:
        self.limit(*EVERYWHERE)
        data = {"task-task": "shop.add", "task-reason": "x", "task-lasting": 600, "task-force": "on"}
        with away(SECOND):
            answers = [
                operator.get(self.LIST),
                operator.get(link("limiter_change", "mail")),
                operator.post(link("limiter_act", "mail", "reset"), follow=True),
                operator.post(link("limiter_pause_task"), data, follow=True),
            ]
        assert all(one.status_code == 200 for one in answers)
        assert all(AWAY in one.content.decode() for one in answers)
        assert self.numbers() == {"default": None, SECOND: {"running": 3}}
        assert PausedKey.objects.using("default").exists()
