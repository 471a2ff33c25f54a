"""Operations on all jobs that match a filter: what they mean, what they leave alone, and that they end."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django import Context
from pulse_django.console.mass import page as mass_page
from pulse_django.console.mass import work
from pulse_django.console.mass.criteria import Criteria, InvalidCriteria
from pulse_django.console.mass.operation import KIND, start_operation
from pulse_django.console.mass.totals import totals_of
from pulse_django.models import Job, StoredBatch
from pulse_django.operations.acts import ACTS
from pulse_django.queue.words.own_tasks import ACT, PLAN
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain, run_job
from pulse_django.workflows.batches import Batch
from tests.console.staff import staff
from tests.factories import make_job, now
from tests.faults import each_of
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.django_db

PERMISSIONS = (
    "pulse_view_jobs",
    "pulse_view_workflows",
    "pulse_retry_jobs",
    "pulse_cancel_jobs",
    "pulse_schedule_jobs",
    "pulse_delete_jobs",
)
DEAD = "status__exact=DEAD_LETTERED"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mass_page, "AT_ONCE", -1)
    monkeypatch.setattr(work, "BATCH", 2)
    monkeypatch.setattr(work, "AHEAD", 2)


@pytest.fixture
def client(db: None) -> Client:
    return staff(*PERMISSIONS)


def dead(count: int = 1, **options: Any) -> list[int]:
    return [make_job(Status.DEAD_LETTERED, **options).pk for _ in range(count)]


def url(verb: str, query: str) -> str:
    return reverse("admin:pulse_django_job_mass", args=[verb]) + f"?{query}"


def begin(client: Client, verb: str, query: str, **given: Any) -> Batch:
    """Post the form, close the browser, and return the operation."""
    form = {"runs": 1, "reason": "the bank is back"} | given
    assert client.post(url(verb, query), form).status_code == 302
    return Batch(StoredBatch.objects.filter(kind=KIND).latest("id").pk, "default")


def cancel_url(batch: Batch) -> str:
    return reverse("admin:pulse_django_storedbatch_act", args=[batch.id, "cancel"])


def statuses(ids: list[int]) -> list[str]:
    return list(Job.objects.filter(pk__in=ids).order_by("pk").values_list("status", flat=True))


def lines(batch: Batch) -> tuple[str, ...]:
    found = totals_of(batch)
    assert found is not None
    return found.lines


def test_the_request_only_writes_it_down_and_workers_do_it(client: Client) -> None:
    ids, other = dead(7, queue="mail"), dead(1, queue="sms")
    batch = begin(client, "retry", f"{DEAD}&queue=mail", runs=3)
    assert statuses(ids) == [Status.DEAD_LETTERED] * 7
    assert batch.progress().total == 1
    drain(queues=["default"])
    assert statuses(ids) == [Status.PENDING] * 7
    assert statuses(other) == [Status.DEAD_LETTERED]
    assert batch.row.finished_at is not None
    assert batch.progress().completed == 1 + 4
    assert lines(batch)[0] == "7 retried"


def test_few_are_changed_at_once_and_each_is_logged(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mass_page, "AT_ONCE", 3)
    ids = dead(3, queue="mail")
    page = client.post(url("retry", f"{DEAD}&queue=mail"), {"runs": 1, "reason": "it is back"}, follow=True)
    assert "3 retried." in page.content.decode()
    assert statuses(ids) == [Status.PENDING] * 3
    assert LogEntry.objects.filter(change_message__contains="it is back").count() == 3
    assert not StoredBatch.objects.exists()
    dead(4, queue="sms")
    begin(client, "retry", f"{DEAD}&queue=sms")


@each_of(-1, 9, around=undone)
def test_what_ended_after_the_page_was_opened_is_left(client: Client, *, at_once: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mass_page, "AT_ONCE", at_once)
        [seen] = dead(queue="mail")
        page = client.get(url("retry", f"{DEAD}&queue=mail")).content.decode()
        asked_at = page.split('name="asked_at" value="')[1].split('"')[0]
        [later] = dead(queue="mail")
        client.post(url("retry", f"{DEAD}&queue=mail"), {"runs": 1, "asked_at": asked_at})
        drain(queues=["default"])
        assert statuses([seen, later]) == [Status.PENDING, Status.DEAD_LETTERED]


def test_the_page_asks_with_the_number_and_the_filter_in_words(client: Client) -> None:
    dead(3, queue="mail")
    page = client.get(url("retry", f"{DEAD}&queue=mail")).content.decode()
    assert "this action can change: 3" in page
    assert "queue: mail" in page
    assert not StoredBatch.objects.exists()


def test_the_list_offers_it_once_it_is_filtered(client: Client) -> None:
    dead()
    listed = reverse("admin:pulse_django_job_changelist")
    assert "job/mass/" not in client.get(listed).content.decode()
    page = client.get(f"{listed}?queue=default&older=5").content.decode()
    assert "job/mass/cancel/?queue=default" in page


def test_its_page_says_who_started_it_and_what_was_done(client: Client) -> None:
    dead(3)
    batch = begin(client, "retry", DEAD)
    page = reverse("admin:pulse_django_storedbatch_change", args=[batch.id])
    assert "still searching for matching jobs" in client.get(page).content.decode()
    drain(queues=["default"])
    shown = client.get(page).content.decode()
    assert "Started by operator." in shown
    assert "3 retried" in shown
    entry = LogEntry.objects.get()
    assert entry.object_id == str(batch.id)
    assert "the bank is back" in entry.change_message


def test_cancel_takes_what_waits_and_asks_what_runs(client: Client) -> None:
    waiting, running = make_job(queue="mail").pk, make_job(Status.RUNNING, queue="mail").pk
    batch = begin(client, "cancel", "queue=mail", reason="not wanted")
    drain(queues=["default"])
    assert Job.objects.get(pk=waiting).cancel_reason == "not wanted"
    assert Job.objects.get(pk=running).cancel_requested_at is not None
    assert lines(batch)[:2] == ("1 cancelled", "1 asked to stop")


def test_move_takes_what_waits(client: Client) -> None:
    ids = [make_job(queue="mail").pk for _ in range(3)]
    begin(client, "move", "queue=mail", queue="slow", priority="")
    drain(queues=["default"])
    assert set(Job.objects.filter(pk__in=ids).values_list("queue", flat=True)) == {"slow"}


def test_its_own_jobs_are_never_meant(client: Client) -> None:
    victim = make_job(queue="default", task="not.known").pk
    batch = begin(client, "cancel", "queue=default", reason="all of it")
    for job in Job.objects.filter(task=PLAN):
        run_job(job.pk)
    for job in Job.objects.filter(task=ACT):
        run_job(job.pk)
    assert statuses([victim]) == [Status.CANCELLED]
    assert batch.progress().cancelled == 0


def test_jobs_that_come_after_the_request_are_not_meant(client: Client) -> None:
    make_job(queue="mail")
    begin(client, "cancel", "queue=mail", reason="no")
    late = make_job(queue="mail").pk
    drain(queues=["default"])
    assert statuses([late]) == [Status.PENDING]


def test_a_dead_letter_that_dies_again_is_not_retried_again(client: Client) -> None:
    [first, second] = dead(2, queue="mail")
    begin(client, "retry", f"{DEAD}&queue=mail")
    sql("UPDATE pulse_django_job SET finished_at = clock_timestamp() + interval '1 s' WHERE id = %s", second)
    drain(queues=["default"])
    assert statuses([first, second]) == [Status.PENDING, Status.DEAD_LETTERED]


def test_a_run_that_dies_after_its_work_does_not_do_it_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of a chunk, its count and its step are one transaction; so are the chunks that a look enqueues."""
    ids = dead(4, queue="mail")
    batch = begin(client, "retry", f"{DEAD}&queue=mail")
    step, died = Context.step_with_jobs, []

    def dies_after_it(context: Context, *args: Any) -> Any:
        found = step(context, *args)
        if context.attempt == 1:
            died.append(context.job_id)
            raise ConnectionError("cut off")
        return found

    monkeypatch.setattr(Context, "step_with_jobs", dies_after_it)
    for _ in range(3):  # a run each of the one that finds, and of the others
        drain(queues=["default"], failures="keep")
        sql("UPDATE pulse_django_job SET next_run_at = clock_timestamp() WHERE status = 'RETRYING'")
    assert len(died) == 1 + 2
    assert statuses(ids) == [Status.PENDING] * 4
    assert lines(batch)[0] == "4 retried"
    assert Job.objects.filter(task=ACT).count() == 2


