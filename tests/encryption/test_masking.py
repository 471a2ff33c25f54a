"""Masked arguments and results are hidden wherever a job is shown."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import Any

import pytest

from pulse_django import Context, enqueue_many, task
from pulse_django.encryption import values as encryption
from pulse_django.models import Job
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.masks import MAX_MASKS, Masks
from pulse_django.run.registry import InvalidTask, registry
from pulse_django.tasks import PulseTask
from tests.faults import combined, each_of


@task(name="mask-plain")
def plain(user: str, password: str, *rest: str, **more: Any) -> None:
    pass


@task(name="mask-context", takes_context=True)
def with_context(context: Context, user: str, password: str, *rest: str, **more: Any) -> None:
    pass


@task(name="mask-narrow", sensitive=("password",))
def narrow(password: str) -> None:
    pass


@task(name="mask-unnamed", sensitive=("card",))
def pays(*args: Any, **options: Any) -> None:
    pass


@task(name="mask-partly-unnamed", sensitive=("card",))
def pays_for(order: int, *args: Any, **options: Any) -> None:
    pass


@task(name="mask-named-beside", sensitive=("card",))
def pays_by(*args: Any, card: str = "", **options: Any) -> None:
    pass


@task(name="mask-result", sensitive=("return",))
def secret() -> str:
    return "x"


def with_a_database(handler: Any) -> Any:
    @wraps(handler)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return handler("the database", *args, **kwargs)

    return inner


@task(name="mask-wrapped", sensitive=("card",))
@with_a_database
def wrapped(database: str, card: str, *, more: str = "") -> None:
    pass


MASKED_CALLS: list[tuple[tuple[str, ...], list[Any], dict[str, Any], Any]] = [
    ((), ["me", "pw"], {}, (["me", "pw"], {})),
    (("password",), ["me", "pw"], {}, (["me", "••••"], {})),
    (("password",), ["me"], {"password": "pw"}, (["me"], {"password": "••••"})),
    (("rest",), ["me", "pw", "a", "b"], {}, (["me", "pw", "••••", "••••"], {})),  # all that *rest takes
    (("token",), ["me"], {"token": "t"}, (["me"], {"token": "••••"})),  # one of **more
    (("more",), ["me"], {"password": "pw", "token": "t"}, (["me"], {"password": "pw", "token": "••••"})),
    (("more",), ["me"], {"more": "m"}, (["me"], {"more": "••••"})),  # all that **more takes
    (("rest", "more"), ["me", "pw", "a"], {"b": 1}, (["me", "pw", "••••"], {"b": "••••"})),
    (("return",), ["me", "pw", "a"], {"b": 1}, (["me", "pw", "a"], {"b": 1})),
    (("password",), [], {}, ([], {})),
    (("password",), ["me", "pw", "a", "b"], {}, (["me", "••••", "a", "b"], {})),
]


@each_of(*combined([plain, with_context], MASKED_CALLS))
def test_what_is_masked_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, *, declared: Any, sensitive: Any, args: Any, kwargs: Any, seen: Any
) -> None:
    monkeypatch.setitem(registry._tasks, declared.registered_name, replace(declared, sensitive=sensitive))
    assert encryption.shown(declared.registered_name, args, kwargs) == seen


def test_what_the_handler_does_not_take_is_not_shown_for_it_may_have_had_a_masked_name() -> None:
    assert encryption.shown("mask-narrow", ["pw", "odd"], {"passwd": "pw"}) == (["••••", "••••"], {"passwd": "••••"})


def test_a_masked_name_that_is_no_parameter_may_stand_at_any_position_of_the_rest() -> None:
    args, kwargs = [1, "4111"], {"card": "4222", "more": "x"}
    seen = {"card": "••••", "more": "x"}
    assert encryption.shown("mask-unnamed", args, kwargs) == (["••••", "••••"], seen)
    assert encryption.shown("mask-partly-unnamed", args, kwargs) == ([1, "••••"], seen)
    assert encryption.shown("mask-named-beside", args, kwargs) == (args, seen)  # a parameter that has no position


def test_where_a_decorator_puts_arguments_in_front_no_position_tells_which_it_is() -> None:
    args, kwargs = ["4111 1111"], {"card": "4222 2222", "more": "x"}
    assert encryption.shown("mask-wrapped", args, kwargs) == (["••••"], {"card": "••••", "more": "x"})


def test_a_result_may_be_masked_too() -> None:
    assert encryption.shows_result("mask-result") is False
    assert encryption.shows_result("shop.echo") is True


def test_of_an_unknown_task_nobody_can_tell() -> None:
    assert encryption.shown("gone.away", ["x"], {}) is None
    assert encryption.shows_result("gone.away") is None


# ------------------------------------------------------------------------------------- what was declared at enqueue


def charge(order: int, card: str, *rest: str, **options: str) -> str:
    return "a receipt"


def charge_renamed(order: int, number: str) -> str:
    return "a receipt"


def charge_moved(number: str, order: int) -> str:
    return "a receipt"


ARGUMENTS: Any = ((1, "4111", "s1"), {"pin": "s2"})
SECRETS = ("4111", "s1", "s2")


def declare(monkeypatch: pytest.MonkeyPatch, func: Any, *sensitive: str) -> Any:
    """Make this the declaration of a task, whatever it was before."""
    monkeypatch.delitem(registry._tasks, "mask-changes", raising=False)
    return PulseTask(func=func, name="mask-changes", sensitive=sensitive)


def enqueued(task: Any) -> list[Job]:
    """One by one, and together with others."""
    args, kwargs = ARGUMENTS
    [many] = enqueue_many(task, [(*args,)])
    return [Job.objects.get(pk=task.enqueue(*args, **kwargs).id), Job.objects.get(pk=many)]


def seen_of(job: Job) -> str:
    """What the page of the job and a line of the log would tell."""
    [claim] = Job.objects.claim_these(Identity("looks"), [job.pk])
    on_the_page = encryption.shown(job.task, job.args, job.kwargs, job.sensitive)
    in_the_log = encryption.shown(claim.task, claim.args, claim.kwargs, claim.sensitive)
    assert on_the_page == in_the_log
    return str(on_the_page)


REDECLARED: list[tuple[Any, tuple[str, ...]]] = [
    (charge, ()),  # the declaration was dropped
    (charge_renamed, ("number",)),
    (charge_renamed, ()),
    (charge_moved, ("number",)),
    (charge, ("order",)),
]


@pytest.mark.django_db
@each_of(*REDECLARED)
def test_what_was_masked_at_enqueue_stays_masked(monkeypatch: pytest.MonkeyPatch, *, func: Any, sensitive: Any) -> None:
    jobs = enqueued(declare(monkeypatch, charge, "card", "rest", "options", "return"))
    declare(monkeypatch, func, *sensitive)
    for job in jobs:
        seen = seen_of(job)
        assert not [secret for secret in SECRETS if secret in seen]
        assert encryption.shows_result(job.task, job.sensitive) is False


@pytest.mark.django_db
def test_what_is_masked_today_is_masked_on_older_jobs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = enqueued(declare(monkeypatch, charge, "order"))
    declare(monkeypatch, charge, "card", "rest", "options", "return")
    for job in jobs:
        seen = seen_of(job)
        assert not [secret for secret in SECRETS if secret in seen]
        assert encryption.shows_result(job.task, job.sensitive) is False


@pytest.mark.django_db
def test_a_job_of_a_task_without_masks_stores_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for job in enqueued(declare(monkeypatch, charge)):
        assert job.sensitive is None
        seen = seen_of(job)
        assert "4111" in seen
        assert "s1" in seen


@pytest.mark.django_db
def test_of_a_task_that_is_gone_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    [job, _] = enqueued(declare(monkeypatch, charge, "card"))
    monkeypatch.delitem(registry._tasks, "mask-changes")
    assert encryption.shown(job.task, job.args, job.kwargs, job.sensitive) is None
    assert encryption.shows_result(job.task, job.sensitive) is None


UNREADABLE = [
    *("", "{", "[1]", "7", "[" * 1_999),
    *('{"later": [1]}', '{"names": 5}', '{"names": "card"}', '{"names": [1]}', '{"names": null}'),
    *('{"positions": "1"}', '{"positions": ["1"]}', '{"positions": [true]}', '{"positions": [-1]}'),
    *('{"rest": "x"}', '{"rest": [1]}', '{"rest": 1.5}', '{"rest": true}'),
    *('{"only": "password"}', '{"only": {"password": 1}}', '{"only": [["password"]]}'),
    *('{"returned": 1}', '{"returned": null}'),
]


@each_of(*UNREADABLE)
def test_masks_that_cannot_be_read_hide_everything(*, sensitive: Any) -> None:
    assert encryption.shown("mask-plain", ["me"], {"password": "pw"}, sensitive) == (
        ["••••"],
        {"password": "••••"},
    )
    assert encryption.shows_result("mask-plain", sensitive) is False


WRITTEN = [Masks(), Masks((0, 2), 3, ("card",), None, True), Masks((), 0, (), ("order",)), Masks(only=())]


@each_of(*WRITTEN)
def test_masks_are_read_as_they_were_written(*, masks: Any) -> None:
    assert Masks.read(masks.text) == masks


def test_masks_that_are_longer_than_their_column_hide_everything() -> None:
    masks = Masks(names=tuple(f"name{number}" for number in range(1_000)))
    assert len(masks.text) <= MAX_MASKS
    assert Masks.read(masks.text).hides_name("other")


@pytest.mark.parametrize("sensitive", [("passwrd",), "passwrd"])
def test_a_mask_that_would_hide_nothing_is_refused(sensitive: Any) -> None:
    with pytest.raises(InvalidTask, match="sensitive"):
        replace(narrow, sensitive=sensitive)
