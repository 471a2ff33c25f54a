"""Eight enqueuers of the same few keys, of which many roll back, four workers, and sessions that are ended at random.

A row trigger writes down who holds a key, and enqueuers write down what they committed.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.db import Error, connection, transaction
from django.test import override_settings

from pulse_django.models import Job
from pulse_django.queue.words.decisions import Retry
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.queue.words.outcomes import WorkerLost
from pulse_django.queue.words.verb_results import Report
from pulse_django.unique.rule import Unique, UniqueKey
from tests.queue.steps import sql, success

pytestmark = [
    pytest.mark.usefixtures("pulse_db"),
    pytest.mark.session("it ends sessions by their backend"),
    pytest.mark.one_server("it ends the other sessions of its database, in which other tests run at the same time"),
]

SECONDS = 3.0
KEYS = "abcdefgh"
ENQUEUERS, WORKERS = 8, 4
ROLLED_BACK, REPEATABLE, LISTED, ABANDONED, FAILED = 0.3, 0.2, 0.2, 0.1, 0.1
DELAY, LONGEST, PERIOD = timedelta(milliseconds=20), timedelta(milliseconds=300), timedelta(milliseconds=400)

# Sent one by one, and with the schema's name in the function: both are for Citus, whose node runs it.
INSTALL = (
    """
CREATE TABLE witness (seq bigint GENERATED ALWAYS AS IDENTITY, job_id bigint, key text, holds boolean, waits interval)
""",
    "CREATE TABLE wish (seq bigint GENERATED ALWAYS AS IDENTITY, key text, version bigint)",
    """
CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.witness (job_id, key, holds, waits) VALUES (
        COALESCE(NEW.id, OLD.id), COALESCE(NEW.args, OLD.args)->>0,
        NEW.id IS NOT NULL AND NEW.finished_at IS NULL AND (TG_ARGV[0] = 'end' OR NEW.attempts = 0),
        CASE WHEN NEW.attempts = 0 THEN NEW.next_run_at - NEW.created_at END
    );
    RETURN NULL;
END
$$
""",
    """
CREATE TRIGGER witness AFTER INSERT OR UPDATE OR DELETE ON pulse_django_job_hot
    FOR EACH ROW EXECUTE FUNCTION witness('{until}')
