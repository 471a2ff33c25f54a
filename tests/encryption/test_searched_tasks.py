"""Which arguments stand on a job for the search, by each way in which jobs come to be and change."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import pytest

from pulse_django import Unique, amend, enqueue_many, task
from pulse_django.encryption.values import hashed, terms_for
from pulse_django.models import Job
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.masks import MAX_VALUE, MOST_SEARCHED, terms_of, text_of
from pulse_django.run.registry import InvalidTask
from pulse_django.workflows.rewind import _copy_of
from tests.encryption.test_encryption import tasks as encrypted_tasks
from tests.faults import each_of
from tests.queue.steps import claim_one, success

__all__ = ["encrypted_tasks"]

pytestmark = pytest.mark.usefixtures("pulse_db")


@task(name="search.ship", searchable=["order_id", "email"])
def ship(order_id: int, email: str = "", note: str = "") -> None: ...


@task(name="search.once", searchable=["order_id"], unique=Unique(by=["email"], on_conflict="replace"))
def once(order_id: int, email: str) -> None: ...


@task(name="search.silent")
def silent(order_id: int) -> None: ...


def terms() -> list[list[str]]:
    return list(Job.objects.order_by("id").values_list("search_terms", flat=True))


AS_TYPED: list[tuple[Any, str | None]] = [
    (17, "17"),
    (True, "true"),
    (False, "false"),
    (1.5, "1.5"),
    ("a b", "a b"),
    (None, None),
    ("", None),
    ([1], None),
]


class TestWhatIsStored:
    def test_what_is_given_by_position_or_by_name(self) -> None:
        ship.enqueue(4711, "a@b.example", note="x")
        ship.enqueue(order_id=4712)
        assert terms() == [["order_id:4711", "email:a@b.example"], ["order_id:4712"]]

    def test_lists_of_all_kinds_also_if_some_have_none(self) -> None:
        enqueue_many(ship, [[1], {"order_id": 2, "email": 'tab\t"quoted" back\\slash'}, {"order_id": None}])
        enqueue_many(once, [[3, "c"], [4, "d"]])
        silent.enqueue(4711)
        assert terms() == [
            ["order_id:1"], ["order_id:2", 'email:tab\t"quoted" back\\slash'], [], ["order_id:3"], ["order_id:4"], [],
        ]  # fmt: skip
        assert Job.objects.filter(search_terms__isnull=True).exclude(task="search.ship").count() == 1

    def test_a_call_that_replaces_a_unique_job_replaces_them(self) -> None:
        once.enqueue(1, "a")
        once.enqueue(2, "a")
        enqueue_many(once, [[3, "a"]])
        assert terms() == [["order_id:3"]]

    def test_an_amendment_changes_them(self) -> None:
        job = ship.enqueue(4711)
        amend(job.id, args=[4712])
        assert terms() == [["order_id:4712"]]
        amend(job.id, args=[None])
        assert Job.objects.get().search_terms == []

    def test_they_go_with_the_job_into_history(self) -> None:
        ship.enqueue(4711)
        Job.objects.settle([success(claim_one(Identity("me")))])
        assert Job.objects.get().era > 0
        assert terms() == [["order_id:4711"]]

    def test_a_copy_that_begins_at_a_step_has_them(self) -> None:
        job = Job.objects.get(pk=ship.enqueue(4711).id)
        assert _copy_of(job).encoded(10_000).terms == ("order_id:4711",)

    @each_of(*AS_TYPED)
    def test_a_value_is_as_one_types_it(self, *, value: Any, text: Any) -> None:
        assert text_of(value) == text

    def test_a_long_value_is_found_by_its_beginning(self) -> None:
        [found] = terms_of(["a"], ["a"], ["x" * 500], {})
        assert len(found) == MAX_VALUE + 2
        assert found in terms_for(["a"], "x" * 500)


class TestEncryptedJobs:
    def test_only_a_hash_is_stored_and_it_is_what_is_looked_for(self, encrypted_tasks: ModuleType) -> None:
        encrypted_tasks.found.enqueue("a@b.example")
        [[stored]] = terms()
        assert "example" not in stored
        assert stored in terms_for(["email"], "a@b.example")

    def test_an_old_secret_key_is_looked_for_as_well(self, settings: Any) -> None:
        old = hashed("email:a")
        settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
        settings.SECRET_KEY = "another"
        assert old in terms_for(["email"], "a")


NOT_SEARCHABLE: list[tuple[dict[str, Any], str]] = [
    ({"searchable": ["token"], "sensitive": ["token"]}, "'token' is sensitive"),
    ({"searchable": ["nobody"]}, "has no parameter 'nobody'"),
    ({"searchable": ["return"]}, "not the name of an argument"),
    ({"searchable": ["error"]}, "is a prefix of the search already"),
]


class TestWhatIsRefused:
    @each_of(*NOT_SEARCHABLE)
    def test_declarations(self, *, options: Any, why: Any) -> None:
        with pytest.raises(InvalidTask, match=why):

            @task(name="search.refused", **options)
            def refused(token: str, error: str = "") -> None: ...

    def test_too_many(self) -> None:
        with pytest.raises(InvalidTask, match="over the limit"):

            @task(name="search.many", searchable=[f"a{number}" for number in range(MOST_SEARCHED + 1)])
            def many(**kwargs: Any) -> None: ...

    def test_a_call_cannot_name_them(self) -> None:
        with pytest.raises(TypeError, match="searchable cannot be set for a call"):
            ship.using(searchable=["note"])  # type: ignore[call-arg]

    def test_a_pickled_task_keeps_them(self) -> None:
        assert pickle.loads(pickle.dumps(ship)).searchable == ("order_id", "email")
