"""The declarations of options, and what stands beside them for type checkers, say the same."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, get_type_hints

import pytest
from django.db import connection

from pulse_django import task
from pulse_django.models import Job
from pulse_django.queue.words import options
from pulse_django.queue.words.durations import Seconds
from pulse_django.queue.words.options import COLUMNS, JOB_OPTIONS, OPTIONS, ClaimedOptions, JobOptions, Options, Whole
from pulse_django.run.registry import InvalidTask
from pulse_django.tasks import PulseTask
from tests.faults import all_faults, each_of


def plain() -> None: ...


ATTRIBUTES = {one.name: one for one in fields(PulseTask)}
BESIDE_THEM = {"expires", "tags", "meta"}  # columns that are not written as they are given
OF_A_CLAIM = get_type_hints(ClaimedOptions)
DURATIONS = {Seconds | None: timedelta | None, datetime | Seconds | None: datetime | timedelta | None}


def kept(annotation: Any) -> Any:
    """Return the type of a value as it is kept: a number of seconds becomes a ``timedelta``."""
    return DURATIONS.get(annotation, annotation)


@each_of(*OPTIONS)
def test_a_task_has_each_option_as_an_attribute_with_the_declared_default(*, name: Any) -> None:
    assert ATTRIBUTES[name].default == OPTIONS[name].default


def test_each_option_can_be_given() -> None:
    assert options._ABOUT.keys() == OPTIONS.keys()


def test_an_attribute_has_the_declared_type() -> None:
    names = tuple[str, ...]
    stored = {"tags": names, "meta": str | None, "aliases": names, "sensitive": names, "searchable": names}
    found = get_type_hints(Options)
    with all_faults() as about:
        for name in [one.name for one in fields(Options)]:
            with about(name):
                assert found[name] == stored.get(name, kept(OPTIONS[name].annotation))


def test_what_jobs_keep_and_djangos_own_are_the_options_with_a_column() -> None:
    with_column = {name for name, option in OPTIONS.items() if option.column}
    assert with_column == {one.name for one in fields(JobOptions)} | {"priority", "queue_name", *BESIDE_THEM}
    assert with_column == {name for name, option in OPTIONS.items() if option.label}
    for option in OPTIONS.values():
        assert not option.column or Job._meta.get_field(option.column)


@each_of(*OF_A_CLAIM)
def test_what_a_claim_brings_has_the_declared_type(*, name: Any) -> None:
    assert OPTIONS[name].column
    assert OF_A_CLAIM[name] == kept(OPTIONS[name].annotation)


def test_a_number_within_its_bounds_fits_its_column() -> None:
    """Or PostgreSQL would refuse it, and with it the caller's transaction."""
    with all_faults() as about:
        for option in [one for one in OPTIONS.values() if one.column and isinstance(one.kind, Whole)]:
            with about(option):
                least, most = connection.ops.integer_field_range(Job._meta.get_field(option.column).get_internal_type())
                assert least <= option.kind.least <= option.kind.most <= most


def test_columns_are_in_the_order_of_the_values() -> None:
    assert len(set(COLUMNS)) == len(JOB_OPTIONS) == len(fields(JobOptions))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_attemps": 3}, "@task has no option 'max_attemps'. Did you mean 'max_attempts'?"),
    ({"colour": "red"}, "@task has no option 'colour'. The options are aliases, at_most_once, atomic, backend,"),
    ({"database": "default"}, "database cannot be set in the decorator: use .using(...)"),
]


@each_of(*REFUSED)
def test_an_option_that_the_decorator_does_not_take_is_told_with_what_to_write(*, options: Any, message: Any) -> None:
    with pytest.raises(TypeError) as refused:
        task(**options)
    assert message in str(refused.value)


def test_an_option_that_a_call_does_not_take_is_told_with_what_to_write() -> None:
    made: PulseTask[..., None] = PulseTask(func=plain, name="test.options")
    with pytest.raises(TypeError, match=r"\.using\(\) has no option 'priorty'\. Did you mean 'priority'\?"):
        made.using(priorty=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"isolation cannot be set for a call: use @task\(isolation=\.\.\.\)"):
        made.using(isolation="process")  # type: ignore[call-arg]


NOT_ALLOWED: list[tuple[dict[str, Any], str]] = [
    ({"max_attempts": 0}, "test.options: max_attempts: 0 is not within 1 to 2147483647"),
    ({"max_attempts": True}, "test.options: max_attempts: True is not a whole number"),
    ({"lease": timedelta(days=2)}, "test.options: lease: 2 days, 0:00:00 is longer than 1 day, 0:00:00."),
    ({"count_lost_workers": 0}, "test.options: count_lost_workers: 0 is neither True nor False"),
    ({"atomic": "yes"}, "test.options: atomic: 'yes' is neither True nor False"),
    ({"idempotency_key": ""}, "test.options: idempotency_key: '' is not a non-empty string"),
]


@each_of(*NOT_ALLOWED)
def test_a_value_that_is_not_allowed_is_told_with_task_and_option(*, options: Any, message: Any) -> None:
    with pytest.raises(InvalidTask) as refused:
        PulseTask(func=plain, name="test.options", **options)
    assert str(refused.value).startswith(message)


def test_none_says_nothing() -> None:
    said: PulseTask[..., None] = PulseTask(func=plain, name="test.options", priority=5, max_attempts=3)
    assert said.using(priority=None, max_attempts=None) == said
    declared = task(name="test.options.none", priority=None, queue_name=None)(plain)
    assert (declared.priority, declared.queue_name) == (0, "default")
