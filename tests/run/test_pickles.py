"""Tasks can be pickled: by name, with what ``using()`` changed."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from itertools import product

import pytest

from pulse_django.tasks import PulseTask
from testproject.shop import tasks
from tests.faults import all_faults

TASKS = {
    "as declared": tasks.add,
    "with a name of its own": tasks.echo,
    "with options": tasks.later,
    "changed": tasks.add.using(
        priority=7, queue_name="q", run_after=timedelta(minutes=1), max_attempts=3, idempotency_key="k"
    ),
    "async": tasks.add.using(timeout=timedelta(seconds=3), lease=timedelta(seconds=9)),
}


def test_a_task_comes_back_equal() -> None:
    with all_faults() as about:
        for protocol, task in product(range(pickle.HIGHEST_PROTOCOL + 1), TASKS.values()):
            with about(f"{task.name}, protocol {protocol}"):
                again = pickle.loads(pickle.dumps(task, protocol))
                assert type(again) is PulseTask
                assert again == task
                assert again.func is task.func
                assert copy.copy(task) == copy.deepcopy(task) == task


def test_the_pickle_holds_the_name_and_no_code() -> None:
    assert len(pickle.dumps(tasks.add)) < 200


def test_a_name_that_this_process_does_not_know_is_told_and_imports_nothing() -> None:
    forged = pickle.dumps(tasks.add, 0).replace(b"testproject.shop.tasks.add", b"testproject.shop.tasks.bad")
    with pytest.raises(LookupError, match=r"tasks\.bad'"):
        pickle.loads(forged)
