"""Mass operations trust no row: only what the admin asked for is done, and only while the operation is open."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from pulse_django import api
from pulse_django.console.mass.criteria import Criteria
from pulse_django.console.mass.operation import KIND, start_operation
from pulse_django.console.mass.work import act_on_jobs, find_matching_jobs
from pulse_django.exceptions import InvalidJob, InvalidWorkflow
from pulse_django.models import Job, Schedule, StoredBatch
from pulse_django.operations.acts import ACTS
from pulse_django.queue.words.own_tasks import ACT, PLAN
from pulse_django.queue.words.states import Status
from pulse_django.schedules.forms import ScheduleForm
from pulse_django.schedules.ticking import tick_due
from pulse_django.testing import drain, run_job
from pulse_django.workflows import rewind
from pulse_django.workflows.batches import Batch
from tests.factories import make_job
from tests.faults import all_faults, each_of
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.django_db
DEAD = "status__exact=DEAD_LETTERED"


@pytest.fixture
def boss() -> User:
    return User.objects.create_superuser("boss")


def begin(boss: User, verb: str = "delete", query: str = f"{DEAD}&queue=mail") -> Batch:
    given = {"delete": {"reason": "old"}, "cancel": {"reason": "no"}}[verb]
    return start_operation("default", ACTS[verb], Criteria.read(query), given, boss)


def insert(task: str, batch_id: int, kwargs: dict[str, Any]) -> None:
    """Write a job as a role that may only enqueue can write it."""
    sql(
        "INSERT INTO pulse_django_job (task, queue, kwargs, batch_id) VALUES (%s, 'default', %s, %s)",
        task,
        json.dumps(kwargs),
        batch_id,
    )


def open_batch(context: dict[str, Any]) -> int:
    """Open a batch as a role that may only enqueue can."""
    return Batch.open("delete all", kind=KIND, context=context, using="default").id


def kwargs_of(task: str) -> dict[str, Any]:
    return dict(Job.objects.filter(task=task).earliest("id").kwargs)


class TestForgedRows:
    def finished(self, boss: User) -> tuple[Batch, list[int]]:
        """Return a finished operation, and dead letters that match its filter and that it did not meet."""
        make_job(Status.DEAD_LETTERED, queue="mail")
        batch = begin(boss)
        drain(queues=["default"])
        assert batch.row.finished_at is not None
        spared = [make_job(Status.DEAD_LETTERED, queue="mail").pk for _ in range(2)]
        sql("UPDATE pulse_django_job SET finished_at = now() - interval '1 h' WHERE id = ANY (%s)", spared)
        return batch, spared

    @each_of(
        *{
            "a chunk of a finished operation": lambda batch, ids: insert(ACT, batch.id, {"ids": ids, "met": 0}),
            "its chunk with other ids": lambda batch, ids: insert(ACT, batch.id, kwargs_of(ACT) | {"ids": ids}),
            "its search, again": lambda batch, ids: insert(PLAN, batch.id, kwargs_of(PLAN)),
            "its search with the signature of a chunk": lambda batch, ids: insert(
                PLAN, batch.id, {"signature": kwargs_of(ACT)["signature"]}
            ),
            "an operation of one's own": lambda batch, ids: insert(
                ACT, open_batch(batch.context), {"ids": ids, "met": 0}
            ),
            "its chunk in an operation of one's own": lambda batch, ids: insert(
                ACT, open_batch(batch.context), kwargs_of(ACT) | {"ids": ids}
            ),
            "its search in an operation of one's own": lambda batch, ids: insert(
                PLAN, open_batch(batch.context), kwargs_of(PLAN)
            ),
            "a signature that is none": lambda batch, ids: insert(
                ACT, open_batch(batch.context), {"ids": ids, "met": 0, "signature": [None, ":"]}
            ),
        }.items()
    )
    def test_nothing_is_done_for_rows_that_the_admin_did_not_write(self, boss: User, *, case: Any, forge: Any) -> None:
        with undone():
            batch, spared = self.finished(boss)
            known = set(Job.objects.values_list("pk", flat=True))
            forge(batch, spared)
            drain(queues=["default"])
            assert Job.objects.filter(pk__in=spared).count() == 2, "they were deleted"
            for forged in Job.objects.exclude(pk__in=known):
                assert forged.status == Status.CANCELLED, forged.last_error

    @each_of(*("finished_at", "cancelled_at"))
    def test_a_chunk_does_nothing_once_its_operation_is_over(self, boss: User, *, over: Any) -> None:
        """Its signature is right: a row of the operation was copied."""
        with undone():
            spared = make_job(queue="mail").pk
            batch = begin(boss, "cancel", "queue=mail")
            run_job(Job.objects.get(task=PLAN).pk)
            sql(f"UPDATE pulse_django_batch SET {over} = now(), sealed_at = now(), ended_at = now()")
            copied = kwargs_of(ACT)
            assert copied["ids"] == [spared]
            Job.objects.db_manager("default").prune_these(batch.jobs.values_list("pk", flat=True))
            insert(ACT, batch.id, copied)
            drain(queues=["default"])
            assert Job.objects.get(pk=spared).status == Status.PENDING

    @each_of(*{"act": "cancel", "query": "queue=sms", "until": 2**62, "asked_at": "2999-01-01T00:00:00+00:00"}.items())
    def test_an_operation_whose_context_was_changed_does_nothing(self, boss: User, *, name: Any, value: Any) -> None:
        with undone():
            ids = [make_job(Status.DEAD_LETTERED, queue=queue).pk for queue in ("mail", "sms")]
            batch = begin(boss)
            StoredBatch.objects.update(context=batch.context | {name: value})
            drain(queues=["default"])
            assert Job.objects.filter(pk__in=ids).count() == 2
            assert batch.row.cancelled_at is None, "or it would be a way to stop an operation"

    def test_it_goes_on_after_the_secret_key_was_changed_for_one_with_a_fallback(
        self, boss: User, settings: Any
    ) -> None:
        spared = make_job(Status.DEAD_LETTERED, queue="mail").pk
        begin(boss)
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new", [settings.SECRET_KEY]
        drain(queues=["default"])
        assert not Job.objects.filter(pk=spared).exists()


class TestFromOutside:
    def test_its_jobs_are_neither_enqueued_amended_nor_retried(self, boss: User) -> None:
        def schedule() -> None:
            form = ScheduleForm({"name": "x", "task": ACT, "every": "1:00:00", "missed": "skip", "overlap": "allow"})
            if "task" in form.errors:
                raise InvalidJob(ACT)

        batch = begin(boss)
        waiting = Job.objects.get(task=PLAN).pk
        died = make_job(Status.DEAD_LETTERED, task=ACT, batch_id=batch.id).pk
        sql("INSERT INTO pulse_django_step (job_id, number, name, attempt, token) VALUES (%s, 1, 'act', 1, 1)", died)
        acts: dict[str, Callable[[], Any]] = {
            "enqueue": find_matching_jobs.enqueue,
            "enqueue with a signature": lambda: act_on_jobs.enqueue([1], 0, signature="x"),
            "enqueue_many": lambda: api.enqueue_many(act_on_jobs, [([1], 0)]),
            "a batch": lambda: batch.add(find_matching_jobs),
            "a schedule": schedule,
            "amend": lambda: api.amend(waiting, kwargs={"signature": "x"}),
            "retry_from": lambda: rewind.retry_from(died, "act"),
            "fork": lambda: rewind.fork(died, "act"),
        }
        count = Job.objects.count()
        with all_faults() as about:
            for name, act in acts.items():
                with about(name), undone(), pytest.raises((InvalidJob, InvalidWorkflow), match=r"Pulse|act_on_jobs"):
                    act()
            with about("retry"):
                assert api.retry(died).moved_on == {died}
            with about("retry with a unique key"):
                sql("UPDATE pulse_django_job_hot SET unique_key = 'k' WHERE id = %s", died)
                assert api.retry(died).moved_on == {died}
        assert Job.objects.count() == count

    @each_of(*{PLAN: {}, ACT: {"ids": [1], "met": 0}}.items())
    def test_a_schedule_that_a_row_gives_such_a_task_is_refused(self, *, task: Any, kwargs: Any) -> None:
        with undone():
            row = Schedule.objects.create(name="x", task="shop.send_mail", args=["A-1"], every=timedelta(hours=1))
            change = "UPDATE pulse_django_schedule SET task = %s, args = '[]', kwargs = %s, next_at = now()"
            sql(change, task, json.dumps(kwargs))
            ticked = tick_due("default", only=row)
            assert ticked.job_ids == []
            assert "Pulse" in ticked.ticks[0][1].note

    def test_the_pages_offer_none_of_it(self, boss: User, client: Client) -> None:
        client.force_login(boss)
        begin(boss)
        died = make_job(Status.DEAD_LETTERED, task=ACT).pk
        for pk in (Job.objects.get(task=PLAN).pk, died):
            page = client.get(reverse("admin:pulse_django_job_change", args=[pk])).content.decode()
            assert "amend" not in page
            assert 'value="Retry"' not in page
            assert "act/retry" not in page