def test_it_stops_between_two_chunks(client: Client) -> None:
    ids = dead(8, queue="mail")
    batch = begin(client, "retry", f"{DEAD}&queue=mail")
    run_job(Job.objects.get(task=PLAN).pk)
    first, *_ = Job.objects.filter(task=ACT).order_by("id")
    run_job(first.pk)
    client.post(cancel_url(batch), {"cancel-reason": "enough"})
    drain(queues=["default"])
    assert statuses(ids) == [Status.PENDING] * 2 + [Status.DEAD_LETTERED] * 6
    assert batch.row.finished_at is not None
    assert lines(batch)[0] == "2 retried"


def test_who_may_start_it_may_stop_it_and_no_other_workflow() -> None:
    client = staff("pulse_view_jobs", "pulse_view_workflows", "pulse_retry_jobs")
    dead(4, queue="mail")
    batch = begin(client, "retry", f"{DEAD}&queue=mail")
    assert client.post(cancel_url(batch), {"cancel-reason": "enough"}).status_code == 302
    assert batch.row.cancelled_at is not None
    other = Batch.open("an order")
    assert client.post(cancel_url(other), {"cancel-reason": "enough"}).status_code == 403
    assert other.row.cancelled_at is None


@each_of("permission", "account", around=undone)
def test_it_ends_when_its_user_may_not_do_it_any_more(client: Client, *, lost: Any) -> None:
    ids = dead(4, queue="mail")
    batch = begin(client, "retry", f"{DEAD}&queue=mail")
    run_job(Job.objects.get(task=PLAN).pk)
    if lost == "permission":
        User.objects.get().user_permissions.remove(Permission.objects.get(codename="pulse_retry_jobs"))
    else:
        User.objects.update(is_active=False)
    drain(queues=["default"])
    assert statuses(ids) == [Status.DEAD_LETTERED] * 4
    assert "no longer has the permission" in batch.row.cancel_reason
    assert batch.row.finished_at is not None


