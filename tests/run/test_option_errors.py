"""Options that make no sense are refused where they are written, with what to write instead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse_django import NO_RETRIES, Backoff, Every, Limit, Rate, RetryPolicy, retry_on, retry_unless, task
from pulse_django.queue.words.options import OF_CALL, OF_TASK
from pulse_django.queue.words.other_queues import OPTIONS
from pulse_django.run.registry import InvalidTask, registry
from tests.faults import all_faults, each_of


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
    ({"max_lost_workers": 0}, "max_lost_workers: 0 is not allowed. Use at_most_once=True"),
    ({"at_most_once": True, "max_attempts": 3}, "at_most_once: max_attempts would allow a second run"),
    ({"at_most_once": True, "retry": NO_RETRIES}, "at_most_once: retry would allow a second run"),
    ({"at_most_once": True, "max_lost_workers": 2}, "at_most_once: max_lost_workers would allow a second run"),
    ({"at_most_once": True, "count_lost_workers": False}, "at_most_once: count_lost_workers would allow"),
    ({"at_most_once": True, "chunk": 5}, "at_most_once cannot be combined with chunk"),
    ({"timeout": -1}, "timeout: -1.0s must be positive. Omit timeout"),
    ({"lease": 0}, "lease: 0.0s must be positive. Omit lease"),
    ({"timeout": timedelta.max}, "timeout: 1000000000d is longer than 365000 days"),
    ({"sensitive": [["order"]]}, "sensitive: .* is not a list of names"),
]


@each_of(*NO_VALUES)
def test_a_value_that_no_job_could_have_is_refused_by_the_decorator(*, options: Any, said: Any) -> None:
    with pytest.raises(InvalidTask, match=said):
        task(**options)(handler)


UNKNOWN = [
    ("max_loses", "Did you mean 'max_lost_workers'?"),
    ("key", "Did you mean 'limit_key'?"),
    ("queu", "Write queue_name=1."),
    ("coutdown", r"Write run_after=1 in .using\(...\)."),
    ("share", "Did you mean 'fair_by'?"),
    ("nonsense_of_all_kinds", "The options are aliases, "),
    ("idempotency_kee", r"Did you mean 'idempotency_key'\? Give it to .using\(\)."),
]


@each_of(*UNKNOWN)
def test_an_unknown_option_of_the_decorator_says_which_was_meant(*, option: Any, said: Any) -> None:
    with pytest.raises(TypeError, match=said):
        task(**{option: 1})


# What others call it and what they give; the line; and what the line says.
FROM_OTHERS: list[tuple[str, Any, str, dict[str, Any]]] = [
    ("bind", True, "takes_context=True, and context instead of self", {"takes_context": True}),
    ("autoretry_for", (OSError, KeyError), "retry=retry_on(OSError, KeyError)", {"retry": retry_on(OSError, KeyError)}),
    ("dont_autoretry_for", (OSError,), "retry=retry_unless(OSError)", {"retry": retry_unless(OSError)}),
    (
        "retry_backoff",
        True,
        "retry=RetryPolicy(backoff=Backoff.exponential())",
        {"retry": RetryPolicy(backoff=Backoff.exponential())},
    ),
    (
        "default_retry_delay",
        15,
        "retry=RetryPolicy(backoff=Backoff.fixed(15))",
        {"retry": RetryPolicy(backoff=Backoff.fixed(15))},
    ),
    ("max_retries", 3, "max_attempts=4", {"max_attempts": 4}),
    ("max_retries", None, "max_attempts=...", {}),
    (
        "retry_kwargs",
        {"max_retries": 3},
        "max_attempts=..., and retry=RetryPolicy(backoff=Backoff.fixed(...))",
        {"max_attempts": 4},
    ),
    (
        "retry_backoff_max",
        600,
        "retry=RetryPolicy(backoff=Backoff.exponential(cap=600))",
        {"retry": RetryPolicy(backoff=Backoff.exponential(cap=600))},
    ),
    ("track_started", True, "nothing. The result of a job says when it started", {}),
    ("retries", 3, "max_attempts=4", {"max_attempts": 4}),
    ("acks_late", True, "nothing. A job is done when its run has ended, never before", {}),
    ("reject_on_worker_lost", True, "nothing. The job of a lost worker runs again", {}),
    ("base", object, 'on_dead=a_task, or name a function in PULSE["MIDDLEWARE"]', {}),
    ("throws", (KeyError,), "retry=retry_unless(KeyError)", {"retry": retry_unless(KeyError)}),
    ("link", print, "chain(this.prepare(...), that.prepare(...)).enqueue() instead", {}),
    ("serializer", "pickle", "nothing. Arguments and results are JSON", {}),
    ("link_error", print, "on_dead=a_task", {}),
    ("on_failure", print, "on_dead=a_task", {}),
    ("ignore_result", True, "nothing. A function that returns None stores no result", {}),
    ("soft_time_limit", 60, "timeout=60", {"timeout": 60}),
    ("time_limit", 60, "timeout=60, isolation='process'", {"timeout": 60, "isolation": "process"}),
    ("rate_limit", "60/m", "limit=Limit(rate=Rate.parse('60/m'))", {"limit": Limit(rate=Rate.parse("60/m"))}),
    ("queue", "mail", "queue_name='mail'", {"queue_name": "mail"}),
    ("countdown", 60, "run_after=60", {"run_after": 60}),
    ("delay", 60, "run_after=60", {"run_after": 60}),
    ("eta", datetime(2030, 1, 1, tzinfo=UTC), "run_after=...", {"run_after": datetime(2030, 1, 1, tzinfo=UTC)}),
    ("run_every", 60, "schedule=Every(60)", {"schedule": Every(60)}),
    ("task_id", "order-7", "idempotency_key='order-7'", {"idempotency_key": "order-7"}),
]


def with_context(context: object = None, order: int = 0) -> None:
    pass


def test_the_words_of_other_queues_say_the_line_to_write() -> None:
    assert {name for name, *_ in FROM_OTHERS} == OPTIONS.keys()
    with all_faults() as about:
        for name, given, line, meant in FROM_OTHERS:
            of_call = meant.keys() <= OF_CALL
            with about(name):
                with pytest.raises(TypeError) as refused:
                    task(**{name: given})
                place = " in .using(...)" if of_call and not meant.keys() <= OF_TASK else ""
                assert str(refused.value) == f"@task has no option {name!r}. Write {line}{place}."
                with pytest.raises(TypeError) as refused:
                    task(name="refuses.options")(handler).using(**{name: given})
                place = "" if of_call else " in @task(...)"
                assert str(refused.value) == f".using() has no option {name!r}. Write {line}{place}."
                function = with_context if "takes_context" in meant else handler
                if of_call:
                    task(name=f"refuses.{name}")(function).using(**meant)
                else:
                    task(name=f"refuses.{name}", **meant)(function)


OF_A_CALL: list[tuple[dict[str, Any], str]] = [
    ({"idempotency": "x"}, "Did you mean 'idempotency_key'?"),
    ({"key": "x"}, "Did you mean 'idempotency_key'?"),
    ({"max_loses": 3}, r"Did you mean 'max_lost_workers'\? Give it to @task."),
    ({"run_after": [5]}, r"run_after: \[5\] is neither a datetime nor a number of seconds or a timedelta"),
    ({"run_after": "tomorrow"}, "run_after: 'tomorrow' is neither"),
    ({"run_after": True}, "run_after: True is neither"),
]


@each_of(*OF_A_CALL)
def test_an_option_of_a_call_says_which_was_meant(*, options: Any, said: Any) -> None:
    with pytest.raises(TypeError, match=said):
        task(name="refuses.options")(handler).using(**options)


@each_of("mail", 5)
def test_what_is_no_function_is_refused(*, given: Any) -> None:
    with pytest.raises(TypeError, match="takes a function or keyword options"):
        task(given)
