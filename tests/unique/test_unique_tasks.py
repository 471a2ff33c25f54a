"""What a task says of unique jobs, the keys that calls get, and what callers are answered."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from pulse_django import AlreadyEnqueued, Unique, backend, enqueue_many, task
from pulse_django.exceptions import InvalidJob, UnsupportedValue
from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.run.registry import InvalidTask, task_enqueued
from pulse_django.unique.keys import key_of_call
from pulse_django.unique.rule import UniqueKey
from tests.faults import all_faults, each_of

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
LATER = {"run_after": MINUTE}
_MISSING = object()


@task(name="unique.ship", unique=Unique(by=("order",)))
def ship(order: int, note: str = "", *, express: bool = False) -> int:
    return order


@task(name="unique.everything", unique=Unique())
def everything(a: Any, b: Any = 2, *more: Any, c: Any = _MISSING, **rest: Any) -> None: ...


@task(name="unique.masked", unique=Unique(by=("card",)), sensitive=("card",))
def charge(card: str) -> None: ...


@task(name="unique.computed", unique=Unique(by=lambda order, **_: order["customer"]))
def computed(order: dict[str, Any], **options: Any) -> None: ...


@task(name="unique.with_context", unique=Unique(by=("order",)), takes_context=True)
def with_context(context: Any, order: int) -> None: ...


@task(name="unique.others")
def others(a: int, b: int = 0) -> None: ...


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function("injected", *args, **kwargs)

    return inner


@task(name="unique.decorated", unique=Unique(by=("order",)))
@wrapped
def decorated(connection: str, order: int) -> None: ...


def key(of: Any, *args: Any, **kwargs: Any) -> str:
    found = key_of_call(of, args, kwargs)
    assert found is not None
    return found.key


OTHER_CALLS: list[tuple[Any, Any]] = [
    ((2,), {}),
    ((1, 3), {}),
    ((1, 2, 3), {}),
    ((1,), {"c": 1}),
    ((1,), {"d": 1}),
    (("1",), {}),
    ((1.0,), {}),
]


class TestKeys:
    def test_one_call_has_one_key_however_its_arguments_are_given(self) -> None:
        assert key(ship, 7) == key(ship, order=7) == key(ship, 7, "x", express=True)
        assert key(ship, 7) != key(ship, 8)
        assert key(everything, 1) == key(everything, a=1) == key(everything, 1, 2) == key(everything, 1, b=2)
        assert key(with_context, 7) == key(with_context, order=7) != key(with_context, 8)
        assert key(ship, 7) != key(with_context, 7), "of another task"
        assert key(everything, {"x": 1, "y": (1, 2)}) == key(everything, {"y": [1, 2], "x": 1})
        assert key(computed, {"customer": 1, "n": 1}) == key(computed, {"customer": 1, "n": 2}, fast=True)
        assert key(computed, {"customer": 1}) != key(computed, {"customer": 2})
        assert key_of_call(others, (1,), {}) is None, "without the option"

    @each_of(*OTHER_CALLS)
    def test_calls_that_differ_have_different_keys(self, *, args: Any, kwargs: Any) -> None:
        assert key(everything, *args, **kwargs) != key(everything, 1)

    def test_what_is_masked_is_hashed_with_the_secret_of_the_project(self) -> None:
        first = key(charge, "4111")
        with override_settings(SECRET_KEY="another"):
            assert key(charge, "4111") != first
            assert key(ship, 7) == UniqueKey.of("unique.ship [7]", ship.unique).key, "others need none"
        assert "4111" not in first
        assert len(first) == len(key(ship, 7)) == 64

    def test_a_value_that_json_cannot_hold_is_refused_and_a_masked_one_is_not_shown(self) -> None:
        with pytest.raises(UnsupportedValue, match=r"unique.*UUID is not JSON"):
            key(computed, {"customer": UUID(int=1)})
        with pytest.raises(InvalidJob, match=r"^unique: JSON cannot hold what the key is made of$"):
            key(charge, {b"secret": 1})

    def test_behind_a_decorator_that_takes_something_else_arguments_have_to_be_named(self) -> None:
        assert key(decorated, order=7) != key(decorated, order=8)
        with pytest.raises(InvalidJob, match="cannot tell which argument is 'order'; pass it by name"):
            key(decorated, 7)


DECLARATIONS: list[tuple[dict[str, Any], str]] = [
    ({"by": ("typo",)}, "no parameter 'typo'"),
    ({"by": 7}, "by=7 is neither a tuple of parameter names nor a function"),
    ({"on_conflict": "skip"}, "on_conflict='skip' is none of keep, replace, debounce, follow, raise"),
    ({"until": "middle"}, "until='middle' is neither 'end' nor 'start'"),
    ({"until": "end", "on_conflict": "replace"}, "on_conflict='replace' requires until='start'"),
    ({"until": "end", "on_conflict": "follow"}, "on_conflict='follow' requires until='start'"),
    ({"per": "1m"}, "per='1m' is not a number of seconds or a timedelta"),
    ({"per": timedelta()}, "per=0:00:00 must be positive"),
    ({"per": HOUR, "until": "end"}, "per and until cannot be combined"),
    (
        {"per": HOUR, "on_conflict": "debounce"},
        "per can be combined with on_conflict='keep' or 'raise', not 'debounce'",
    ),
    ({"max_delay": HOUR}, "max_delay requires on_conflict='debounce'"),
    ({"max_delay": True, "on_conflict": "debounce"}, "max_delay=True is not a number of seconds or a timedelta"),
]


class TestDeclarations:
    @each_of(*DECLARATIONS)
    def test_a_rule_that_cannot_be_is_refused(self, *, rule: Any, why: Any) -> None:
        with pytest.raises((InvalidJob, InvalidTask), match=why):
            task(name="unique.wrong", unique=Unique(**rule))(others.func)

    def test_anything_but_a_rule_is_refused(self) -> None:
        said = r"unique: .* is not a Unique; write Unique\(\.\.\.\)"
        with all_faults() as about:
            for rule in ["keep", {"by": ("a",)}, True]:
                with about(rule), pytest.raises(InvalidTask, match=said):
                    task(name="unique.wrong", unique=rule)(others.func)

    def test_both_kinds_of_keys_for_one_job_are_refused(self) -> None:
        with pytest.raises(InvalidTask, match="unique and idempotency_key cannot be combined"):
            ship.using(idempotency_key="k")
        with pytest.raises(InvalidJob, match="unique and idempotency_key cannot be combined"):
            NewJob(task="t", idempotency_key="k", unique=UniqueKey.of("k", Unique()))

    def test_a_key_that_was_not_made_is_refused(self) -> None:
        with pytest.raises(InvalidJob, match=r"make it with UniqueKey.of\(text, rule\)"):
            NewJob(task="t", unique=UniqueKey("nightly", Unique()))

    def test_debounce_needs_a_delay_that_is_no_longer_than_the_longest(self) -> None:
        rule = Unique(on_conflict="debounce", max_delay=HOUR)
        for given, why in (({}, "requires a delay"), ({"run_after": 2 * HOUR}, "run_after is 2h, over max_delay=1h")):
            with pytest.raises(InvalidJob, match=why):
                NewJob(task="t", unique=UniqueKey.of("k", rule), **given)  # type: ignore[arg-type]

    def test_what_changes_a_waiting_job_holds_its_key_until_the_start(self) -> None:
        until_start = {rule: Unique(on_conflict=rule).until_start for rule in ("keep", "replace", "follow", "raise")}  # type: ignore[arg-type]
        assert until_start == {"keep": False, "replace": True, "follow": True, "raise": False}
        assert Unique(until="start").until_start


@pytest.mark.usefixtures("pulse_db")
class TestAnswers:
    def test_a_second_call_gets_the_first_result(self) -> None:
        assert ship.enqueue(7, "first").id == ship.enqueue(7, "second").id != ship.enqueue(8).id
        ids = enqueue_many(ship, [(1,), {"order": 2}, [1, "again"]])
        assert ids[0] == ids[2] != ids[1]
        assert Job.objects.count() == 4
        refuses = others.using(unique=Unique(on_conflict="raise"))
        first = refuses.enqueue(1)
        with pytest.raises(AlreadyEnqueued) as refused:
            refuses.enqueue(1)
        assert str(refused.value.job_id) == first.id

    def test_only_a_new_job_is_announced(self) -> None:
        announced: list[str] = []

        def receiver(task_result: Any, **_: Any) -> None:
            announced.append(task_result.id)

        task_enqueued.connect(receiver)
        try:
            first = ship.enqueue(7)
            ship.enqueue(7)
            rule = Unique(on_conflict="replace")
            second = others.using(unique=rule).enqueue(1)
            others.using(unique=rule).enqueue(1)
        finally:
            task_enqueued.disconnect(receiver)
        assert announced == [first.id, second.id]

    @pytest.mark.parametrize(("on_conflict", "wakes"), [("keep", 1), ("follow", 2), ("replace", 2)])
    def test_workers_are_woken_for_a_job_that_was_held_back(
        self, monkeypatch: pytest.MonkeyPatch, on_conflict: Any, wakes: int
    ) -> None:
        woken: list[Any] = []
        monkeypatch.setattr(backend, "wake_workers", lambda alias, queues: woken.extend(queues))
        one = others.using(unique=Unique(on_conflict=on_conflict), queue_name="mail")
        one.enqueue(1)
        one.enqueue(1)
        assert woken == ["mail"] * wakes

    @each_of(({"on_conflict": "replace"}, None), ({"on_conflict": "debounce", "max_delay": HOUR}, MINUTE))
    def test_a_call_can_bring_a_rule_of_its_own(self, *, rule: Any, run_after: Any) -> None:
        one = others.using(unique=Unique(by=("a",), **rule), run_after=run_after)
        number = 1 if run_after is None else 2
        first, again = one.enqueue(number, 2), one.enqueue(number, 3)
        assert (again.id, again.args) == (first.id, [number, 3])
        assert others.enqueue(number, 3).id != first.id, "without a rule it is as ever"
