"""Eight sessions enqueue ten thousand jobs by SQL, and roll many back: none is lost, and none is there twice."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from pulse_django import task
from pulse_django.models import Job
from tests.crash.processes import database_url

from .steps import declare

pytestmark = [pytest.mark.usefixtures("pulse_db"), pytest.mark.one_server("Citus has no such function")]

SESSIONS, CALLS, KEYS = 8, 1_250, 500
ROLLED_BACK = 0.3
ENQUEUE = "SELECT pulse_enqueue('sql.tortured', jsonb_build_array(%s::text))"
WITH_KEY = "SELECT pulse_enqueue('sql.tortured', jsonb_build_array(%s::text), idempotency_key => %s)"


@task(name="sql.tortured")
def tortured(name: str) -> None: ...


def session(number: int, *, with_keys: bool) -> dict[str, int]:
    """Call it in transactions of different lengths. Return the ids of what was committed, by name or key."""
    chance, committed = random.Random(number), dict[str, int]()
    with psycopg.connect(database_url(), autocommit=True) as connection:
        calls = 0
        while calls < CALLS:
            found: dict[str, int] = {}
            with connection.transaction(force_rollback=(is_lost := chance.random() < ROLLED_BACK)):
                keys = sorted(chance.sample(range(KEYS), length := min(chance.randint(1, 20), CALLS - calls)))
                for key in keys:  # in one order: they are locked until the end
                    calls += 1
                    name = f"key {key}" if with_keys else f"{number}.{calls}"
                    given = (name, name) if with_keys else (name,)
                    [found[name]] = connection.execute(WITH_KEY if with_keys else ENQUEUE, given).fetchone() or [0]
                assert len(found) == length
            committed |= {} if is_lost else found
    return committed


@pytest.mark.parametrize("with_keys", [False, True])
def test_what_was_committed_is_there_once_and_nothing_else(with_keys: bool) -> None:
    declare()
    with ThreadPoolExecutor(SESSIONS) as sessions:
        answers = list(sessions.map(lambda number: session(number, with_keys=with_keys), range(SESSIONS)))
    said = {pair for answer in answers for pair in answer.items()}
    there = {(name, job_id) for job_id, [name] in Job.objects.values_list("pk", "args")}
    assert there == said
    assert Counter(name for name, _ in there).most_common(1)[0][1] == 1
    assert len(there) == KEYS if with_keys else 5_000 < len(there) < SESSIONS * CALLS
