"""A call that cannot be made is refused where it is written, and is never tried twice."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import pytest
from django.db import transaction

import pulse_django
from pulse_django import (
    NO_RETRIES,
    Context,
    Every,
    cancel,
    chain,
    chord,
    enqueue_many,
    group,
    retry,
    retry_on,
    retry_unless,
    task,
)
from pulse_django.exceptions import InvalidJob, InvalidSchedule, PayloadError, WrongArguments
from pulse_django.models import Attempt, Job
from pulse_django.queue.words.other_queues import OF_BATCHES, OF_CALLS, OF_CONTEXTS, OF_IMPORTS, OF_RESULTS, OF_TASKS
from pulse_django.queue.words.states import Status
from pulse_django.run.registry import BaseTaskBackend, InvalidTask
from pulse_django.testing import fake_context, jump_to_next_run, run_job
from testproject.shop import tasks
from tests.database import empty_tables
from tests.factories import make_job
from tests.faults import all_faults, each_of

pytestmark = pytest.mark.usefixtures("pulse_db")

PULSE = "pulse_django.backend.PulseBackend"
IMMEDIATE = f"{BaseTaskBackend.__module__.rpartition('.')[0]}.immediate.ImmediateBackend"


def injects(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that passes an argument of its own, as those for sessions and tenants do."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func("injected", *args, **kwargs)

    return wrapper


@task(name="calls.two")
def two(a: int, b: int = 0) -> int:
    return a + b


@task(name="calls.keywords")
def keywords(a: int, /, *, key: str, other: str = "") -> str:
    return f"{a}{key}{other}"


@task(name="calls.anything")
def anything(*args: Any, **kwargs: Any) -> int:
    return len(args) + len(kwargs)


@task(name="calls.with_context", takes_context=True)
def with_context(context: Context, a: int) -> int:
    return a


@task(name="calls.injected")
@injects
def injected(session: str, a: int) -> str:
    return f"{session}{a}"


@task(name="calls.awaited")
async def awaited(a: int) -> int:
    return a


@task(name="calls.type_error_inside")
def type_error_inside(a: int) -> None:
    two.func()  # a TypeError of a call, but not of this task's


FITTING: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (two, (1,), {}),
    (two, (1, 2), {}),
    (two, (), {"a": 1}),
    (two, (1,), {"b": 2}),
    (keywords, (1,), {"key": "x"}),
    (anything, (1, 2, 3), {"x": 1}),
    (with_context, (1,), {}),
    (with_context, (), {"a": 1}),
    (injected, (1,), {}),
    (awaited, (1,), {}),
]
UNFITTING: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (two, (), {}, "missing a required argument: 'a'"),
    (two, (1, 2, 3), {}, "too many positional arguments"),
    (two, (1,), {"a": 1}, "multiple values for argument 'a'"),
    (two, (1,), {"c": 1}, "unexpected keyword argument 'c'"),
    (keywords, (1, 2), {"key": "x"}, "too many positional arguments"),
    (keywords, (1,), {}, "missing a required"),
    (keywords, (), {"a": 1, "key": "x"}, "'a'"),
    (with_context, (), {}, "missing a required argument: 'a'"),
    (with_context, (1, 2), {}, "too many positional arguments"),
    (awaited, (), {"b": 1}, "missing a required argument: 'a'"),
]


def test_a_call_that_fits_is_enqueued_and_runs() -> None:
    with all_faults() as about:
        for called, args, kwargs in FITTING:
            with about(f"{called.registered_name} with {args} and {kwargs}"):
                assert run_job(called.enqueue(*args, **kwargs)).status == Status.COMPLETED


def test_a_call_that_does_not_fit_is_refused() -> None:
    with all_faults() as about:
        for called, args, kwargs, why in UNFITTING:
            with about(f"{called.registered_name} with {args} and {kwargs}"):
                with transaction.atomic():
                    with pytest.raises(TypeError, match=why) as refused:
                        called.enqueue(*args, **kwargs)
                    assert isinstance(refused.value, WrongArguments)
                    assert called.func.__name__ in str(refused.value)
                assert not Job.objects.exists()


def test_a_job_whose_arguments_do_not_fit_any_more_is_dead_lettered_at_once() -> None:
    with all_faults() as about:
        for called, args, kwargs, why in UNFITTING:
            with about(f"{called.registered_name} with {args} and {kwargs}"):
                empty_tables()
                job = make_job(task=called.registered_name, args=list(args), kwargs=kwargs)
                assert run_job(job, failures="keep").status == Status.DEAD_LETTERED
                job.refresh_from_db()
                assert job.last_error.startswith("CannotBeCalled: ")
                assert f"{called.func.__name__}(" in job.last_error
                assert "does not accept these arguments" in job.last_error
                assert why in job.last_error
                assert Attempt.objects.count() == 1


def test_a_type_error_inside_of_the_handler_is_retried_like_any_other() -> None:
    result = type_error_inside.enqueue(1)
    assert run_job(result, failures="keep").status == Status.RETRYING
    assert "TypeError" in Job.objects.get(pk=result.id).last_error


def test_enqueue_many_refuses_one_bad_call_and_with_it_all() -> None:
    with pytest.raises(WrongArguments, match="missing"):
        enqueue_many(two, [(1,), ()])
    with pytest.raises(WrongArguments, match="unexpected keyword argument 'c'"):
        enqueue_many(two, [{"a": 1}, {"a": 1, "c": 2}])
    assert not Job.objects.exists()
    assert len(enqueue_many(with_context, [(1,), {"a": 2}])) == 2


def test_values_do_not_stand_in_the_message() -> None:
    with pytest.raises(WrongArguments) as refused:
        two.enqueue("secret", "secret", "secret")
    assert "secret" not in str(refused.value)


NOT_JSON: list[tuple[Any, str]] = [
    (uuid4(), "UUID"),
    (datetime(2031, 1, 1, tzinfo=UTC), "datetime"),
    (date(2031, 1, 1), "date"),
    (time(12), "time"),
    (timedelta(1), "timedelta"),
    (Decimal("1.5"), "Decimal"),
    ({1, 2}, "set"),
    (frozenset(), "frozenset"),
    (b"bytes", "bytes"),
    (bytearray(b"x"), "bytearray"),
    (Path("x"), "PosixPath"),
    (object(), "object"),
]
WAYS: dict[str, Callable[[Any], Any]] = {
    "by position": lambda value: two.enqueue(1, value),
    "by name": lambda value: two.enqueue(1, b=value),
    "with others": lambda value: enqueue_many(two, [(1, value)]),
}


def test_what_json_does_not_know_is_refused_with_the_name_of_the_argument_and_the_mend() -> None:
    with all_faults() as about:
        for (value, kind), (way, call) in product(NOT_JSON, WAYS.items()):
            with about(f"{kind} {way}"):
                with pytest.raises(TypeError) as refused:
                    call(value)
                said = str(refused.value)
                assert isinstance(refused.value, InvalidJob)
                assert said.startswith(f"b: {kind} is not JSON")
                assert repr(value) not in said


def test_the_mend_fits_the_type() -> None:
    mends = {
        "str(value), and restore it with UUID(text)": uuid4(),
        "value.isoformat(), and restore it with datetime.fromisoformat(text)": datetime(2031, 1, 1, tzinfo=UTC),
        "value.isoformat(), and restore it with date.fromisoformat(text)": date(2031, 1, 1),
        "str(value), and restore it with Decimal(text)": Decimal(1),
        "list(value)": {1},
        "value.total_seconds()": timedelta(1),
    }
    for mend, value in mends.items():
        with pytest.raises(TypeError) as refused:
            two.enqueue(value)
        assert mend in str(refused.value)


def test_the_path_into_a_nested_value_is_named() -> None:
    with pytest.raises(TypeError, match=r"^value\['orders'\]\[1\]: UUID is not JSON"):
        tasks.echo.enqueue({"orders": ["x", UUID(int=1)]})
    with pytest.raises(PayloadError, match=r"^value: has a key of type UUID"):
        tasks.echo.enqueue({UUID(int=1): 1})
    with pytest.raises(TypeError, match=r"^args\[1\]: UUID is not JSON"):
        anything.enqueue(1, UUID(int=1))
    with pytest.raises(TypeError, match=r"^x: UUID is not JSON"):
        anything.enqueue(x=UUID(int=1))


OF_A_CALL = {"delay": ".enqueue()", "apply_async": ".enqueue()"}
REFRESHED = "result.refresh(), then result."
# What is asked, and what it says: each raised an error of Python's own.
CELERYS: list[tuple[Callable[[], Any], dict[str, str], dict[str, str]]] = [
    (
        lambda: two,
        OF_TASKS,
        {
            "delay": "two.enqueue(...)",
            "apply_async": "two.using(run_after=..., queue_name=..., priority=...).enqueue(...)",
            "apply": "two.call(...)",
            "run": "two.call(...)",
            "s": "two.prepare(...)",
            "si": "two.prepare(...)",
            "signature": "two.prepare(...)",
            "subtask": "two.prepare(...)",
            "AsyncResult": "two.get_result(...)",
            "map": "enqueue_many(two, [(first,), (second,)])",
            "starmap": "enqueue_many(two, [(first,), (second,)])",
            "chunks": "enqueue_many(two, [...]), or @task(chunk=100) for a handler of many jobs",
            "update_state": "@task(takes_context=True), then context.progress(done, total)",
        },
    ),
    (lambda: two.prepare(1, 2), OF_CALLS, OF_A_CALL),
    (lambda: chain(two.prepare(1, 2)), OF_CALLS, OF_A_CALL),
    (
        fake_context,
        OF_CONTEXTS,
        {
            "retry": "raise RetryLater(delay), or let the exception out",
            "request": "context.job_id, context.attempt, context.task_result",
            "update_state": "context.progress(done, total)",
            "retries": "context.attempt - 1",
        },
    ),
    (
        lambda: two.enqueue(1, 2),
        OF_RESULTS,
        {
            "get": "result.wait(timeout).return_value",
            "result": f"{REFRESHED}return_value",
            "ready": f"{REFRESHED}is_finished",
            "state": f"{REFRESHED}status",
            "successful": f"{REFRESHED}status == TaskResultStatus.SUCCESSFUL",
            "failed": f"{REFRESHED}status == TaskResultStatus.FAILED",
            "task_id": "result.id",
            "revoke": "pulse_django.cancel(result.id)",
            "info": "pulse_django.progress(result.id), or result.refresh() and result.return_value",
            "children": "pulse_django.get(result.id).children.all()",
        },
    ),
    (
        lambda: chain(two.prepare(1, 2)).enqueue(),
        OF_BATCHES,
        {
            "join": "a last job that needs the others, and reads context.results",
            **dict.fromkeys(("ready", "successful", "failed", "completed_count"), "batch.progress()"),
            "children": "batch.jobs",
            "revoke": "batch.cancel()",
        },
    ),
]


def test_celerys_words_say_what_to_write_instead() -> None:
    with all_faults() as about:
        for make, table, said in CELERYS:
            given = make()
            with about(repr(given)):
                assert said.keys() == table.keys()
                assert not hasattr(given, "no_such_thing")
            for name, line in said.items():
                with about(name), pytest.raises(AttributeError) as refused:
                    getattr(given, name)
                assert str(refused.value) == f"{name} is Celery's: write {line}"


def test_celerys_names_say_what_to_import_instead() -> None:
    with all_faults() as about:
        for name, line in OF_IMPORTS.items():
            with about(name), pytest.raises(ImportError) as refused:
                exec(f"from pulse_django import {name}")
            assert str(refused.value) == f"{name} is Celery's: write {line}"
    assert not hasattr(pulse_django, "no_such_thing")


def test_celerys_calls_say_what_to_write_instead() -> None:
    call: Any = two.prepare(1, 2)
    once: Any = task(at_most_once=True, name="calls.once")(two.func)
    retries: list[Any] = [one.retry for one in (two, once, once.using())]
    cases: list[tuple[Callable[[], Any], str]] = [
        (call, "write .enqueue()"),
        (chain(call), "write .enqueue()"),
        (group(call), "write .enqueue()"),
        (chain(call).enqueue().get, "write a last job that needs the others"),
        (lambda: chord([call]), "write chord(header, callback).enqueue()"),
        *((partial(one, countdown=5), "write raise RetryLater(delay)") for one in retries),
    ]
    with all_faults() as about:
        for wrong, line in cases:
            with about(repr(wrong)), pytest.raises(TypeError, match=re.escape(f"is Celery's: {line}")):
                wrong()


def test_celerys_pipe_says_what_to_write_instead() -> None:
    call: Any = two.prepare(1, 2)
    with all_faults() as about:
        for this, that in ((call, call), (two, call), (group(call), call)):
            with about(repr(this)), pytest.raises(TypeError, match=r"^\| is Celery's: write chain\(this, that\)"):
                this | that


def test_an_error_inside_a_property_is_the_one_that_is_seen() -> None:
    context = fake_context()
    context.run.claim = None  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute"):
        context.job_id  # noqa: B018


def test_an_option_among_the_arguments_of_a_call_is_told() -> None:
    with pytest.raises(WrongArguments, match=r"'countdown'. Write \.using\(run_after=\.\.\.\)\.enqueue\(\.\.\.\)$"):
        tasks.add.enqueue(1, 2, countdown=60)  # type: ignore[call-arg]
    with pytest.raises(WrongArguments, match=r"'acks_late'$"):
        tasks.add.enqueue(1, 2, acks_late=True)  # type: ignore[call-arg]


@each_of(
    (lambda: task(expires="60")(tasks.add.func), TypeError, "expires: @task takes a number of seconds"),  # type: ignore[call-overload]
    (lambda: retry_unless([ValueError]), InvalidJob, "is not an exception class; write retry_unless"),  # type: ignore[arg-type]
    (lambda: retry_on("ValueError"), InvalidJob, "is not an exception class"),  # type: ignore[arg-type]
    (lambda: retry_on(OSError, backoff=NO_RETRIES), InvalidJob, "is neither a Backoff nor a function"),  # type: ignore[arg-type]
    (retry_on, InvalidJob, r"retry_on\(\) names no exception. Write retry_on\(OSError\), or NO_RETRIES"),
    (lambda: Every(minutes=0), InvalidSchedule, r"0.0s is not .*\. Write Every\(minutes=5\)"),
    (lambda: Every(60, minutes=1), InvalidSchedule, "give either an interval"),
    (lambda: tasks.add(1, 2), TypeError, r"add is a task. Use add.enqueue\(...\)"),  # type: ignore[operator]
    (
        lambda: enqueue_many(tasks.add, range(3)),
        InvalidJob,
        r"arguments\[0\]: int is a single value; write \[value\]",
    ),  # type: ignore[arg-type],
)
def test_wrong_calls_say_the_line_to_write(*, call: Any, error: Any, words: Any) -> None:
    """Each raised an error of Python's own, or passed and failed later."""
    with pytest.raises(error, match=words):
        call()


