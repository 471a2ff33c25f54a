"""Dead letters by error: what the pages tell, who may retry and delete, and what is said of those that moved on."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from itertools import pairwise, product
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.console.dead_letters import groups
from pulse_django.console.dead_letters.admin import DeadLetterAdmin
from pulse_django.console.mass import page as mass
from pulse_django.managers import JobManager
from pulse_django.models import Attempt, DeadLetter, Job, Release
from pulse_django.queue.words.own_tasks import ACT, PLAN
from pulse_django.queue.words.states import Status
from pulse_django.run import make_due
from pulse_django.testing import run_job
from tests.console.staff import staff
from tests.factories import AttemptFactory, WorkerFactory, make_job, now
from tests.faults import all_faults, each_of
from tests.operations import steps
from tests.undoing import undone

pytestmark = pytest.mark.django_db

LIST = reverse("admin:pulse_django_deadletter_changelist")
ERROR = "ValueError: order #"
EVIL = '"><img src=x onerror=alert(1)></script>{{7*7}}'
SELECTED, ALL = "selected", "all"
ASKED_AT = {"asked_at": "2100-01-01T00:00:00+00:00"}  # of a page that showed all there are, and will be till then


def url_of(name: str, error: str = ERROR, **params: str) -> str:
    page, args = (name, []) if name == "group" else ("mass", [name])
    address = reverse(f"admin:pulse_django_deadletter_{page}", args=args)
    return f"{address}?{urlencode({'error': error} | params)}"


def dead(number: int = 1, *, error: str = "ValueError: order {}", ago: float = 0, **overrides: Any) -> Job:
    finished_at = now(timedelta(seconds=-ago))
    return make_job(Status.DEAD_LETTERED, last_error=error.format(number), finished_at=finished_at, **overrides)


def retry(client: Client, scope: str = SELECTED, jobs: Any = (), error: str = ERROR, **data: Any) -> Any:
    form = {"runs": 1, "scope": scope, "id": [job.pk for job in jobs]} | ASKED_AT | data
    return client.post(url_of("retry", error), form, follow=True)


def delete(client: Client, scope: str = SELECTED, jobs: Any = (), error: str = ERROR, **data: Any) -> Any:
    form = {"scope": scope, "id": [job.pk for job in jobs]} | ({} if "reason" in data else {"ask": scope}) | ASKED_AT
    return client.post(url_of("delete", error), form | data, follow=True)


SURE = {"confirmed": "yes", "reason": "nobody wants them"}


def own_part(page: Any) -> str:
    return str(page.content.decode().split('<div id="content"')[1])


def hidden_in(page: Any, kind: str = "hidden") -> dict[str, str]:
    """The fields of this kind in the form on a page of ours."""
    return dict(re.findall(rf'<input type="{kind}" name="(\w+)" value="([^"]*)"', own_part(page)))


def text_of(response: Any) -> str:
    """What a reader sees, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", response.content.decode())).split())


def rows() -> list[dict[str, Any]]:
    return list(Job.objects.order_by("pk").values())


