"""Options that make no sense are refused where they are written, with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from pulse_django import task
from pulse_django.run.registry import InvalidTask, registry
from tests.faults import all_faults


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))


def handler(order: int = 0) -> None:
    pass


NO_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"queue_name": ""}, "queue_name: '' is not a non-empty string"),
    ({"queue_name": "a\nb"}, "queue_name: .* contains unprintable characters"),
    ({"queue_name": 5}, "queue_name: 5 is not a non-empty string"),
    ({"priority": "5"}, "priority must be a whole number between -100 and 100"),
    ({"priority": True}, "priority must be a whole number between -100 and 100"),
    ({"priority": 101}, "priority must be a whole number between -100 and 100"),
    ({"aliases": 5}, "aliases: 5 is not a list of names"),
    ({"masked": [["order"]]}, "masked: .* is not a list of names"),
]


def test_a_value_that_no_job_could_have_is_refused_by_the_decorator() -> None:
    with all_faults() as about:
        for options, said in NO_VALUES:
            with about(said), pytest.raises(InvalidTask, match=said):
                task(**options)(handler)


UNKNOWN = [
    ("delay", r"Did you mean 'run_after'\? Give it to .using\(\)."),
    ("countdown", r"Did you mean 'run_after'\? Give it to .using\(\)."),
    ("retries", "Did you mean 'max_attempts'?"),
    ("queue", "Did you mean 'queue_name'?"),
    ("max_loses", "Did you mean 'max_losses'?"),
    ("nonsense_of_all_kinds", "The options are aliases, "),
]


def test_an_unknown_option_of_the_decorator_says_which_was_meant() -> None:
    with all_faults() as about:
        for option, said in UNKNOWN:
            with about(option), pytest.raises(TypeError, match=said):
                task(**{option: 1})


OF_A_CALL: list[tuple[dict[str, Any], str]] = [
    ({"delay": 5}, "Did you mean 'run_after'?"),
    ({"idempotency": "x"}, "Did you mean 'idempotency_key'?"),
    ({"max_loses": 3}, r"Did you mean 'max_losses'\? Give it to @task."),
    ({"run_after": [5]}, r"run_after: \[5\] is neither a datetime nor a number of seconds or a timedelta"),
    ({"run_after": "tomorrow"}, "run_after: 'tomorrow' is neither"),
    ({"run_after": True}, "run_after: True is neither"),
]


def test_an_option_of_a_call_says_which_was_meant() -> None:
    with all_faults() as about:
        for options, said in OF_A_CALL:
            with about(said), pytest.raises(TypeError, match=said):
                task(name="refuses.options")(handler).using(**options)


def test_what_is_no_function_is_refused() -> None:
    with all_faults() as about:
        for given in ["mail", 5]:
            with about(given), pytest.raises(TypeError, match="takes a function or options by name"):
                task(given)
