"""Which shard a new job is stored in, and what is refused because it would need two."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.test import override_settings

from pulse_django import Batch, Limit, Unique, api, pause_task, resume_task, send_event, task
from pulse_django.checks import check_shards
from pulse_django.database_checks import check_database
from pulse_django.exceptions import InvalidJob, InvalidWorkflow, NotInsideTransaction
from pulse_django.models import Event, Job, Pause
from pulse_django.queue.words.leases import Identity
from pulse_django.run.registry import registry
from pulse_django.run.run import Run, running
from pulse_django.shards.ids import number_ids, problem_with_numbers
from pulse_django.shards.placement import by_key, shard_of_schedule
from pulse_django.workflows.builder import Workflow
from testproject.shop import tasks
from tests.faults import all_faults
from tests.shards.conftest import empty_shards
from tests.two_databases import SECOND, SHARDS

pytestmark = pytest.mark.usefixtures("two_shards")

MAIL_IN_SECOND = {"SHARDS": SHARDS, "QUEUE_SHARDS": {"mail": SECOND}}
SPREAD = {"SHARDS": SHARDS, "QUEUE_SHARDS": {"mail": ["default", SECOND]}, "PLACEMENT": "by_key"}
BESIDE_DATA = {"SHARDS": SHARDS, "PLACEMENT": "where_the_data_is"}


@task(queue_name="mail")
def post(to: str) -> None: ...


@task(queue_name="mail", unique=Unique())
def post_once(to: str) -> None: ...


@task(queue_name="mail", limit=Limit(max_running_per_key=2), limit_key="to")
def post_few(to: str) -> None: ...


@task(queue_name="mail", limit=Limit("post", max_running=5))
def post_limited(to: str) -> None: ...


@task(queue_name="other", limit=Limit("post", max_running=5))
def send_parcel(to: str) -> None: ...


@task(queue_name="mail", limit=Limit(max_running_per_key=2), limit_key="to", unique=Unique())
def post_few_once(to: str) -> None: ...


def where(result: Any) -> str:
    [alias] = [alias for alias in SHARDS if Job.objects.using(alias).filter(pk=result.id).exists()]
    return alias


def run_in(alias: str) -> Run:
    job = tasks.add.using(database=alias).enqueue(1, 1)
    [claim] = Job.objects.db_manager(alias).claim_these(Identity("me"), [int(job.id)])
    return Run(claim, alias=alias)


class TestByQueue:
    @override_settings(PULSE=MAIL_IN_SECOND)
    def test_a_queue_has_a_shard(self) -> None:
        assert where(post.enqueue("a")) == SECOND
        assert where(tasks.add.enqueue(1, 1)) == "default"
        assert where(tasks.add.using(queue_name="mail").enqueue(1, 1)) == SECOND
        [one] = api.enqueue_many(post, [("b",)])
        assert Job.objects.using(SECOND).filter(pk=one).exists()
        assert api.shard_of(post, "a") == SECOND

    @override_settings(PULSE=MAIL_IN_SECOND)
    def test_children_stay_beside_their_parent(self) -> None:
        with running(run_in("default")):
            child = post.enqueue("a")
        assert where(child) == "default"

    @override_settings(PULSE=MAIL_IN_SECOND)
    def test_a_child_is_refused_whose_key_or_limit_is_elsewhere(self) -> None:
        options = [post_once, post_few, post_limited, post.using(idempotency_key="k")]
        with all_faults() as about:
            for anchored in options:
                with about(anchored.name):
                    empty_shards()
                    assert where(anchored.enqueue("a")) == SECOND
                    with (
                        running(run_in("default")),
                        pytest.raises(InvalidJob, match="its parent needs shard 'default', and"),
                    ):
                        anchored.enqueue("b")
                    with running(run_in("default")):
                        assert where(anchored.using(database=SECOND).enqueue("c")) == SECOND
                    with pytest.raises(InvalidJob, match="using='default' needs shard 'default', and"):
                        anchored.using(database="default").enqueue("d")

    @override_settings(PULSE=MAIL_IN_SECOND)
    def test_tasks_that_share_a_limit_share_its_shard(self) -> None:
        assert where(send_parcel.enqueue("a")) == where(post_limited.enqueue("b")) == SECOND

    @override_settings(PULSE=MAIL_IN_SECOND)
    def test_their_shard_does_not_depend_on_what_a_process_has_imported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registry, "_tasks", {send_parcel.registered_name: send_parcel})
        found: list[str] = []
        monkeypatch.setattr(registry, "discover", lambda: found.append("discovered") or registry.add(post_limited))
        assert api.shard_of(send_parcel, "a") == SECOND, "where the first of all tasks with this limit is"
        assert found

    @override_settings(PULSE={**MAIL_IN_SECOND, "QUEUE_LIMITS": {"mail": {"max_running": 3}}})
    def test_so_does_a_queue_with_a_limit(self) -> None:
        assert where(post.enqueue("a")) == SECOND
        with pytest.raises(InvalidJob, match="the limit of queue 'mail' needs shard 's2'"):
            post.using(database="default").enqueue("a")

    @override_settings(PULSE=MAIL_IN_SECOND)
    def test_members_follow_their_batch(self) -> None:
        batch = Batch.open("letters")
        assert where(batch.add(post.prepare("a"))) == "default"
        with pytest.raises(InvalidJob, match="and its unique key needs shard 's2'"):
            batch.add(post_once.prepare("a"))
        there = Batch.open("letters", using=SECOND)
        assert where(there.add(post_once.prepare("a"))) == SECOND
        assert Batch.get(there.id).alias == SECOND

    @override_settings(PULSE=MAIL_IN_SECOND)
    def test_a_schedule_is_fired_in_one_shard(self) -> None:
        assert shard_of_schedule("s", post.registered_name, None, ("a",), {}) == SECOND
        assert shard_of_schedule("s", tasks.add.registered_name, None, (1, 1), {}) == "default"
        assert shard_of_schedule("s", tasks.add.registered_name, "mail", (1, 1), {}) == SECOND


class TestByKey:
    @override_settings(PULSE=SPREAD)
    def test_keys_are_spread_and_each_has_one_shard(self) -> None:
        for anchored in (post_once, post_few):
            found = {key: where(anchored.enqueue(key)) for key in map(str, range(16))}
            assert set(found.values()) == set(SHARDS)
            assert all(api.shard_of(anchored, key) == alias for key, alias in found.items())
        assert len({where(post.enqueue("a")) for _ in range(20)}) == 2

    @override_settings(PULSE=SPREAD)
    def test_what_counts_over_all_keys_is_in_one_shard(self) -> None:
        assert len({where(post_limited.enqueue(str(key))) for key in range(10)}) == 1

    @override_settings(PULSE=SPREAD)
    def test_a_job_with_two_keys_is_refused_whatever_their_hashes_are(self) -> None:
        for key in range(10):
            with pytest.raises(
                InvalidJob, match=r"needs shard|is spread over shards by one key, and its unique key and"
            ):
                post_few_once.enqueue(str(key))
        assert not Job.objects.exists()

    @override_settings(PULSE=SPREAD)
    def test_a_call_for_many_jobs_reaches_one_shard(self) -> None:
        keys = [str(key) for key in range(16)]
        with pytest.raises(InvalidJob, match=r"arguments\[\d+\] belongs to shard .* Group them by shard_of\(\)"):
            api.enqueue_many(post_few, [(key,) for key in keys])
        assert not Job.objects.exists()
        there = [key for key in keys if api.shard_of(post_few, key) == SECOND]
        ids = api.enqueue_many(post_few, [(key,) for key in there])
        assert Job.objects.using(SECOND).filter(pk__in=ids).count() == len(there)

    def test_a_shard_that_is_added_moves_only_its_share_of_the_keys(self) -> None:
        numbers = {"a": 0, "b": 1, "c": 2}
        two, three = ({"SHARDS": numbers, "QUEUE_SHARDS": {"mail": list(names)}} for names in ("ab", "abc"))
        keys = [str(key) for key in range(3_000)]
        with override_settings(PULSE={**two, "PLACEMENT": "by_key"}):
            before = {key: by_key("mail", "", key) for key in keys}
        with override_settings(PULSE={**three, "PLACEMENT": "by_key"}):
            after = {key: by_key("mail", "", key) for key in keys}
        moved = [key for key in keys if before[key] != after[key]]
        assert {after[key] for key in moved} == {"c"}
        assert 900 < len(moved) < 1_100
        assert all(900 < count < 1_100 for count in Counter(after.values()).values())


class TestWhereTheDataIs:
    @override_settings(PULSE=BESIDE_DATA)
    def test_the_open_transaction_says_where(self) -> None:
        with transaction.atomic(using=SECOND):
            assert where(post.enqueue("a")) == SECOND
            assert Batch.open("letters").alias == SECOND
        assert where(post.enqueue("a")) == "default"
        with transaction.atomic(using=SECOND), transaction.atomic():
            assert where(post.enqueue("a")) == "default"

    @override_settings(PULSE=BESIDE_DATA)
    def test_it_rolls_back_with_the_data(self) -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=SECOND):
            post.enqueue("a")
            raise ZeroDivisionError
        assert not Job.objects.using(SECOND).exists()

    @override_settings(PULSE=BESIDE_DATA)
    def test_a_limit_has_one_shard_all_the_same(self) -> None:
        with transaction.atomic(using=SECOND):
            assert where(post_limited.enqueue("a")) == "default"
            with pytest.raises(InvalidJob, match="using='s2' needs shard 's2', and the limit 'post' needs"):
                post_limited.using(database=SECOND).enqueue("a")


def in_mars(queue: str, task: str, key: str | None) -> str:
    return "mars"


class TestAFunctionOfTheProject:
    @override_settings(PULSE={"SHARDS": SHARDS, "PLACEMENT": "tests.shards.test_placement.in_mars"})
    def test_its_answer_is_checked(self) -> None:
        with pytest.raises(InvalidJob, match="placement: 'mars' is not in DATABASES"):
            post.enqueue("a")

    @override_settings(PULSE={"SHARDS": SHARDS, "PLACEMENT": "nowhere.at_all"})
    def test_one_that_is_not_there_is_reported(self) -> None:
        [found] = check_shards()
        assert (found.id, "nowhere.at_all" in found.msg) == ("pulse_django.E016", True)
        with pytest.raises(ImproperlyConfigured):
            post.enqueue("a")


class TestWhatConcernsEveryShard:
    def test_a_task_is_paused_in_each(self) -> None:
        assert pause_task(post)
        assert all(Pause.objects.using(alias).exists() for alias in SHARDS)
        assert resume_task(post)
        assert not any(Pause.objects.using(alias).exists() for alias in SHARDS)

    def test_an_event_is_told_to_each_and_once(self) -> None:
        assert send_event("paid")
        assert not send_event("paid")
        assert [Event.objects.using(alias).count() for alias in SHARDS] == [1, 1]
        with transaction.atomic(), pytest.raises(InvalidWorkflow, match="which no transaction spans"):
            send_event("sent")
        with transaction.atomic(using=SECOND):
            assert send_event("sent", using=SECOND)
        with running(run_in(SECOND)):
            assert send_event("done")
        assert not Event.objects.filter(name__in=["sent", "done"]).exists()

    def test_a_need_in_another_shard_is_refused(self) -> None:
        there = tasks.add.using(database=SECOND).enqueue(1, 1)
        workflow = Workflow("w")
        workflow.add("one", tasks.add.prepare(1, 1), needs={"there": there})
        with pytest.raises(InvalidWorkflow, match="is in database 's2', and the workflow in 'default'"):
            workflow.enqueue()


class TestNumbers:
    def test_a_database_counts_from_its_number_on(self) -> None:
        assert problem_with_numbers(SECOND, 1) == ""
        assert number_ids(SECOND, 1) == []
        assert [int(tasks.add.using(database=SECOND).enqueue(1, 1).id) >> 48 for _ in range(2)] == [1, 1]
        assert Batch.open("b", using=SECOND).id >> 48 == 1

    def test_what_is_wrong_is_said(self) -> None:
        assert "Numbers cannot be lowered" in problem_with_numbers(SECOND, 0)
        assert "Run: python manage.py migrate --database s2" in problem_with_numbers(SECOND, 2)
        with override_settings(PULSE={"SHARDS": {"default": 0, SECOND: 2}}):
            [found] = [one for one in check_database(databases=[SECOND]) if one.id == "pulse_django.E017"]
        assert found.is_serious()

    def test_no_sequence_is_lowered(self) -> None:
        with transaction.atomic(using=SECOND), pytest.raises(NotInsideTransaction, match="cannot be raised inside"):
            number_ids(SECOND, 3)
        assert number_ids(SECOND, 3)
        assert problem_with_numbers(SECOND, 3) == ""
        assert number_ids(SECOND, 2) == []
        with connections[SECOND].cursor() as cursor:
            cursor.execute("SELECT sequencename FROM pg_sequences WHERE last_value >= %s", [3 << 48])
            for (name,) in cursor.fetchall():
                cursor.execute("SELECT setval(%s::regclass, %s)", [name, (1 << 48) + 1_000])


@pytest.mark.parametrize(
    ("pulse", "words"),
    [
        ({"SHARDS": {"default": 0, "nowhere": 1}}, "names 'nowhere', which is not in DATABASES"),
        ({"SHARDS": {SECOND: 1}}, "does not name 'default'"),
    ],
)
def test_the_checks_find_shards_that_are_not_there(pulse: Any, words: str) -> None:
    with override_settings(PULSE=pulse):
        assert any(words in found.msg and found.id == "pulse_django.E016" for found in check_shards())


def test_a_delay_does_not_change_the_shard() -> None:
    with override_settings(PULSE=MAIL_IN_SECOND):
        assert where(post.using(run_after=timedelta(hours=1)).enqueue("a")) == SECOND