""",
)
REMOVE = (
    "DROP TRIGGER IF EXISTS witness ON pulse_django_job_hot",
    "DROP FUNCTION IF EXISTS witness()",
    "DROP TABLE IF EXISTS witness, wish",
)


class RolledBack(Exception):
    pass


class Run:
    def __init__(self, rule: Unique) -> None:
        self.rule = rule
        self.happened: Counter[str] = Counter()
        self.ran: dict[str, set[int]] = defaultdict(set)  # versions by key
        self._versions = count()
        self._over = threading.Event()
        [(schema,)] = sql("SELECT current_schema()")
        for statement in INSTALL:
            sql(statement.format(schema=schema, until="start" if rule.until_start else "end"))

    def go(self) -> None:
        loops: list[Callable[[], None]] = [self._enqueue] * ENQUEUERS + [self._work] * WORKERS + [self._end_a_session]
        until = time.monotonic() + SECONDS
        with ThreadPoolExecutor(len(loops)) as threads:
            going = [threads.submit(self._loop, step) for step in loops]
            while time.monotonic() < until and not any(one.done() for one in going):
                self._over.wait(0.05)
            self._over.set()
            for one in going:
                one.result()
        connection.close()  # it may have been ended
        while Job.objects.filter(finished_at=None).exists():
            self._work()

    def _loop(self, step: Callable[[], None]) -> None:
        try:
            while not self._over.is_set():
                try:
                    step()
                except Error as error:
                    code = getattr(error.__cause__, "sqlstate", "") or "cut off"
                    if code not in ("40001", "57P01", "cut off"):  # could not be serialized, terminated
                        raise
                    self.happened[code] += 1
                    with suppress(Error):
                        connection.close()
        finally:
            connection.close()

    def _enqueue(self) -> None:
        key, version = random.choice(KEYS), next(self._versions)
        run_after = DELAY if self.rule.on_conflict == "debounce" else None
        new = NewJob(
            task="tests.torture", args=[key, version], unique=UniqueKey.of(key, self.rule), run_after=run_after,
            lease=timedelta(milliseconds=200),
        )  # fmt: skip
        with suppress(RolledBack), transaction.atomic():
            if random.random() < REPEATABLE:
                sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            if random.random() < LISTED:
                Job.objects.enqueue_many([new])
            else:
                Job.objects.enqueue(new)
            sql("INSERT INTO wish (key, version) VALUES (%s, %s)", key, version)
            if random.random() < ROLLED_BACK:
                self.happened["rolled back"] += 1
                raise RolledBack
        self.happened["enqueued"] += 1

    def _work(self) -> None:
        claims: list[Claim] = Job.objects.claim(Identity(f"w{threading.get_ident()}"), limit=2)
        for claim in claims:
            key, version = claim.args
            self.ran[key].add(version)
            chance = random.random()
            if chance < ABANDONED:
                continue
            failed = Report(claim.lease, WorkerLost(), Retry(timedelta(), "again"))
            Job.objects.settle([failed if chance < ABANDONED + FAILED else success(claim)])
        if not claims:
            Job.objects.reap()
            self._over.wait(0.01)

    def _end_a_session(self) -> None:
        """As when a process is killed: whatever its transaction did is undone."""
        others = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        found = sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others} ORDER BY random() LIMIT 1")
        self.happened["ended"] += len(found)
        self._over.wait(0.15)


@pytest.fixture
def witnessed(pulse_db: None) -> Iterator[None]:
    for statement in REMOVE:
        sql(statement)
    with override_settings(PULSE={"RETRY_BACKOFF_CAP": 0.05}):
        yield
    connection.close()
    for statement in REMOVE:
        sql(statement)


def run(rule: Unique) -> Run:
    done = Run(rule)
    done.go()
    assert done.happened["enqueued"] > 100, done.happened
    assert done.happened["rolled back"] > 10, done.happened
    assert done.happened["ended"] > 3, done.happened
    return done


def assert_one_holds_each_key() -> None:
    holders: dict[str, set[int]] = defaultdict(set)
    for job_id, key, holds in sql("SELECT job_id, key, holds FROM witness ORDER BY seq"):
        (holders[key].add if holds else holders[key].discard)(job_id)
        assert len(holders[key]) <= 1, (key, holders[key])


def assert_the_last_word_was_run(ran: dict[str, set[int]]) -> None:
    last: dict[str, int] = dict(sql("SELECT DISTINCT ON (key) key, version FROM wish ORDER BY key, seq DESC"))
    assert len(last) == len(KEYS)
    assert {key: version for key, version in last.items() if version not in ran[key]} == {}


@pytest.mark.usefixtures("witnessed")
@pytest.mark.parametrize("rule", [Unique(), Unique(on_conflict="follow")], ids=["end", "start"])
def test_never_two_jobs_hold_a_key(rule: Unique) -> None:
    run(rule)
    assert_one_holds_each_key()


@pytest.mark.usefixtures("witnessed")
@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_the_last_arguments_that_were_committed_are_run(on_conflict: Any) -> None:
    longest = LONGEST if on_conflict == "debounce" else None
    done = run(Unique(on_conflict=on_conflict, max_delay=longest))
    assert_one_holds_each_key()
    assert_the_last_word_was_run(done.ran)
    if longest is not None:
        [(longest_wait,)] = sql("SELECT max(waits) FROM witness")
        assert longest_wait <= longest, "and none is postponed beyond the longest"


@pytest.mark.usefixtures("witnessed")
def test_no_two_jobs_are_enqueued_in_one_period() -> None:
    run(Unique(per=PERIOD))
    gaps = sql(
        "SELECT min(gap) FROM (SELECT created_at - lag(created_at) OVER (PARTITION BY args->>0 ORDER BY created_at)"
        " FROM pulse_django_job) AS since (gap)"
    )
    assert gaps[0][0] is not None, "no period ended"
    assert gaps[0][0] >= PERIOD - timedelta(milliseconds=10)