class TestTheList:
    def test_errors_that_differ_in_numbers_are_one_group(self, admin_client: Client) -> None:
        make_job(Status.RETRYING, last_error="TypeError: not dead")
        assert "No dead letters." in text_of(admin_client.get(LIST))
        for number in (17, 4711):
            dead(number)
        dead(error="KeyError: 'sku'")
        found = groups.groups("default").groups
        assert {group.fingerprint: group.letters for group in found} == {ERROR: 2, "KeyError: #": 1}
        page = admin_client.get(LIST).content.decode()
        assert "TypeError" not in page
        assert html.escape(url_of("group")) in page

    def test_the_latest_seen_comes_first_with_its_sample_and_its_times(self, admin_client: Client) -> None:
        oldest = dead(1, ago=7_200)
        dead(2, ago=60)
        dead(error="KeyError: 'sku'", ago=600)
        first, second = groups.groups("default").groups
        assert (first.sample, second.sample) == ("ValueError: order 2", "KeyError: 'sku'")
        assert timedelta(seconds=7_199) < first.now - first.first_seen < timedelta(seconds=7_300)
        assert timedelta(seconds=59) < first.now - first.last_seen < timedelta(seconds=160)
        page = admin_client.get(LIST)
        assert "2h ago" in text_of(page)
        assert f'datetime="{oldest.finished_at.isoformat()}"' in page.content.decode()

    def test_many_are_counted_up_to_a_bound(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(groups, "MOST_COUNTED", 2)
        monkeypatch.setattr(groups, "LEAST_COUNTED", 2)
        dead()
        dead()
        assert re.search(r"<td>2</td>", admin_client.get(LIST).content.decode())
        dead()
        assert re.search(r"<td>2\+</td>", admin_client.get(LIST).content.decode())

    def test_what_the_latest_groups_leave_is_counted_of_the_others_and_some_of_each(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(groups, "MOST_COUNTED", 4)
        monkeypatch.setattr(groups, "LEAST_COUNTED", 1)
        for error, ago in (("A: no", 10), ("B: no", 20), ("C: no", 30)):
            for more in range(3):
                dead(error=error, ago=ago + more)
        found = groups.groups("default").groups
        assert [(one.fingerprint, one.letters, one.counted) for one in found] == [
            ("A: no", 3, 4), ("B: no", 2, 1), ("C: no", 2, 1),
        ]  # fmt: skip

    def test_it_shows_how_many_died_in_each_of_the_last_hours(self, admin_client: Client) -> None:
        for ago in (60, 120, 3 * 3_600 + 60, 30 * 3_600):
            dead(ago=ago)
        [group] = groups.groups("default").groups
        assert group.hours == (*[0] * 20, 1, 0, 0, 2)
        assert "dead letters per hour in the last 24 hours, at most 2" in admin_client.get(LIST).content.decode()

    def test_it_tells_with_which_versions_the_first_and_the_last_died(self, admin_client: Client) -> None:
        for name, version, ago in (("old", "1.0", 90), ("new", "2.0", 60), ("other", "3.0", 75)):
            WorkerFactory(name=name, boot_id="boot", versions={"shop": version})
            AttemptFactory(job=dead(ago=ago), number=1, worker=f"{name}:boot.2:1")
        page = text_of(admin_client.get(url_of("group")))
        assert "First seen with shop 1.0" in page
        assert "Last seen with shop 2.0" in page

    def test_when_its_worker_is_forgotten_the_release_of_that_time_is_told(self, admin_client: Client) -> None:
        for version, ago in (("2026-11-20", 7_200), ("2026-11-21", 3_600)):
            Release.objects.create(version=version, seen_at=now(timedelta(seconds=-ago)))
        WorkerFactory(name="new", boot_id="boot", versions={"project": "2026-11-21", "django": "6.1"})
        for name, ago in (("gone", 5_000), ("new", 60)):
            AttemptFactory(
                job=dead(ago=ago), number=1, worker=f"{name}:boot.2:1", finished_at=now(timedelta(seconds=-ago))
            )
        page = text_of(admin_client.get(url_of("group")))
        assert "First seen with 2026-11-20 " in page
        assert "Last seen with 2026-11-21 " in page

    def test_its_tasks_are_each_told_once_and_not_too_many_of_them(self, admin_client: Client) -> None:
        for number in range(groups.MOST_TASKS + 2):
            dead(task=f"shop.task{number}")
            dead(task=f"shop.task{number}")
        page = text_of(admin_client.get(LIST))
        assert page.count("shop.task4") == 1
        assert "shop.task5" not in page
        assert "and 2 others" in page

    def test_more_errors_than_are_looked_for_are_told_and_the_latest_are_among_them(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(groups, "MOST_GROUPS", 2)
        for letter in "zy":
            dead(error=f"{letter}: no", ago=100)
        assert "There are more than" not in text_of(admin_client.get(LIST))
        dead(error="x: no", ago=100)
        assert not groups.groups("default").is_partial or len(groups.groups("default").groups) > 2
        dead(error="a: what breaks now")
        page = text_of(admin_client.get(LIST))
        assert "There are more than 2 different errors" in page
        assert page.index("a: what breaks now") < page.index("z: no")

    def test_pages_lead_through_all_groups(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(groups, "GROUPS_ON_A_PAGE", 2)
        for place, letter in enumerate("abc"):
            dead(error=f"{letter}: no", ago=place * 60)
        first, second = admin_client.get(LIST), admin_client.get(LIST, {"page": "1"})
        assert "a: no" in text_of(first)
        assert "c: no" not in text_of(first)
        assert 'rel="next" href="' in first.content.decode()
        assert "c: no" in text_of(second)
        assert 'rel="next"' not in second.content.decode()

    @each_of("x", "-1", "9" * 30, "٣", "999", "", around=undone)
    def test_nonsense_in_the_address_is_ignored(self, admin_client: Client, *, page: Any) -> None:
        dead()
        assert "ValueError: order 1" in text_of(admin_client.get(LIST, {"page": page}))

    def test_it_asks_one_question(self, admin_client: Client) -> None:
        for number in range(5):
            dead(error=f"{'abcde'[number]}: no")
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(LIST)
        assert len([query for query in queries if "pulse_django_job" in query["sql"]]) == 1


class TestTheGroup:
    def test_it_tells_of_the_latest_attempt_of_the_latest_dead_letter(self, admin_client: Client) -> None:
        earlier, latest = dead(1, ago=600), dead(2, ago=60)
        AttemptFactory(job=earlier, outcome="FAILED", message="of the earlier", traceback="the earlier trace")
        AttemptFactory(job=latest, number=1, outcome="FAILED", traceback="its first trace")
        AttemptFactory(
            job=latest,
            number=2,
            outcome="FAILED",
            error_class="shop.OutOfStock",
            message="the message",
            traceback="its last trace",
            late_outcome="SUCCEEDED",
            late_at=now(),
        )
        page = text_of(admin_client.get(url_of("group")))
        for said in ("shop.OutOfStock", "the message", "its last trace", "reported Succeeded too late"):
            assert said in page
        assert "earlier trace" not in page
        assert "first trace" not in page

    def test_it_lists_its_dead_letters_latest_first_and_leads_to_each(self, admin_client: Client) -> None:
        jobs = [dead(number, ago=number * 60, queue=f"q{number}") for number in range(3)]
        dead(error="KeyError: another")
        page = admin_client.get(url_of("group")).content.decode()
        links = re.findall(r'<th scope="row"><a href="[^"]*/job/(\d+)/change/', page)
        assert links == [str(job.pk) for job in jobs]
        assert "KeyError: another" not in page

    @pytest.mark.parametrize("use_tz", [True, False])
    def test_older_ones_are_paged_by_when_they_died(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any, use_tz: bool
    ) -> None:
        settings.USE_TZ = use_tz
        monkeypatch.setattr(groups, "LETTERS_ON_A_PAGE", 2)
        jobs = [dead(number, ago=number * 60) for number in range(5)]
        seen: list[str] = []
        url: str | None = url_of("group")
        while url is not None:
            page = admin_client.get(url).content.decode()
            seen += re.findall(r'name="id" value="(\d+)"', page)
            following = re.search(r'rel="next" href="([^"]*)"', page)
            url = html.unescape(following[1]) if following else None
        assert seen == [str(job.pk) for job in jobs]

    @each_of(
        "x",
        "1_x",
        "x_1",
        "_",
        "\x00",
        f"{'9' * 18}_1",
        f"1_{'9' * 5_000}",
        "2026-01-01T00:00Z_1",
        "0001-01-01T00:00:00+23:59_1",
        "9999-12-31T23:59:59-23:59_1",
        around=undone,
    )
    def test_nonsense_begins_at_the_latest(self, admin_client: Client, *, older: Any) -> None:
        job = dead()
        assert f'value="{job.pk}"' in admin_client.get(url_of("group", older=older)).content.decode()

    def test_an_error_that_there_is_not_is_told_kindly_and_one_that_cannot_be_is_not_found(
        self, admin_client: Client
    ) -> None:
        dead()
        response = admin_client.get(url_of("group", "KeyError: no such"))
        assert response.status_code == 200
        assert "No dead letters have this error." in text_of(response)
        with all_faults() as about:
            for query in ["", "?error=%00", "?error=a%00b", f"?error={'x' * 201}"]:
                with about(query):
                    assert admin_client.get(reverse("admin:pulse_django_deadletter_group") + query).status_code == 404
                    for act in ("retry", "delete"):
                        url = reverse("admin:pulse_django_deadletter_mass", args=[act])
                        assert admin_client.post(url + query, {"runs": 1}).status_code == 404

    @each_of("a\r\nb\n c", "tab\there &amp; %41+", "ünïcode ☃", "x" * 200, around=undone)
    def test_any_error_can_be_told_and_retried(self, admin_client: Client, *, error: Any) -> None:
        job = dead(error=error.replace("{", "{{"))
        [found] = groups.groups("default").groups
        link = re.search(r'<th scope="row"><a href="([^"]*)"', admin_client.get(LIST).content.decode())
        assert link is not None
        page = admin_client.get(html.unescape(link[1])).content.decode()
        action = re.search(r'<form method="post" action="([^"]*retry[^"]*)"', page)
        assert action is not None
        admin_client.post(html.unescape(action[1]), {"runs": 1, "scope": ALL} | ASKED_AT)
        job.refresh_from_db()
        assert job.status == Status.PENDING, found

    def test_all_on_the_page_can_be_selected_without_a_script_and_what_deletes_looks_so(
        self, admin_client: Client
    ) -> None:
        dead(), dead()
        page = admin_client.get(url_of("group")).content.decode()
        assert " checked aria-label" not in page
        assert re.findall(r'class="button pulse-danger" name="ask" value="(\w+)"', page) == ["selected", "all"]
        [link] = re.findall(r'<p><a href="([^"]*)">Select all on this page', page)
        page = admin_client.get(html.unescape(link)).content.decode()
        assert page.count(" checked aria-label") == 2
        assert "Select none" in page

    def test_it_asks_four_questions(self, admin_client: Client) -> None:
        AttemptFactory(job=dead(), outcome="FAILED")
        dead()
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(url_of("group"))
        assert len([query for query in queries if re.search("pulse_django_(job|ledger)", query["sql"])]) == 4


class TestRetry:
    def test_the_selected_are_revived_and_no_other(self, admin_client: Client) -> None:
        chosen, other = dead(1, attempts=10), dead(2)
        page = retry(admin_client, jobs=[chosen], runs=3)
        assert "1 retried." in text_of(page)
        chosen.refresh_from_db()
        other.refresh_from_db()
        assert (chosen.status, other.status) == (Status.PENDING, Status.DEAD_LETTERED)
        assert chosen.max_attempts - chosen.attempts + chosen.refunds == 3

    def test_what_moved_on_meanwhile_is_counted_and_left_alone(self, admin_client: Client) -> None:
        chosen, revived, gone, elsewhere = (dead(number) for number in range(4))
        page = hidden_in(admin_client.get(url_of("group")))
        Job.objects.retry([revived.pk])
        Job.objects.prune_these([gone.pk])
        Job.objects.filter(pk=elsewhere.pk).update(last_error="KeyError: died of something else", finished_at=now())
        before = [row for row in rows() if row["id"] != chosen.pk]
        said = retry(admin_client, jobs=[chosen, revived, gone, elsewhere], **page)
        assert "1 retried, 3 no longer matched." in text_of(said)
        assert [row for row in rows() if row["id"] != chosen.pk] == before

    @each_of(retry, delete, around=undone)
    def test_what_died_again_since_it_was_selected_is_left(self, admin_client: Client, *, act: Any) -> None:
        """The page showed another death of it."""
        job = dead()
        page = hidden_in(admin_client.get(url_of("group")))
        if act is delete:
            page = hidden_in(delete(admin_client, jobs=[job], **page))
        Job.objects.filter(pk=job.pk).update(finished_at=now(), attempts=11, refunds=1)
        before = rows()
        assert "1 no longer" in text_of(act(admin_client, **({"jobs": [job]} | SURE | page)))
        assert rows() == before

    @each_of(*product([retry, delete], ["x", "2026-13-45T00:00:00+00:00", "9" * 18]), around=undone)
    def test_a_form_that_does_not_say_what_it_showed_changes_nothing(
        self, admin_client: Client, *, act: Any, asked_at: Any
    ) -> None:
        dead()
        before = rows()
        assert "can change: 1." in text_of(act(admin_client, ALL, **SURE, asked_at=asked_at))
        assert rows() == before

    def test_all_of_an_error_are_asked_about_with_their_number(self, admin_client: Client) -> None:
        for number in range(5):
            dead(number)
        before = rows()
        asked = retry(admin_client, ALL, ask=ALL, runs=2, per_minute=60, reason="fixed")
        assert "can change: 5." in text_of(asked)
        assert rows() == before
        typed = hidden_in(asked, "number") | hidden_in(asked, "text")
        assert typed == {"runs": "2", "per_minute": "60", "reason": "fixed"}
        dead(9)
        said = admin_client.post(url_of("retry"), hidden_in(asked) | typed, follow=True)
        assert "5 retried" in text_of(said), "it is those that were counted"

    def test_a_throttle_spreads_them(self, admin_client: Client) -> None:
        for number in range(5):
            dead(number)
        retry(admin_client, ALL, per_minute=6)
        due = list(Job.objects.order_by("next_run_at").values_list("next_run_at", flat=True))
        gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(due)]
        assert gaps == [pytest.approx(10, abs=1)] * 4
        assert min(gaps) >= 9.999, "never more a minute than was asked for"

    def test_many_are_an_operation_that_workers_do(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mass, "AT_ONCE", 2)
        with all_faults() as about:
            for act, left in ((retry, 3), (delete, 0)):
                with about(act.__name__), undone():
                    jobs = [dead(number).pk for number in range(3)]
                    other = dead(error="KeyError: {}")
                    assert "Started as operation" in text_of(act(admin_client, ALL, **SURE))
                    assert Job.objects.dead_letters().count() == 4
                    for task in (PLAN, ACT):
                        run_job(Job.objects.get(task=task).pk)
                    assert Job.objects.dead_letters().get() == other
                    assert Job.objects.filter(pk__in=jobs).count() == left

    def test_workers_are_woken_once_something_is_due(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        woken: list[str] = []
        monkeypatch.setattr(make_due, "wake_workers", lambda alias, queues: woken.append(alias))
        for number in range(2):
            dead(number)
        retry(admin_client, ALL, per_minute=1)
        assert woken == ["default"]
        retry(admin_client, ALL)
        assert woken == ["default"], "nothing was revived"

    @each_of(
        {"runs": 0},
        {"runs": 101},
        {"runs": "x"},
        {"per_minute": 0},
        {"reason": "x" * 501},
        {"reason": "\x00"},
        around=undone,
    )
    def test_nonsense_is_refused_with_a_reason(self, admin_client: Client, *, data: Any) -> None:
        job = dead()
        before = rows()
        page = retry(admin_client, jobs=[job], **data).content.decode()
        assert 'class="error"' in page
        assert rows() == before

    def test_selected_ones_are_not_tried_first(self, admin_client: Client) -> None:
        """Only an operation can wait for them."""
        jobs = [dead(number) for number in range(4)]
        page = retry(admin_client, jobs=jobs, runs=0, first=1).content.decode()
        assert 'name="runs"' in page
        assert 'name="first"' not in page
        retry(admin_client, jobs=jobs, first=1)
        assert not Job.objects.filter(status=Status.DEAD_LETTERED).exists()
        assert "first" not in LogEntry.objects.first().change_message  # type: ignore[union-attr]

    @each_of([], ["x", "-1", "9" * 40, "٣"], around=undone)
    def test_nothing_selected_is_told(self, admin_client: Client, *, ids: Any) -> None:
        dead()
        before = rows()
        for act in (retry, delete):
            assert "No jobs are selected." in text_of(act(admin_client, id=ids, **SURE))
        assert rows() == before
        assert not LogEntry.objects.exists()


class TestDelete:
    def test_it_asks_first_and_changes_nothing(self, admin_client: Client) -> None:
        jobs = [dead(number, task=f"shop.task{number}") for number in range(2)]
        dead(3, task="shop.another")
        before = rows()
        for scope, count in ((SELECTED, 2), (ALL, 3)):
            page = delete(admin_client, scope, jobs)
            assert f"can change: {count}." in text_of(page)
            assert (f"#{jobs[0].pk}" in text_of(page)) == (scope == SELECTED)
            assert ("all that match" in text_of(page)) == (scope == ALL)
        assert rows() == before
        assert not LogEntry.objects.exists()

    def test_once_confirmed_with_a_reason_they_are_gone_with_their_attempts(self, admin_client: Client) -> None:
        chosen, other = dead(1), dead(2)
        AttemptFactory(job=chosen)
        page = delete(admin_client, jobs=[chosen])
        form = hidden_in(page)
        assert form["id"] == str(chosen.pk)
        page = admin_client.post(url_of("delete"), form | SURE, follow=True)
        assert "1 deleted." in text_of(page)
        assert list(Job.objects.all()) == [other]
        assert not Attempt.objects.exists()

    @each_of(*product(["", "   ", "\x00", "x" * 501], [SELECTED, ALL]), around=undone)
    def test_without_a_reason_it_asks_again(self, admin_client: Client, *, why: Any, scope: Any) -> None:
        job = dead()
        before = rows()
        page = delete(admin_client, scope, [job], confirmed="yes", reason=why)
        assert 'class="errorlist"' in page.content.decode()
        assert "can change: 1." in text_of(page)
        assert rows() == before

    def test_what_moved_on_since_the_question_stays(self, admin_client: Client) -> None:
        chosen, revived = dead(1), dead(2)
        delete(admin_client, jobs=[chosen, revived])
        Job.objects.retry([revived.pk])
        page = delete(admin_client, jobs=[chosen, revived], **SURE)
        assert "1 deleted, 1 no longer matched or locked." in text_of(page)
        assert list(Job.objects.all()) == [revived]

    def test_what_died_since_the_question_stays(self, admin_client: Client) -> None:
        dead(1)
        asked = delete(admin_client, ALL)
        assert "can change: 1." in text_of(asked)
        other = dead(2)
        page = delete(admin_client, ALL, **(SURE | hidden_in(asked)))
        assert "1 deleted." in text_of(page)
        assert list(Job.objects.all()) == [other]

    def test_what_is_revived_in_the_last_moment_stays(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = dead()
        too_late = steps.before(JobManager.prune_these, lambda: Job.objects.retry([job.pk]))
        monkeypatch.setattr(JobManager, "prune_these", too_late)
        assert "0 deleted, 1 no longer matched" in text_of(delete(admin_client, jobs=[job], **SURE))
        assert Job.objects.get().status == Status.PENDING
        assert not LogEntry.objects.exists()

    @each_of((retry, "5 retried."), (delete, "5 deleted"), around=undone)
    def test_all_of_an_error_are_revived_or_gone_and_no_other(
        self, admin_client: Client, *, act: Any, said: Any
    ) -> None:
        for number in range(5):
            dead(number)
        other, done = (
            dead(error="KeyError: other"),
            make_job(Status.COMPLETED, last_error="ValueError: order 1"),
        )
        assert said in text_of(act(admin_client, ALL, **SURE))
        assert list(Job.objects.dead_letters()) == [other]
        done.refresh_from_db()
        assert done.status == Status.COMPLETED
        assert Job.objects.count() == (7 if act is retry else 2)

    def test_in_a_project_of_atomic_requests(self, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        for alias in connections:
            monkeypatch.setitem(connections.settings[alias], "ATOMIC_REQUESTS", True)
        chosen, revived = dead(1), dead(2)
        assert "1 retried" in text_of(retry(admin_client, jobs=[revived]))
        assert "1 deleted" in text_of(delete(admin_client, jobs=[chosen], **SURE))
        assert list(Job.objects.all()) == [revived]


class TestTheLog:
    def test_each_selected_job_gets_an_entry_with_who_and_why(self) -> None:
        chosen, moved_on = dead(1), dead(2)
        Job.objects.retry([moved_on.pk])
        client = staff("pulse_view_jobs", "pulse_retry_jobs", "pulse_delete_jobs")
        retry(client, jobs=[chosen, moved_on], runs=2, per_minute=60, reason="the shop is back")
        entry = LogEntry.objects.get()
        assert (entry.user.username, entry.object_id, entry.action_flag) == ("operator", str(chosen.pk), CHANGE)
        assert (entry.object_repr, entry.content_type.model) == (str(chosen), "job")
        assert entry.change_message == "Retried: minimum runs 2, Maximum jobs per minute 60, reason the shop is back"
        job = dead(3)
        delete(client, jobs=[job], **SURE)
        entry = LogEntry.objects.get(action_flag=DELETION)
        assert (entry.object_id, entry.object_repr) == (str(job.pk), str(job))
        assert entry.change_message == "Deleted: reason nobody wants them"

    @each_of((retry, CHANGE), (delete, DELETION), around=undone)
    def test_all_of_an_error_get_one_each(self, admin_client: Client, *, act: Any, flag: Any) -> None:
        jobs = [dead(number) for number in range(3)]
        act(admin_client, ALL, confirmed="yes", reason="a reason")
        entries = LogEntry.objects.filter(action_flag=flag, change_message__contains="a reason")
        assert {entry.object_id for entry in entries} == {str(job.pk) for job in jobs}

    def test_nothing_is_logged_where_nothing_was_changed(self, admin_client: Client) -> None:
        for act in (retry, delete):
            for scope in (SELECTED, ALL):
                act(admin_client, scope, [make_job(Status.COMPLETED)], **SURE)
        assert not LogEntry.objects.exists()


WHO: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "view": ("pulse_view_jobs",),
    "retry": ("pulse_view_jobs", "pulse_retry_jobs"),
    "delete": ("pulse_view_jobs", "pulse_delete_jobs"),
    "blind": ("pulse_retry_jobs", "pulse_delete_jobs"),
}
MAY_LOOK = {"view", "retry", "delete", "super"}
MAY = {"retry": {"retry", "super"}, "delete": {"delete", "super"}}


def client_of(who: str, **options: Any) -> Client:
    if who in WHO:
        return staff(*WHO[who], **options)
    client = Client(**options)
    if who == "super":
        client.force_login(User.objects.create_superuser("root"))
    return client


class TestWhoMay:
    @each_of(*product([SELECTED, ALL], MAY, [*WHO, "super", "nobody"]), around=undone)
    def test_act(self, *, scope: Any, act: Any, who: Any) -> None:
        job = dead()
        client = client_of(who)
        before = rows()
        status = client.post(url_of(act), {"runs": 1, "scope": scope, "id": job.pk} | SURE | ASKED_AT).status_code
        assert (rows() != before) == (who in MAY[act])
        assert LogEntry.objects.exists() == (who in MAY[act])
        assert status == (302 if who in MAY[act] | {"nobody"} else 403)

    @each_of(*product(MAY, sorted(MAY_LOOK)), around=undone)
    def test_acts_are_offered_to_those_who_may(self, *, act: Any, who: Any) -> None:
        dead()
        page = client_of(who).get(url_of("group")).content.decode()
        assert (html.escape(url_of(act)) in page) == (who in MAY[act])
        assert ('type="checkbox"' in page) == (who != "view")

    def test_the_entry_is_in_the_index_for_those_who_may_look(self) -> None:
        client = staff("pulse_view_jobs")
        assert f'href="{LIST}"' in client.get(reverse("admin:index")).content.decode()
        User.objects.all().delete()
        assert LIST not in staff("pulse_view_workers").get(reverse("admin:index")).content.decode()


class TestHostileText:
    def test_it_is_only_text(self, admin_client: Client) -> None:
        job = dead(error=EVIL.replace("{", "{{").replace("}", "}}"), task=EVIL, queue=EVIL)
        AttemptFactory(job=job, worker=EVIL, error_class=EVIL, message=EVIL, traceback=EVIL, outcome="FAILED")
        [group] = groups.groups("default").groups
        for response in (
            admin_client.get(LIST),
            admin_client.get(url_of("group", group.fingerprint)),
            admin_client.get(url_of("group", EVIL)),
            delete(admin_client, jobs=[job], error=group.fingerprint),
            delete(admin_client, ALL, error=group.fingerprint),
            retry(admin_client, error=EVIL, reason=EVIL, runs="x"),
        ):
            page = response.content.decode()
            assert response.status_code == 200
            assert "<img" not in page
            assert page.count("</script>") == page.count("<script")
            assert "img src" in html.unescape(page)
            assert "{{7*7}}" in html.unescape(page) or "{{#*#}}" in html.unescape(page)


def test_a_site_of_another_name_leads_to_itself(monkeypatch: pytest.MonkeyPatch, rf: RequestFactory) -> None:
    """And one that does not show jobs has no links to them."""
    asked: list[str] = []

    def reversed_there(name: str, *args: Any, **kwargs: Any) -> str:
        asked.append(name)
        return reverse(name.replace("ops:", "admin:"), *args, **kwargs)

    monkeypatch.setattr("pulse_django.console.pages.reverse", reversed_there)
    site = AdminSite(name="ops")
    monkeypatch.setattr(site, "each_context", lambda request: {})
    request = rf.get(url_of("group"))
    request.user = User.objects.create_superuser("root")
    dead()
    response: Any = DeadLetterAdmin(DeadLetter, site).group_view(request)
    assert {name.partition(":")[0] for name in asked} == {"ops"}
    assert response.context_data["latest_url"] == ""
    assert request.current_app == "ops"  # type: ignore[attr-defined]
