"""What tasks and calls say of expiry, tags and meta, and what is refused."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse_django import enqueue_many, task
from pulse_django.models import Job
from pulse_django.queue.settle import settle
from pulse_django.queue.words.bounds import MAX_META_BYTES, MAX_TAG, MOST_TAGS
from pulse_django.queue.words.decisions import Complete, Retry
from pulse_django.queue.words.job_options import tag_of
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Failed, Succeeded
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.verb_results import Report
from pulse_django.run.registry import InvalidTask
from pulse_django.testing import assert_enqueued
from testproject.shop.models import Order
from tests.faults import each_of
from tests.queue.steps import claim_one

pytestmark = pytest.mark.usefixtures("pulse_db")

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@task(name="labels.send", expires=HOUR, give_up_after=2 * HOUR, tags=["mail"])
def send(a: int = 0) -> None: ...


def test_a_task_gives_its_jobs_what_it_declares_and_a_call_adds_to_it() -> None:
    send.enqueue()
    send.using(tags=["vip", "mail"], meta={"by": "ada"}, expires=MINUTE, give_up_after=HOUR).enqueue()
    first, second = Job.objects.order_by("id")
    assert (first.tags, first.meta, first.give_up_after) == (["mail"], None, 2 * HOUR)
    assert abs(first.expires_at - first.created_at - HOUR) < MINUTE
    assert (second.tags, second.meta, second.give_up_after) == (["mail", "vip"], {"by": "ada"}, HOUR)
    assert abs(second.expires_at - second.created_at - MINUTE) < timedelta(seconds=20)


def test_a_call_may_name_the_instant_and_a_list_has_what_its_task_says() -> None:
    instant = datetime(2050, 1, 1, tzinfo=UTC)
    ids = enqueue_many(send.using(tags=["many"], meta={"n": 1}, expires=instant), [[1], [2]])
    for job in Job.objects.filter(pk__in=ids):
        assert (job.tags, job.meta, job.give_up_after) == (["mail", "many"], {"n": 1}, 2 * HOUR)
        assert job.expires_at == instant


def test_a_saved_object_is_a_tag_and_finds_its_jobs() -> None:
    order, other = Order.objects.create(number=1), Order.objects.create(number=2)
    send.using(tags=[order]).enqueue()
    send.using(tags=[other]).enqueue()
    assert Job.objects.for_object(order).get().tags == ["mail", f"shop.order:{order.pk}"]
    assert Job.objects.tagged("mail").count() == 2
    assert Job.objects.tagged("mail", tag_of(other)).count() == 1


def test_labels_stay_through_a_retry_and_in_history() -> None:
    send.using(meta={"by": "ada"}).enqueue()
    labels = (["mail"], {"by": "ada"}, 2 * HOUR)
    claim = claim_one(Identity("me"))
    assert claim.meta == {"by": "ada"}
    failed = Failed(ErrorReport.of(ValueError("no")))
    settle(Job.objects, [Report(claim.lease, failed, Retry(timedelta(), "no"))])
    assert Job.objects.values_list("tags", "meta", "give_up_after").get() == labels
    again = claim_one(Identity("me"))
    settle(Job.objects, [Report(again.lease, Succeeded(), Complete())])
    assert Job.objects.tagged("mail").values_list("status", "tags", "meta", "give_up_after").get() == (
        "COMPLETED",
        *labels,
    )


def test_a_task_with_labels_travels_by_name() -> None:
    changed = send.using(tags=["vip"], meta={"by": "ada"})
    assert pickle.loads(pickle.dumps(changed)) == changed
    assert hash(changed) != hash(send)


def test_an_assertion_can_name_labels() -> None:
    send.using(tags=["vip"], meta={"by": "ada"}, expires=MINUTE).enqueue(1)
    assert_enqueued(send.using(tags=["vip"], meta={"by": "ada"}, expires=MINUTE), 1)
    for wrong in ({"tags": ["other"]}, {"meta": {"by": "bob"}}, {"expires": 30 * MINUTE}):
        with pytest.raises(AssertionError, match="No waiting job"):
            assert_enqueued(send.using(**wrong), 1)  # type: ignore[arg-type]  # one of several


class Unstorable:
    pass


UNSTORABLE: list[tuple[dict[str, Any], str]] = [
    ({"tags": 5}, "tags: 5 is not a list of tags; write tags=[5]"),
    ({"tags": [""]}, "a tag must not be empty"),
    ({"tags": ["a b"]}, "'a b' contains spaces or unprintable characters"),
    ({"tags": ["x" * (MAX_TAG + 1)]}, "over the limit of 200"),
    ({"tags": [str(n) for n in range(MOST_TAGS + 1)]}, "21 tags, over the limit of 20"),
    ({"tags": [5]}, "5 is neither a str nor a model instance"),
    ({"tags": [Order]}, "is neither a str nor a model instance"),
    ({"tags": [Order(number=1)]}, "this shop.order is not saved yet"),
    ({"give_up_after": timedelta()}, "must be positive"),
]


@each_of(*UNSTORABLE)
def test_what_cannot_be_stored_is_refused_where_it_is_said(*, options: Any, message: Any) -> None:
    with pytest.raises(InvalidTask, match=message.replace("[", r"\[")):
        send.using(**options)
    with pytest.raises(InvalidTask):
        task(name="labels.wrong", **options)(lambda: None)


UNSTORABLE_META: list[tuple[Any, str]] = [
    ([1], "is not a dict"),
    ({"a": Unstorable()}, "Unstorable is not JSON serializable"),
    ({"a": "x" * MAX_META_BYTES}, "over the limit of 16384"),
    ({"a": "nul\0"}, "NUL character"),
]


@each_of(*UNSTORABLE_META)
def test_meta_that_cannot_be_stored_is_refused(*, meta: Any, message: Any) -> None:
    with pytest.raises(InvalidTask, match=message):
        send.using(meta=meta)


def test_an_instant_in_a_declaration_and_a_wrong_type_are_refused() -> None:
    with pytest.raises(TypeError, match="@task takes a number of seconds or a timedelta"):
        task(name="labels.wrong", expires=datetime(2050, 1, 1, tzinfo=UTC))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="neither a datetime nor a number of seconds or a timedelta"):
        send.using(expires=[5])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="meta cannot be set in the decorator"):
        task(name="labels.wrong", meta={})  # type: ignore[call-overload]


def test_a_delay_beyond_the_expiry_is_refused() -> None:
    with pytest.raises(InvalidTask, match="would expire before it is due"):
        send.using(run_after=2 * HOUR)
