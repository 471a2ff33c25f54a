"""The list of jobs: what its filters, its dates and its search find, and how its pages lead through all of it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from pulse_django.run import make_due
from tests.factories import PauseFactory, WorkerFactory, make_job, now
from tests.faults import each_of
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.django_db

LIST = reverse("admin:pulse_django_job_changelist")
EVIL = '"><img src=x onerror="alert(1)">'


def page_at(client: Client, address: str = LIST, **params: Any) -> str:
    response = client.get(address, params) if params else client.get(address)
    assert response.status_code == 200, response.headers
    return response.content.decode()


def ids(page: str) -> list[int]:
    return [int(pk) for pk in re.findall(r'<th class="field-id"><a href="[^"]*/job/(\d+)/change/', page)]


def found(client: Client, **params: Any) -> list[int]:
    return ids(page_at(client, **params))


def newest_first(*jobs: Job) -> list[int]:
    return sorted((job.pk for job in jobs), reverse=True)


def link(page: str, rel: str) -> str | None:
    address = re.search(rf'<a rel="{rel}" href="([^"]*)"', page)
    return LIST + html.unescape(address[1]) if address else None


def walk(client: Client, address: str | None, rel: str) -> Iterator[str]:
    """Follow a link until there is none."""
    steps = 0
    while address is not None:
        steps += 1
        assert steps < 50, "in a circle"
        page = page_at(client, address)
        yield page
        address = link(page, rel)


def sidebar(page: str, title: str) -> list[str]:
    """What a filter offers."""
    block = page.split(f'data-filter-title="{title}"')[1].split("</details>")[0]
    return [html.unescape(one.strip()) for one in re.findall(r"<a href=[^>]*>([^<]*)</a>", block)]


def created(job: Job, instant: datetime) -> Job:
    sql("UPDATE pulse_django_job SET created_at = %s WHERE id = %s", instant, job.pk)
    return job


class TestPages:
    """By id: each page is as quick as the first."""

    @pytest.fixture
    def jobs(self, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
        monkeypatch.setattr("pulse_django.console.jobs.admin.JobAdmin.list_per_page", 3)
        return [make_job(Status.COMPLETED if number % 2 else Status.PENDING) for number in range(8)]

    def test_they_lead_through_all_jobs_and_back(self, admin_client: Client, jobs: list[Job]) -> None:
        pages = [ids(page) for page in walk(admin_client, LIST, "next")]
        assert [pk for page in pages for pk in page] == newest_first(*jobs)
        *_, last = walk(admin_client, LIST, "next")
        back = list(walk(admin_client, link(last, "prev"), "prev"))
        assert [ids(page) for page in back] == pages[-2::-1]
        assert link(back[-1], "prev") is None

    def test_filters_are_kept(self, admin_client: Client, jobs: list[Job]) -> None:
        pages = walk(admin_client, f"{LIST}?status__exact=COMPLETED", "next")
        completed = [job for job in jobs if job.status == Status.COMPLETED]
        assert [pk for page in pages for pk in ids(page)] == newest_first(*completed)

    def test_another_filter_or_search_begins_at_the_newest(self, admin_client: Client, jobs: list[Job]) -> None:
        page = page_at(admin_client, older=jobs[4].pk)
        assert "older=" not in page.split('id="changelist-filter"')[1].split("</details>")[0]
        assert 'name="older"' not in page, "the form of the search would carry it along"

    @each_of("x", "-1", "9" * 30, "٣", "1; DROP TABLE", around=undone)
    def test_nonsense_in_the_address_is_ignored(self, admin_client: Client, jobs: list[Job], *, nonsense: Any) -> None:
        assert found(admin_client, older=nonsense) == newest_first(*jobs)[:3]

    def test_nothing_is_counted(self, admin_client: Client, jobs: list[Job]) -> None:
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(LIST, {"_facets": ""})
        about_jobs = [query["sql"] for query in queries if 'FROM "pulse_django_job"' in query["sql"]]
        assert len(about_jobs) == 1
        assert "COUNT(" not in about_jobs[0].upper()
        assert "OFFSET" not in about_jobs[0].upper()
        assert '"args",' not in about_jobs[0], "a megabyte each: only short ones are read"
        assert '"payload_bytes" <= 2000 THEN "pulse_django_job"."args"' in about_jobs[0]

    def test_a_list_without_jobs_is_a_page_like_others(self, admin_client: Client) -> None:
        page = page_at(admin_client)
        assert "No matching jobs." in page
        assert link(page, "next") is None


class TestWindows:
    """Where no index knows what is looked for, a page looks at some jobs and says at which."""

    @pytest.fixture(autouse=True)
    def tiny(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pulse_django.console.jobs.page_window.WINDOW", 5)
        monkeypatch.setattr("pulse_django.console.jobs.page_window.FEW", 3)
        monkeypatch.setattr("pulse_django.console.jobs.admin.JobAdmin.list_per_page", 2)

    @pytest.fixture
    def jobs(self) -> list[Job]:
        rare = {0, 1, 2, 3, 14, 22, 23, 29}
        return [make_job(Status.COMPLETED, task="tests.rare" if n in rare else "tests.add") for n in range(31)]

    def rare(self, jobs: list[Job]) -> list[int]:
        return newest_first(*(job for job in jobs if job.task == "tests.rare"))

    def test_older_meets_every_job_once_and_newer_leads_back(self, admin_client: Client, jobs: list[Job]) -> None:
        pages = list(walk(admin_client, f"{LIST}?task=tests.rare", "next"))
        assert [pk for page in pages for pk in ids(page)] == self.rare(jobs)
        assert [] in [ids(page) for page in pages], "a window may hold none, and leads on"
        back = list(walk(admin_client, link(pages[-1], "prev"), "prev"))
        assert [pk for page in back[::-1] for pk in ids(page)] + ids(pages[-1]) == self.rare(jobs)

    def test_gaps_between_ids_make_no_empty_pages(self, admin_client: Client, jobs: list[Job]) -> None:
        sql("UPDATE pulse_django_job SET id = id + 1000000 WHERE id >= %s", jobs[14].pk)
        assert len(list(walk(admin_client, f"{LIST}?task=tests.none", "next"))) == 7  # of five jobs each

    def test_a_page_that_is_not_full_says_where_it_looked(self, admin_client: Client, jobs: list[Job]) -> None:
        page = page_at(admin_client, task="tests.rare")
        assert f"Searched jobs {jobs[26].pk} to {jobs[30].pk}." in page
        assert "Search older jobs" in page
        *_, last = walk(admin_client, f"{LIST}?task=tests.rare", "next")
        assert "Search older jobs" not in last
        page = page_at(admin_client, task="tests.rare", newer=jobs[4].pk)
        assert f"Searched jobs {jobs[5].pk} to {jobs[9].pk}." in page
        assert "Search newer jobs" in page
        page = page_at(admin_client, task="tests.add")
        assert len(ids(page)) == 2
        assert "Searched jobs" not in page, "it is full"

    @each_of(Status.PENDING, Status.RUNNING, Status.RETRYING, Status.DEAD_LETTERED, around=undone)
    def test_a_few_jobs_of_an_indexed_status_are_found_however_old(self, admin_client: Client, *, status: Any) -> None:
        old = make_job(status)
        for _ in range(20):
            make_job(Status.COMPLETED)
        page = page_at(admin_client, status__exact=status.value)
        assert ids(page) == [old.pk]
        assert "Searched jobs" not in page

    def test_many_dead_letters_are_looked_for_in_windows(self, admin_client: Client) -> None:
        dead = [make_job(Status.DEAD_LETTERED) for _ in range(4)]
        for _ in range(20):
            make_job(Status.COMPLETED)
        assert "Searched jobs" in page_at(admin_client, status__exact="DEAD_LETTERED")
        pages = walk(admin_client, f"{LIST}?status__exact=DEAD_LETTERED", "next")
        assert [pk for page in pages for pk in ids(page)] == newest_first(*dead)

    def test_a_few_jobs_of_a_small_queue_are_found_beside_many_that_wait(self, admin_client: Client) -> None:
        old = make_job(queue="small")
        for _ in range(20):
            make_job()
        assert found(admin_client, status__exact="PENDING", queue="small") == [old.pk]


class TestFilters:
    def test_status(self, admin_client: Client) -> None:
        jobs = {status: make_job(status) for status in Status}
        for status, job in jobs.items():
            assert found(admin_client, status__exact=status.value) == [job.pk]

    def test_queue(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        waiting, running = make_job(queue="waits"), make_job(Status.RUNNING, queue="runs")
        make_job(queue="waits", priority=5)
        make_job(Status.COMPLETED, queue="gone")
        PauseFactory(queue="known")
        assert sidebar(page_at(admin_client), "queue") == ["All", "known", "runs", "waits"]
        assert found(admin_client, queue="runs") == [running.pk]
        assert waiting.pk in found(admin_client, queue="waits")
        assert "gone" in sidebar(page_at(admin_client, queue="gone"), "queue"), "what is chosen is always offered"
        monkeypatch.setattr("pulse_django.console.jobs.sidebar.MOST", 3)
        for number in range(6):
            make_job(queue=f"waits-{number}")
        assert len(sidebar(page_at(admin_client), "queue")) == 1 + 3, "no more than anybody reads"

    def test_task(self, admin_client: Client) -> None:
        WorkerFactory(tasks=["elsewhere.task"])
        WorkerFactory(tasks=["stopped.task"], stopped_at=now())
        WorkerFactory(tasks=None)
        job, _ = make_job(task="elsewhere.task"), make_job()
        offered = sidebar(page_at(admin_client), "task")
        assert "elsewhere.task" in offered
        assert "stopped.task" not in offered
        assert len(offered) > 2, "and those of this process"
        assert found(admin_client, task="elsewhere.task") == [job.pk]

    def test_error(self, admin_client: Client) -> None:
        one, two = (make_job(Status.DEAD_LETTERED, last_error=f"KeyError: order {n}") for n in (17, 4711))
        other = make_job(Status.DEAD_LETTERED, last_error="ValueError: no")
        make_job(Status.RETRYING, last_error="KeyError: order 5")
        assert "KeyError: order 4711" in page_at(admin_client, status__exact="DEAD_LETTERED")
        assert sidebar(page_at(admin_client), "error of dead letters") == ["All", "ValueError: no", "KeyError: order #"]
        assert found(admin_client, error="KeyError: order #") == newest_first(one, two)
        assert found(admin_client, error="ValueError: no") == [other.pk]

    def test_worker(self, admin_client: Client) -> None:
        WorkerFactory(name="host-1", boot_id="boot")
        WorkerFactory(name="host-2", boot_id="boot", stopped_at=now())
        held = make_job(Status.RUNNING, locked_by="host-1:boot.2:7")
        make_job(Status.RUNNING, locked_by="host-1:boot2.1:7")
        assert sidebar(page_at(admin_client), "worker") == ["All", "host-1:boot"]
        assert found(admin_client, worker="host-1:boot") == [held.pk]
        assert found(admin_client, worker="%") == [], "no pattern"

    def test_age(self, admin_client: Client) -> None:
        old, hours, fresh = make_job(), make_job(), make_job()
        for job, age in ((old, timedelta(days=8)), (hours, timedelta(hours=2))):
            sql("UPDATE pulse_django_job SET created_at = clock_timestamp() - %s WHERE id = %s", age, job.pk)
        assert found(admin_client, age="15m") == [fresh.pk]
        assert found(admin_client, age="1d") == found(admin_client, age="7d") == newest_first(hours, fresh)

    def test_they_combine_and_are_cleared_at_once(self, admin_client: Client) -> None:
        wanted = make_job(Status.DEAD_LETTERED, queue="mail", task="tests.mail", last_error="no route")
        make_job(Status.DEAD_LETTERED, queue="mail", task="tests.add", last_error="no route")
        make_job(Status.DEAD_LETTERED, queue="bulk", task="tests.mail", last_error="no route")
        make_job(Status.PENDING, queue="mail", task="tests.mail")
        params = {"status__exact": "DEAD_LETTERED", "queue": "mail", "task": "tests.mail", "q": "route", "age": "1h"}
        assert found(admin_client, **params) == [wanted.pk]
        assert re.search(r'<a href="\?">&#10006; Clear all filters', page_at(admin_client, queue="mail", age="1h"))
        assert found(admin_client, worker="host-1:boot", status__exact="COMPLETED") == []


class TestSearch:
    def test_an_id(self, admin_client: Client) -> None:
        job, other = make_job(), make_job()
        assert found(admin_client, q=str(job.pk)) == found(admin_client, q=f" #{job.pk} ") == [job.pk]
        assert found(admin_client, q="9" * 40) == []
        assert found(admin_client, q=str(other.pk), status__exact="COMPLETED") == [], "with the filters"

    def test_words_of_task_or_error(self, admin_client: Client) -> None:
        WorkerFactory(tasks=["shop.send_Invoice"])
        by_task = make_job(task="shop.send_Invoice")
        by_error = make_job(Status.DEAD_LETTERED, last_error="the INVOICE 7 is gone")
        make_job()
        assert found(admin_client, q="invoice") == newest_first(by_task, by_error)
        assert found(admin_client, q="invoice gone") == [by_error.pk], "all words"
        assert found(admin_client, q='"is gone"') == [by_error.pk]
        assert found(admin_client, q="%") == []

    def test_a_thousand_words_are_not_looked_for(self, admin_client: Client) -> None:
        with CaptureQueriesContext(connection) as queries:
            page_at(admin_client, q=" ".join("abcdefghij" * 100))
        assert max(query["sql"].count("UPPER(%") + query["sql"].upper().count(" LIKE ") for query in queries) <= 16

    def test_fields_that_complete_a_word_do_not_search_the_table(self, admin_client: Client) -> None:
        params = {"app_label": "pulse_django", "model_name": "job", "field_name": "parent", "term": "x"}
        assert admin_client.get(reverse("admin:autocomplete"), params).status_code in (403, 404)


class TestColumns:
    def test_a_job_that_waits_for_its_time_says_how_long_and_one_that_is_due_or_dead_does_not(
        self, admin_client: Client
    ) -> None:
        make_job(next_run_at=now(timedelta(minutes=5, seconds=30)))
        make_job()
        make_job(Status.DEAD_LETTERED, next_run_at=now(timedelta(hours=1)))
        make_job(Status.RETRYING, attempts=5, refunds=2, max_attempts=10)
        page = page_at(admin_client)
        assert re.search(r"</span> Pending</span>, <time [^>]+>due in 5m \d+s</time></td>", page)
        assert "</span> Pending</span></td>" in page
        assert "</span> Dead lettered</span></td>" in page
        assert "3 of 10" in page, "attempts that do not count are left out"


PARAMS = ["status__exact", "queue", "task", "error", "worker", "age", "q", "older", "newer", "p", "o", "all"]
NONSENSE = ["", "\0", "a\0b", "9" * 400, "-1", "%", "\\", "'; DROP TABLE x; --", EVIL, "\u202e", "\ufffe", "[]", " "]


class TestNonsense:
    @each_of(*PARAMS, around=undone)
    def test_every_address_gives_a_page(self, admin_client: Client, *, param: Any) -> None:
        make_job(Status.DEAD_LETTERED)
        for nonsense in NONSENSE:
            response = admin_client.get(f"{LIST}?{urlencode({param: nonsense})}")
            assert response.status_code == 200, (param, nonsense)
            assert "<img src=x" not in response.content.decode()
        assert admin_client.get(f"{LIST}?{param}=%ff%fe&{param}=x&{param}").status_code == 200

    @each_of(
        "x",
        "args__icontains",
        "parent__task",
        "status__in",
        "id__gt",
        "\0",
        "created__year",
        "created_at",
        around=undone,
    )
    def test_what_no_filter_knows_is_refused_as_django_does(self, admin_client: Client, *, unknown: Any) -> None:
        """Also a part of the arguments: it would tell what they are to people who may not see them."""
        make_job(args=["secret"])
        response = admin_client.get(f"{LIST}?{urlencode({unknown: 'secret'})}")
        assert (response.status_code, response["Location"]) == (302, f"{LIST}?e=1")


class TestRetrying:
    def act(self, client: Client, address: str, *jobs: Job, **others: str) -> str:
        data = {"action": "retry_dead_letters", "_selected_action": [job.pk for job in jobs], **others}
        page: str = client.post(address, data, follow=True).content.decode()
        return page

    def test_only_what_is_selected_on_a_filtered_page_whatever_else_the_form_says(self, admin_client: Client) -> None:
        chosen, other = (make_job(Status.DEAD_LETTERED, queue="mail") for _ in range(2))
        address = f"{LIST}?status__exact=DEAD_LETTERED&queue=mail&q=ValueError&age=1d&older={other.pk}"
        assert "1 retried." in self.act(admin_client, address, chosen, select_across="1")
        statuses = [Job.objects.get(pk=job.pk).status for job in (chosen, other)]
        assert statuses == [Status.PENDING, Status.DEAD_LETTERED]

    def test_what_a_filter_no_longer_finds_had_moved_on_and_what_it_hides_is_left(self, admin_client: Client) -> None:
        dead, revived = make_job(Status.DEAD_LETTERED), make_job()
        hidden = make_job(Status.DEAD_LETTERED, queue="bulk")
        page = self.act(admin_client, f"{LIST}?status__exact=DEAD_LETTERED&queue=default", dead, revived, hidden)
        assert "1 retried, 2 no longer matched." in page
        assert Job.objects.get(pk=hidden.pk).status == Status.DEAD_LETTERED

    def test_idle_workers_are_woken(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        woken: list[str] = []
        monkeypatch.setattr(make_due, "wake_workers", lambda alias, queues: woken.append(alias))
        self.act(admin_client, LIST, make_job())
        assert woken == [], "nothing was retried"
        self.act(admin_client, LIST, make_job(Status.DEAD_LETTERED))
        assert woken == ["default"]


@each_of(
    ("", 6),  # session, user, the ends, two for the sidebar, the rows
    ("?status__exact=DEAD_LETTERED", 7),
    ("?task=tests.none&q=word", 8),
    ("?age=15m", 8),
    ("?q=%231", 7),  # whether it is there
    ("?q=1", 8),  # and how many have it as an argument, around=undone
)
def test_a_page_asks_few_questions(admin_client: Client, *, address: Any, most: Any) -> None:
    created(make_job(Status.DEAD_LETTERED), datetime(2026, 1, 1, tzinfo=UTC))
    make_job()
    with CaptureQueriesContext(connection) as queries:
        page_at(admin_client, LIST + address)
    assert len(queries) <= most, [query["sql"] for query in queries]
