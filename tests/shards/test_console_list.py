"""The list of jobs in the admin over several shards."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connections
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django import task
from pulse_django.console.jobs import page_window
from pulse_django.console.jobs.admin import JobAdmin
from pulse_django.models import Job
from pulse_django.words.states import Status
from testproject.shop import tasks
from tests.faults import all_faults
from tests.shards.conftest import away, empty_shards
from tests.shards.console import SHARDED, moved
from tests.two_databases import SECOND, SHARDS

pytestmark = SHARDED
LIST = reverse("admin:pulse_django_job_changelist")
TABLE = "pulse_django_job"


@pytest.fixture(autouse=True)
def _short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobAdmin, "list_per_page", 5)


def fill(pattern: str, **fields: Any) -> list[int]:
    """Create one job for each letter, a minute apart: a in the first shard, b in the second. Return their ids."""
    ids = []
    for number, letter in enumerate(pattern):
        alias = {"a": "default", "b": SECOND}[letter]
        job = Job.objects.using(alias).create(**{"task": "shop.add", **fields})
        with connections[alias].cursor() as cursor:
            cursor.execute(
                f"UPDATE {TABLE} SET created_at = now() - %s WHERE id = %s",
                [timedelta(minutes=len(pattern) - number), job.pk],
            )
        ids.append(job.pk)
    return ids


def shown(page: str) -> list[int]:
    return [int(one) for one in re.findall(r'name="_selected_action" value="(\d+)"', page)]


def walk(client: Client, query: str = "", rel: str = "next") -> list[list[int]]:
    """Follow the links to older pages from the first to the last, and return the ids of each."""
    pages, address = [], f"?{query}"
    while address:
        page = client.get(LIST + address).content.decode()
        pages.append(shown(page))
        found = re.findall(f'<a rel="{rel}" href="([^"]*)"', page)
        address = found[0].replace("&amp;", "&") if found else ""
        assert len(pages) < 60, "it does not end"
    return pages


def flat(pages: list[list[int]]) -> list[int]:
    return [one for page in pages for one in page]


@task(name="tests.shipped_from_a_shard", search=["order_id"])
def ship(order_id: int) -> None: ...


def test_a_search_asks_every_shard(operator: Client) -> None:
    ids = fill("ab", task=ship.registered_name, search_terms=["order_id:17"])
    fill("ab")
    assert flat(walk(operator, urlencode({"q": "order_id:17"}))) == ids[::-1]
    page = operator.get(LIST, {"q": str(ids[1])}).content.decode()
    assert shown(page) == [ids[1]]
    assert f"There is a job {ids[1]}." in page


PATTERNS = ["ab" * 8, "aaaaaaaabbbbbbbb", "bbbbbbbbaaaaaaaa", "a" * 11, "b" * 11, "abbabaababbbabaaabbab", "ab", ""]


def test_pages_hold_every_job_once_and_the_newest_first(operator: Client) -> None:
    with all_faults() as about:
        for pattern in PATTERNS:
            with about(pattern):
                empty_shards()
                ids = fill(pattern)
                pages = walk(operator)
                assert flat(pages) == ids[::-1]
                assert all(len(page) == 5 for page in pages[:-1])


def test_the_way_back_holds_every_job_once_too(operator: Client) -> None:
    with all_faults() as about:
        for pattern in PATTERNS:
            with about(pattern):
                empty_shards()
                ids = fill(pattern)
                page = operator.get(LIST).content.decode()
                while links := re.findall('<a rel="next" href="([^"]*)"', page):
                    page = operator.get(LIST + links[0].replace("&amp;", "&")).content.decode()
                back = [shown(page)]
                while links := re.findall('<a rel="prev" href="([^"]*)"', page):
                    page = operator.get(LIST + links[0].replace("&amp;", "&")).content.decode()
                    back.insert(0, shown(page))
                assert flat(back) == ids[::-1]


def test_a_page_that_is_older_links_to_what_came_since(operator: Client) -> None:
    ids = fill("ababababab")
    older = re.findall('<a rel="next" href="([^"]*)"', operator.get(LIST).content.decode())[0]
    newer = re.findall('<a rel="prev" href="([^"]*)"', operator.get(LIST + older).content.decode())[0]
    latest = fill("ab")
    found = walk(operator, newer.removeprefix("?").replace("&amp;", "&"), rel="prev")
    assert sorted(flat(found)) == sorted([*ids[5:], *latest])


def test_jobs_that_were_moved_stand_where_they_stood(operator: Client) -> None:
    with all_faults() as about:
        for pattern, to in product(PATTERNS[:6], list(SHARDS)):
            with about((pattern, to)):
                empty_shards()
                ids = fill(pattern)
                [other] = SHARDS.keys() - {to}
                before = walk(operator)
                moved(other, to, ids=tuple(ids[::3]))
                assert walk(operator) == before
                assert flat(before) == ids[::-1]


def test_a_job_that_is_moved_between_two_pages_is_not_lost(operator: Client) -> None:
    ids = fill("ab" * 8)
    page = operator.get(LIST).content.decode()
    found = shown(page)
    moved(SECOND, "default")
    older = re.findall('<a rel="next" href="([^"]*)"', page)[0].replace("&amp;", "&")
    assert found + flat(walk(operator, older.removeprefix("?"))) == ids[::-1]


class TestFilters:
    def test_a_shard_can_be_chosen(self, operator: Client) -> None:
        ids = fill("abbab")
        assert flat(walk(operator, f"shard={SECOND}")) == [ids[4], ids[2], ids[1]]
        assert flat(walk(operator, "shard=default")) == [ids[3], ids[0]]
        moved("default", SECOND, ids=(ids[0],))
        assert flat(walk(operator, f"shard={SECOND}")) == [ids[4], ids[2], ids[1], ids[0]]
        assert set(re.findall("By shard|stored_in", operator.get(LIST).content.decode())) == {"By shard", "stored_in"}

    def test_with_one_shard_there_is_no_such_filter(self, operator: Client) -> None:
        fill("a")
        with override_settings(PULSE={}):
            page = operator.get(LIST).content.decode()
            assert not re.search("By shard|stored_in", page)
            assert operator.get(LIST, {"shard": SECOND}).status_code == 302

    def test_others_hold_in_each_shard(self, operator: Client) -> None:
        cases = ["queue=mail", "q=task:add", "status__exact=PENDING", "age=1h", "queue=mail&age=1h"]
        with all_faults() as about:
            for query in cases:
                with about(query):
                    empty_shards()
                    ids = fill("abbabaababba", queue="mail")
                    Job.objects.using("default").create(task="shop.other", queue="other", status=Status.WAITING)
                    Job.objects.using(SECOND).create(task="shop.other", queue="other", status=Status.WAITING)
                    found = flat(walk(operator, query))
                    assert [one for one in found if one in ids] == ids[::-1]
                    assert len(found) == len(set(found)) == len(ids) + (2 if query == "age=1h" else 0)

    def test_a_search_by_windows_ends_with_every_match(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(page_window, "WINDOW", 3)
        ids = fill("abbabaababbaabbbbbaaaabab")
        moved("default", SECOND, ids=tuple(ids[::4]))
        for alias in SHARDS:
            with connections[alias].cursor() as cursor:
                cursor.execute(f"UPDATE {TABLE} SET task = 'shop.rare' WHERE id = ANY (%s)", [ids[::5]])
        pages = walk(operator, "task=shop.rare")
        assert sorted(flat(pages)) == sorted(ids[::5])
        assert "Searched jobs" in operator.get(LIST, {"task": "shop.rare"}).content.decode()

    def test_an_id_finds_its_job_in_any_shard(self, operator: Client) -> None:
        ids = fill("ab")
        moved("default", SECOND)
        for one in ids:
            assert flat(walk(operator, f"q={one}")) == [one]

    def test_a_period_holds_jobs_that_were_moved(self, operator: Client) -> None:
        ids = fill("ab" * 6)
        for alias in SHARDS:
            with connections[alias].cursor() as cursor:
                cursor.execute(
                    f"UPDATE {TABLE} SET created_at = '2026-01-02 12:00Z'::timestamptz + id %% 1000 * interval '1 ms'"
                    f" WHERE id = ANY (%s)",
                    [ids[:6]],
                )
        moved("default", SECOND, ids=tuple(ids[:8]))
        assert sorted(flat(walk(operator, "created=2026-01-02"))) == sorted(ids[:6])
        assert sorted(flat(walk(operator, "created=2026-01-02&shard=s2"))) == sorted(ids[:6])
        assert flat(walk(operator, "created=2026-01-03")) == []


class TestAway:
    def test_the_list_shows_what_the_others_have(self, operator: Client) -> None:
        ids = fill("ababababab")
        with away(SECOND):
            page = operator.get(LIST)
            assert page.status_code == 200
            assert shown(page.content.decode()) == ids[0::2][::-1]
            assert page.content.decode().count("Shard s2 could not be read: ") == 1
            chosen = operator.get(LIST, {"shard": SECOND})
            assert chosen.status_code == 200
            assert shown(chosen.content.decode()) == []
            assert "Shard s2 could not be read: " in chosen.content.decode()
            for query in ("queue=mail", "age=1h", "q=add", "created=2026"):
                assert operator.get(f"{LIST}?{query}").status_code == 200
        assert flat(walk(operator)) == ids[::-1]

    def test_what_was_away_is_found_once_it_is_back(self, operator: Client) -> None:
        ids = fill("ab" * 8)
        with away(SECOND):
            page = operator.get(LIST).content.decode()
        older = re.findall('<a rel="next" href="([^"]*)"', page)[0].replace("&amp;", "&")
        found = shown(page) + flat(walk(operator, older.removeprefix("?")))
        assert sorted(found) == sorted(ids)


def test_selected_dead_letters_are_retried_in_each_shard(operator: Client) -> None:
    ids = [int(tasks.fail.using(max_attempts=1, database=alias).enqueue("no").id) for alias in SHARDS]
    for alias in SHARDS:
        with connections[alias].cursor() as cursor:
            cursor.execute(
                f"UPDATE {TABLE} SET status = 'DEAD_LETTERED', attempts = 1, started_at = created_at,"
                " finished_at = now(), last_error = 'x'"
            )
    page = operator.post(LIST, {"action": "retry_dead_letters", "_selected_action": ids}, follow=True)
    assert "2 retried." in page.content.decode()
    assert [Job.objects.using(alias).get().status for alias in SHARDS] == [Status.PENDING] * 2


QUERIES = [
    {},
    {"older": str(1 << 40)},  # above every id of the first shard, whatever other tests did to its sequence
    {"status__exact": "PENDING"},
    {"created": "2026"},
    {"task": "shop.add"},
    {"q": "7"},
]


def sent_about_jobs(client: Client, query: dict[str, str], alias: str) -> list[str]:
    with CaptureQueriesContext(connections[alias]) as sent:
        assert client.get(f"{LIST}?{urlencode(query)}").status_code == 200
    return [one["sql"] for one in sent if TABLE in one["sql"]]


def test_each_of_several_shards_is_asked_as_a_single_one_is(operator: Client) -> None:
    with all_faults() as about:
        for query in QUERIES:
            with about(query):
                empty_shards()
                fill("abababab")
                with override_settings(PULSE={}):
                    alone = sent_about_jobs(operator, query, "default")
                assert not any(str(1 << 48) in one for one in alone), "no range of a shard is asked about"
                for alias in SHARDS:
                    assert len(sent_about_jobs(operator, query, alias)) <= len(alone)