def test_two_operators_at_once_retry_each_job_once(client: Client) -> None:
    ids = dead(6, queue="mail")
    batches = [begin(client, "retry", f"{DEAD}&queue=mail", runs=5) for _ in range(2)]
    drain(queues=["default"])
    assert statuses(ids) == [Status.PENDING] * 6
    assert sorted(lines(batch)[0] for batch in batches) == ["0 retried", "6 retried"]


@each_of(*[act.name for act in ACTS.values() if act.label_of_all], around=undone)
def test_each_needs_its_permission(*, verb: Any) -> None:
    wanted = ACTS[verb].permission
    client = staff("pulse_view_jobs", *(one for one in PERMISSIONS if one != wanted))
    assert client.get(url(verb, "queue=mail")).status_code == 403
    assert client.post(url(verb, "queue=mail"), {"reason": "x", "runs": 1, "queue": "q"}).status_code == 403
    assert not StoredBatch.objects.exists()


@each_of(
    "",
    "older=5",
    "args__icontains=secret",
    "queue=mail&task__startswith=a",
    "status__exact=NOTHING",
    "age=century",
    "batch=x",
    "tag=%00",
    "queue=" + "x" * 5_000,
    "queue=a%00b",
    "q=",
    "q=%00",
    "q=%22%22",
    "queue=mail&q=+%27%27",
    around=undone,
)
def test_a_filter_that_is_none_means_no_job_and_not_all(client: Client, *, query: Any) -> None:
    make_job()
    with pytest.raises(InvalidCriteria):
        Criteria.read(query)
    assert client.post(url("cancel", query), {"reason": "x"}).status_code == 302
    assert not StoredBatch.objects.exists()


