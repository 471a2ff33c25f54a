"""What people may see of arguments: tasks say what is nobody's business."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import Any

import pytest

from pulse_django import Context, masking, task
from pulse_django.registry import registry
from pulse_django.taskapi import InvalidTask


@task(name="mask-plain")
def plain(user: str, password: str, *rest: str, **more: Any) -> None:
    pass


@task(name="mask-context", takes_context=True)
def with_context(context: Context, user: str, password: str, *rest: str, **more: Any) -> None:
    pass


@task(name="mask-narrow", masked=("password",))
def narrow(password: str) -> None:
    pass


@task(name="mask-result", masked=("return",))
def secret() -> str:
    return "x"


def with_a_database(handler: Any) -> Any:
    @wraps(handler)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return handler("the database", *args, **kwargs)

    return inner


@task(name="mask-wrapped", masked=("card",))
@with_a_database
def wrapped(database: str, card: str, *, more: str = "") -> None:
    pass


@pytest.mark.parametrize("declared", [plain, with_context])
@pytest.mark.parametrize(
    ("masked", "args", "kwargs", "seen"),
    [
        ((), ["me", "pw"], {}, (["me", "pw"], {})),
        (("password",), ["me", "pw"], {}, (["me", "••••"], {})),
        (("password",), ["me"], {"password": "pw"}, (["me"], {"password": "••••"})),
        (("rest",), ["me", "pw", "a", "b"], {}, (["me", "pw", "••••", "••••"], {})),  # all that *rest takes
        (("token",), ["me"], {"token": "t"}, (["me"], {"token": "••••"})),  # one of **more
        (("password",), [], {}, ([], {})),
        (("password",), ["me", "pw", "too", "many"], {}, (["me", "••••", "too", "many"], {})),
    ],
)
def test_what_is_masked_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
    declared: Any,
    masked: tuple[str, ...],
    args: list[Any],
    kwargs: dict[str, Any],
    seen: Any,
) -> None:
    monkeypatch.setitem(registry._tasks, declared.key, replace(declared, masked=masked))
    assert masking.shown(declared.key, args, kwargs) == seen


def test_more_arguments_than_the_handler_takes_are_shown_as_they_are() -> None:
    assert masking.shown("mask-narrow", ["pw", "odd"], {}) == (["••••", "odd"], {})


def test_where_a_decorator_puts_arguments_in_front_no_position_tells_which_it_is() -> None:
    args, kwargs = ["4111 1111"], {"card": "4222 2222", "more": "x"}
    assert masking.shown("mask-wrapped", args, kwargs) == (["••••"], {"card": "••••", "more": "x"})


def test_a_result_may_be_masked_too() -> None:
    assert masking.shows_result("mask-result") is False
    assert masking.shows_result("shop.echo") is True


def test_of_an_unknown_task_nobody_can_tell() -> None:
    assert masking.shown("gone.away", ["x"], {}) is None
    assert masking.shows_result("gone.away") is None


@pytest.mark.parametrize("masked", [("passwrd",), "password"])
def test_a_mask_that_would_hide_nothing_is_refused(masked: Any) -> None:
    with pytest.raises(InvalidTask, match="masked"):
        replace(narrow, masked=masked)
