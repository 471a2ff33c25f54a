"""The pages of workflows, schedules and limits over several shards."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from pulse_django import Batch
from pulse_django.fleet import workflows
from pulse_django.models import Job, Limiter, PausedKey, Schedule, StoredBatch, Tick
from pulse_django.words.states import Status
from testproject.shop import tasks
from tests.shards.conftest import away
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

    @pytest.mark.parametrize("pattern", ["abbabaab", "aaaabbbb", "bbbbaaaa", "aaaaa", "bbbbb", "ab"])
    def test_pages_hold_each_once_and_the_newest_first(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch, pattern: str
    ) -> None:
        monkeypatch.setattr(workflows, "PAGE", 3)
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
        member = tasks.add.using(batch=batch).enqueue(1, 1)
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