def test_a_filter_that_is_none_any_more_cancels_the_operation(client: Client) -> None:
    """As after a release that took the filter away."""
    ids = dead(2, queue="mail")
    criteria = Criteria("queues=mail", "queues: mail")
    given = {"runs": 1, "per_minute": None, "reason": ""}
    batch = start_operation("default", ACTS["retry"], criteria, given, User.objects.get())
    drain(queues=["default"])
    assert statuses(ids) == [Status.DEAD_LETTERED] * 2
    assert "Unknown filter" in batch.row.cancel_reason


def test_every_filter_of_the_list_means_what_the_list_shows(client: Client) -> None:
    job = make_job(Status.DEAD_LETTERED, queue="mail", task="shop.send", last_error="Timeout: 5")
    dead(2, queue="sms", task="shop.text", last_error="Refused")
    for query in (
        "queue=mail",
        "task=shop.send",
        "q=Timeout",
        f"q=%23{job.pk}",
        "q=error:Timeout",
        f"{DEAD}&task=shop.send",
        "error=Timeout%3A+%23",
    ):
        listed = client.get(reverse("admin:pulse_django_job_changelist") + f"?{query}").context["cl"].result_list
        assert [one.pk for one in listed] == [job.pk], query
        assert list(Criteria.read(query).jobs("default").values_list("pk", flat=True)) == [job.pk], query


def test_run_takes_what_waits_for_its_time(client: Client) -> None:
    early = make_job(queue="mail", next_run_at=now(timedelta(hours=1)))
    due = make_job(queue="mail", next_run_at=now(-timedelta(hours=1)))
    other = make_job(queue="sms", next_run_at=now(timedelta(hours=1)))
    batch = begin(client, "run-now", "queue=mail")
    drain(queues=["default"])
    assert lines(batch)[0] == "1 made due"
    assert Job.objects.due().filter(pk=early.pk).exists()
    assert not Job.objects.due().filter(pk=other.pk).exists()
    assert Job.objects.get(pk=due.pk).next_run_at == due.next_run_at, "it keeps its place"


def test_delete_takes_what_has_ended_and_wants_to_be_confirmed(client: Client) -> None:
    ids, waiting = dead(3, queue="mail"), make_job(queue="mail")
    over = make_job(Status.COMPLETED, queue="mail")
    assert client.post(url("delete", "queue=mail"), {"reason": "x"}).status_code == 200
    assert not StoredBatch.objects.exists()
    batch = begin(client, "delete", "queue=mail", confirmed="on")
    drain(queues=["default"])
    assert lines(batch)[0] == "4 deleted"
    assert not Job.objects.filter(pk__in=[*ids, over.pk]).exists()
    assert Job.objects.filter(pk=waiting.pk).exists()


def test_the_pace_spreads_what_is_retried(client: Client) -> None:
    ids = dead(6, queue="mail")
    begin(client, "retry", f"{DEAD}&queue=mail", per_minute=60)
    drain(queues=["default"])
    due = list(Job.objects.filter(pk__in=ids).order_by("pk").values_list("next_run_at", flat=True))
    gaps = [(after - before).total_seconds() for before, after in pairwise(due)]
    assert all(0.5 < gap < 30 for gap in gaps), gaps


def test_a_request_takes_as_many_statements_whatever_it_means(client: Client) -> None:
    taken = []
    for count in (1, 300):
        dead(count, queue=f"of {count}")
        with CaptureQueriesContext(connection) as queries:
            begin(client, "retry", f"{DEAD}&queue=of {count}")
        taken.append(len(queries))
    assert taken[0] == taken[1]