def test_answers_are_true_if_a_job_was_changed() -> None:
    waiting, dead = make_job(), make_job(Status.DEAD_LETTERED)
    assert not retry(1)
    assert not cancel(1)
    assert retry(dead.pk)
    assert cancel(waiting.pk)
    assert not cancel(waiting.pk)


def test_a_backend_that_runs_at_once_refuses_to_wait(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": IMMEDIATE, "QUEUES": []}}
    with pytest.raises(InvalidTask, match="does not support run_after"):
        tasks.add.using(run_after=timedelta(hours=1))
    with pytest.raises(InvalidTask, match="does not support run_after"):
        tasks.add.using(run_after=datetime.now(UTC) + timedelta(hours=1))


def test_a_queue_that_is_not_allowed_any_more_is_refused_at_enqueue(settings: Any) -> None:
    mail, before = tasks.add.using(queue_name="mail"), dict(settings.TASKS)
    settings.TASKS = {"default": {"BACKEND": PULSE, "QUEUES": ["default"]}}
    with pytest.raises(InvalidTask, match="mail"):
        mail.enqueue(1, 2)
    with pytest.raises(InvalidTask, match="mail"):
        enqueue_many(mail, [[1, 2]])
    settings.TASKS = before
    with mock.patch.object(BaseTaskBackend, "validate_task") as validate:
        mail.enqueue(1, 2)
        mail.enqueue(1, 2)
    assert validate.call_count == 1, "only after the settings have changed"


def test_a_queue_that_is_not_allowed_says_how_to_allow_it(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": PULSE, "QUEUES": ["default"]}}
    with pytest.raises(InvalidTask, match=r'mail.*Add it to QUEUES in TASKS\["default"\]'):
        task(name="tests.mailed", queue_name="mail")(tasks.add.func)
    del settings.TASKS
    with pytest.raises(InvalidTask, match=r"mail.*There is no setting TASKS"):
        task(name="tests.mailed", queue_name="mail")(tasks.add.func)


def test_a_result_knows_when_its_job_was_to_run() -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    waits, due = tasks.add.using(run_after=at).enqueue(1, 2), tasks.add.enqueue(1, 2)
    assert tasks.add.get_result(waits.id).task.run_after == at
    assert tasks.add.get_result(due.id).task.run_after is None
    jump_to_next_run(due)
    run_job(due)
    assert tasks.add.get_result(due.id).task.run_after is None
