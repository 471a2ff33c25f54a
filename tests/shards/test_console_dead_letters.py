"""Dead letters in the admin, and operations on many jobs, over several shards."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry
from django.db import OperationalError, connections
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.console.dead_letters import groups, mass_actions, over_shards
from pulse_django.console.mass.page import KIND
from pulse_django.console.shards import Shards
from pulse_django.models import Job, StoredBatch
from pulse_django.testing import drain
from pulse_django.words.states import CLAIMABLE, Status
from tests.shards.conftest import away
from tests.shards.console import SHARDED
from tests.two_databases import SECOND, SHARDS

pytestmark = SHARDED
GROUPS = reverse("admin:pulse_django_deadletter_changelist")
ERROR = "ValueError: no"
EVERYWHERE = list(SHARDS)


def url(name: str, error: str = ERROR, **params: str) -> str:
    return f"{reverse(f'admin:pulse_django_deadletter_{name}')}?{urlencode({'error': error} | params)}"


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


def until() -> str:
    group = over_shards.group_in(Shards(EVERYWHERE), ERROR)
    assert group is not None
    return group.newest.name


def statuses(alias: str) -> list[str]:
    return list(Job.objects.using(alias).filter(task="shop.add").order_by("id").values_list("status", flat=True))


class TestGroups:
    def test_the_same_error_is_one_group_over_all_shards(self, operator: Client) -> None:
        oldest, newest = die("default", age=500), die(SECOND, age=10)
        die(SECOND, age=100)
        die("default", error="KeyError: here", age=50)
        die(SECOND, error="KeyError: there", age=70)
        found = over_shards.groups_in(Shards(EVERYWHERE))
        assert [(one.fingerprint, one.letters) for one in found.groups] == [
            (ERROR, 3), ("KeyError: here", 1), ("KeyError: there", 1),
        ]  # fmt: skip
        group = found.groups[0]
        assert (group.latest_id, group.alias, group.has_more) == (newest, SECOND, False)
        assert 480 < (group.now - group.first_seen).total_seconds() < 520
        assert 0 < (group.now - group.last_seen).total_seconds() < 30
        page = operator.get(GROUPS).content.decode()
        assert page.count("ValueError: no</a>") == 1
        shown = operator.get(url("group")).content.decode()
        assert f"/job/{oldest}/change/" in shown
        assert f"/job/{newest}/change/" in shown

    def test_one_that_a_shard_does_not_know_is_counted_there_all_the_same(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(groups, "MOST_GROUPS", 2)
        for alias in EVERYWHERE:
            for letter in "abcd":
                die(alias, error=f"ValueError: {letter}", age=ord(letter))
        found = over_shards.groups_in(Shards(EVERYWHERE))
        assert {one.letters for one in found.groups} == {2}
        assert found.is_partial

    def test_pages_of_groups_and_letters_hold_each_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(over_shards, "GROUPS_ON_A_PAGE", 2)
        monkeypatch.setattr(over_shards, "LETTERS_ON_A_PAGE", 2)
        monkeypatch.setattr(groups, "LETTERS_ON_A_PAGE", 2)
        words = ["a", "b", "c", "d", "e"]
        ids = [die(EVERYWHERE[n % 2], error=f"ValueError: {one}", age=10 + n) for n, one in enumerate(words)]
        everywhere, found = Shards(EVERYWHERE), []
        for page in range(3):
            answer = over_shards.groups_in(everywhere, page=page)
            found += [one.latest_id for one in answer.groups]
            assert answer.has_older == (page < 2)
        assert found == ids
        ids = [die(EVERYWHERE[n * n % 3 % 2], age=10 + n) for n in range(7)]
        letters, has_older = over_shards.letters_in(everywhere, ERROR)
        seen = [one.id for one in letters]
        while has_older:
            letters, has_older = over_shards.letters_in(everywhere, ERROR, before=letters[-1].place)
            seen += [one.id for one in letters]
        assert seen == ids

    def test_one_shard_is_asked_once(self, operator: Client) -> None:
        die("default")
        with override_settings(PULSE={}), CaptureQueriesContext(connections["default"]) as sent:
            operator.get(GROUPS)
        assert len([one for one in sent if "DEAD_LETTERED" in one["sql"]]) == 1


class TestActs:
    def test_a_group_is_retried_in_each_shard_and_told_in_sum(self, operator: Client) -> None:
        die("default")
        die(SECOND)
        die(SECOND)
        other = die(SECOND, error="KeyError: other")
        data = {"confirmed": "yes", "scope": "all", "until": until(), "runs": 1}
        page = operator.post(url("retry"), data, follow=True).content.decode()
        assert "3 retried, 0 no longer matched." in page
        assert statuses("default") == [Status.PENDING]
        assert statuses(SECOND) == [Status.PENDING, Status.PENDING, Status.DEAD_LETTERED]
        assert Job.objects.using(SECOND).get(pk=other).status == Status.DEAD_LETTERED
        [entry] = LogEntry.objects.all()
        assert "3 retried" in entry.change_message

    def test_a_pace_holds_for_all_shards_together(self, operator: Client) -> None:
        for alias in EVERYWHERE * 2:
            die(alias)
        operator.post(url("retry"), {"confirmed": "yes", "scope": "all", "until": until(), "runs": 1, "per_minute": 1})
        due = [at for alias in EVERYWHERE for at in Job.objects.using(alias).values_list("next_run_at", flat=True)]
        gaps = sorted(due)
        assert all(b - a > timedelta(seconds=50) for a, b in pairwise(gaps))

    def test_selected_ones_are_found_in_their_shards(self, operator: Client) -> None:
        ids = [die("default"), die(SECOND)]
        left = die(SECOND)
        page = operator.post(url("retry"), {"scope": "selected", "id": ids, "until": until(), "runs": 1}, follow=True)
        assert "2 retried, 0 no longer matched." in page.content.decode()
        assert Job.objects.using(SECOND).get(pk=left).status == Status.DEAD_LETTERED
        assert LogEntry.objects.count() == 2

    def test_what_could_not_be_committed_is_neither_counted_nor_logged(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ids = [die("default"), die(SECOND)]

        def lost() -> None:
            raise OperationalError("the connection is lost")

        monkeypatch.setattr(connections[SECOND], "commit", lost)
        page = operator.post(url("retry"), {"scope": "selected", "id": ids, "until": until(), "runs": 1}, follow=True)
        assert "1 retried, " in page.content.decode()
        assert [int(one.object_id) for one in LogEntry.objects.all()] == ids[:1]
        assert statuses(SECOND) == [Status.DEAD_LETTERED]

    def test_what_a_shard_that_is_away_holds_has_not_moved_on(self, operator: Client) -> None:
        ids = [die("default"), die(SECOND)]
        partial = "1 was not reached or no longer matched."
        with away(SECOND):
            data: dict[str, Any] = {"action": "retry_dead_letters", "_selected_action": ids}
            listed = operator.post(reverse("admin:pulse_django_job_changelist"), data, follow=True).content.decode()
            data = {"scope": "selected", "id": [die("default"), ids[1]], "confirmed": "yes", "why": "old"}
            deleted = operator.post(url("destroy"), data, follow=True).content.decode()
        assert f"1 retried, {partial}" in listed
        assert f"1 deleted, {partial}" in deleted

    def test_they_are_deleted_in_each_shard(self, operator: Client) -> None:
        die("default"), die(SECOND)
        asked = operator.post(url("destroy"), {"scope": "all"}).content.decode()
        assert "will be permanently deleted: 2." in asked
        data = {"scope": "all", "until": until(), "confirmed": "yes", "why": "old"}
        assert "2 deleted" in operator.post(url("destroy"), data, follow=True).content.decode()
        assert not any(Job.objects.using(alias).exists() for alias in EVERYWHERE)

    @pytest.mark.parametrize("pace", [100, 1])
    def test_many_become_an_operation_in_each_shard(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch, pace: int
    ) -> None:
        monkeypatch.setattr(mass_actions, "MOST_AT_ONCE", 1)
        for alias in (SECOND, SECOND, "default"):
            die(alias)
        data = {"confirmed": "yes", "scope": "all", "until": until(), "runs": 1, "per_minute": pace}
        page = operator.post(url("retry"), data, follow=True).content.decode()
        assert re.search(r"Started as operations \d+ \(default\), \d+ \(s2\), one in each shard", page)
        assert operations() == dict.fromkeys(EVERYWHERE, pace / 2), "together they keep the pace"
        for alias in EVERYWHERE:
            drain(using=alias)
            assert Status.DEAD_LETTERED not in statuses(alias)

    def test_a_shard_that_is_away_is_named_and_the_others_act(self, operator: Client) -> None:
        die("default"), die(SECOND)
        data = {"confirmed": "yes", "scope": "all", "until": until(), "runs": 1}
        with away(SECOND):
            listed = operator.get(GROUPS)
            shown = operator.get(url("group"))
            acted = operator.post(url("retry"), data, follow=True)
        for answer in (listed, shown, acted):
            assert answer.status_code == 200
            assert answer.content.decode().count("Shard s2 could not be read: ") == 1
        assert "1 retried" in acted.content.decode()
        assert statuses("default") == [Status.PENDING]
        assert statuses(SECOND) == [Status.DEAD_LETTERED]


def operations() -> dict[str, int | None]:
    """Return the pace of the operation in each shard that has one."""
    return {
        alias: row.context["given"].get("per_minute")
        for alias in EVERYWHERE
        for row in StoredBatch.objects.using(alias).filter(kind=KIND)
    }


class TestOperations:
    ADDRESS = reverse("admin:pulse_django_job_mass", args=["cancel"])

    @pytest.fixture(autouse=True)
    def _none(self, operator: Client) -> Any:
        yield
        for alias in EVERYWHERE:
            StoredBatch.objects.using(alias).all().delete()

    def fill(self) -> None:
        for alias in ("default", SECOND, SECOND):
            Job.objects.using(alias).create(task="shop.add", queue="mail")

    def test_one_starts_in_each_shard_that_has_matches(self, operator: Client) -> None:
        self.fill()
        assert "matches 3 such jobs" in operator.get(f"{self.ADDRESS}?queue=mail").content.decode()
        operator.post(f"{self.ADDRESS}?queue=mail", {"why": "no"})
        assert set(operations()) == set(EVERYWHERE)
        for alias in EVERYWHERE:
            drain(using=alias)
            assert set(statuses(alias)) == {Status.CANCELLED}

    def test_the_filter_may_name_a_shard(self, operator: Client) -> None:
        self.fill()
        address = f"{self.ADDRESS}?queue=mail&shard={SECOND}"
        assert "matches 2 such jobs" in operator.get(address).content.decode()
        page = operator.post(address, {"why": "no"}, follow=True)
        assert set(operations()) == {SECOND}
        assert page.status_code == 200
        drain(using=SECOND)
        assert set(statuses("default")) <= set(CLAIMABLE)
        assert set(statuses(SECOND)) == {Status.CANCELLED}

    def test_where_nothing_matches_nothing_starts(self, operator: Client) -> None:
        page = operator.post(f"{self.ADDRESS}?queue=none", {"why": "no"}, follow=True).content.decode()
        assert "No job matches. Nothing was changed." in page
        assert operations() == {}

    def test_it_is_unknown_whether_a_shard_that_is_away_has_matches(self, operator: Client) -> None:
        Job.objects.using(SECOND).create(task="shop.add", queue="mail")
        with away(SECOND):
            page = operator.post(f"{self.ADDRESS}?queue=mail", {"why": "no"}, follow=True).content.decode()
        assert "No operation was started in a shard that responds." in page
        assert "No job matches" not in page

    def test_one_starts_where_a_shard_answers(self, operator: Client) -> None:
        self.fill()
        with away(SECOND):
            page = operator.post(f"{self.ADDRESS}?queue=mail", {"why": "no"}, follow=True).content.decode()
        assert "Shard s2 could not be read: " in page
        assert set(operations()) == {"default"}
