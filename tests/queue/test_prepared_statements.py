"""What a worker's session plans once, and where it does not: settings, values, changes of the schema, poolers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    connection,
    transaction,
)
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from pulse_django.limits.rules import Limit, Rate
from pulse_django.models import Job, Limiter
from pulse_django.queue.database.prepared_statements import SENT_BEFORE_PREPARED, PreparedStatements
from pulse_django.queue.database.transactions import run_alone, run_message, with_timeouts
from pulse_django.queue.words.decisions import Complete, Postpone
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.queue.words.outcomes import Released, Succeeded
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.worker.guarded_connection import GuardedConnection
from testproject.shop import tasks
from tests.factories import lease_of, make_job
from tests.queue.steps import claim_one, sql, success
from tests.rival import Rival

SETTINGS = "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit')"
PREPARED = "SELECT count(*), sum(generic_plans)::int, sum(custom_plans)::int FROM pg_prepared_statements"

asked = partial(run_alone, "default", plan_once=True)

pytestmark = [
    pytest.mark.session("settings and prepared statements belong to a session of its own"),
    pytest.mark.one_server("nothing is prepared there"),
]


@pytest.fixture
def prepared(pulse_db: None) -> Iterator[PreparedStatements]:
    connection.close()
    before, prepared = connection.settings_dict, PreparedStatements()
    connection.settings_dict = with_timeouts(before, lock=1.5, statement=5, prepared=prepared)
    yield prepared
    connection.close()
    connection.settings_dict = before


@pytest.mark.usefixtures("prepared")
def test_a_statement_is_planned_once_whatever_its_values() -> None:
    for number in range(10):
        assert asked("SELECT %s::int", [number]) == [(number,)]
    # One more, which asks: it is a run as well.
    assert asked(PREPARED, [])[0] == (2, 11, 0)


@pytest.mark.usefixtures("prepared")
def test_it_runs_read_committed_and_durably_with_its_timeouts_whatever_the_role_says() -> None:
    role = sql("SELECT current_user::text")[0][0]
    sql(f'ALTER ROLE "{role}" SET default_transaction_isolation = serializable')
    sql(f'ALTER ROLE "{role}" SET synchronous_commit = off')
    try:
        connection.close()
        assert asked(SETTINGS, []) == [("read committed", "on")]
        timeouts = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
        assert asked(timeouts, []) == [("1500ms", "5s")]
    finally:
        sql(f'ALTER ROLE "{role}" RESET default_transaction_isolation')
        sql(f'ALTER ROLE "{role}" RESET synchronous_commit')


@pytest.mark.usefixtures("prepared")
def test_every_verb_of_a_child_works_with_prepared_statements() -> None:
    """One text claims any number of jobs."""
    Job.objects.enqueue_many([NewJob(task="tests.add", args=["%s", {"a": None}])] * 30)
    me, lanes = Identity("me"), [Lane("default", 0)]
    for limit in (1, 2, 3, 4):
        claims = Job.objects.claim(me, limit=limit, lanes=lanes)
        assert [claim.args for claim in claims] == [["%s", {"a": None}]] * limit
        assert Job.objects.settle([success(claim) for claim in claims], wait=False).accepted
    texts = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%%WITH picked AS%%'"
    assert asked(texts, [])[0] == (1 + 1,)  # and the question itself
    assert len(Job.objects.waiting(None)) == 1
    [claim] = Job.objects.claim(me, limit=1)
    assert Job.objects.settle([success(claim)]).accepted
    assert Job.objects.settle([success(claim)]).repeated
    assert Job.objects.release([claim_one(me).lease]).accepted
    assert Job.objects.filter(status=Status.COMPLETED).count() == 11


@pytest.mark.usefixtures("prepared")
def test_statements_of_one_message_are_one_transaction() -> None:
    answers = run_message(
        "default",
        [
            ("SELECT set_config('pulse.proof', %s, true)", ["here"]),
            ("SELECT current_setting('pulse.proof')", []),
            ("SELECT pg_try_advisory_xact_lock(1, 2)", []),
        ],
    )
    assert answers == [[("here",)], [("here",)], [(True,)]]
    assert asked("SELECT current_setting('pulse.proof', true)", []) == [("",)]
    assert asked("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()", []) == [(0,)]


@pytest.mark.usefixtures("prepared")
def test_a_message_that_fails_leaves_no_transaction_and_no_lock() -> None:
    for _ in range(2):
        with pytest.raises(DataError, match="division by zero"):
            run_message(
                "default", [("SELECT pg_try_advisory_xact_lock(1, 2)", []), ("SELECT 1 / %s", [0]), ("SELECT 3", [])]
            )
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        assert asked(held, []) == [(0,)]


class TestPlansOfAnEmptyTable:
    """A worker that was idle has its plans from when nothing waited. Then much comes at once."""

    WAITING, ROUNDS, AT_ONCE = 5_000, 10, 20

    def fill(self) -> None:
        Job.objects.enqueue_many([NewJob(task="tests.add")] * self.WAITING)

    def read(self, rival: Rival) -> int:
        """Return how many rows and index entries of the hot partition were read so far."""
        for flush in (sql, partial(rival.run, sql)):
            flush("SELECT pg_stat_force_next_flush()")
        [(read,)] = sql(
            "SELECT seq_tup_read + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes AS i WHERE i.relid = t.relid)"
            " FROM pg_stat_user_tables AS t WHERE relname = 'pulse_django_job_hot'"
        )
        return int(read)

    @pytest.mark.parametrize("rows", [0, 5, 200])
    @pytest.mark.usefixtures("prepared")
    def test_claims_read_little_of_a_full_one(self, rows: int, rival: Rival) -> None:
        me, lanes = Identity("me"), [Lane("default", 0)]
        Job.objects.enqueue_many([NewJob(task="tests.add", run_after=timedelta(days=1))] * rows)
        sql("VACUUM ANALYZE pulse_django_job_hot")
        assert Job.objects.claim(me, limit=10, lanes=lanes) == []
        assert len(Job.objects.waiting(None)) == bool(rows)
        self.fill()
        before = self.read(rival)
        for _ in range(self.ROUNDS):
            assert len(Job.objects.claim(me, limit=self.AT_ONCE, lanes=lanes)) == self.AT_ONCE
            assert Job.objects.waiting(None)
        assert self.read(rival) - before < self.WAITING

    @pytest.mark.parametrize("rows", [0, 5, 200])
    @pytest.mark.usefixtures("prepared")
    def test_claims_with_limits_read_little_of_a_full_one(self, rows: int, rival: Rival) -> None:
        """Of jobs that run, too: these are counted, under each of a limit's numbers."""
        me, far = Identity("me"), Rate(1_000_000, per=timedelta(hours=1), burst=1_000_000)
        limit = Limit("full", max_running=10_000, max_running_per_key=10_000, rate=far, rate_per_key=far)
        Limiter.objects.declare_new(
            "tests", {"full": limit.numbers(), "queue=default": Limit(max_running=10_000).numbers()}
        )
        lanes = [Lane("default", 0, lane_key("full", str(key))) for key in range(5)]
        takes = dict.fromkeys(lanes, self.AT_ONCE // len(lanes))
        Job.objects.enqueue_many([NewJob(task="tests.add", lane_key=lanes[0].key, run_after=timedelta(days=1))] * rows)
        sql("VACUUM ANALYZE pulse_django_job_hot, pulse_django_limiter, pulse_django_bucket")

        def claim() -> list[Claim]:
            answer = Job.objects.claim_limited(me, "full", lanes, takes, limit=self.AT_ONCE, queue="default")
            return list(answer.claims)

        assert claim() == []
        for lane in lanes:
            Job.objects.enqueue_many([NewJob(task="tests.add", lane_key=lane.key)] * (self.WAITING // len(lanes)))
        before = self.read(rival)
        for _ in range(self.ROUNDS):
            assert len(claim()) == self.AT_ONCE
        counted = 3 * self.AT_ONCE * self.ROUNDS * self.ROUNDS  # half of it, for the limit, its keys and its queue
        assert self.read(rival) - before < self.WAITING + counted
        assert asked("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%%pulse.got%%'", [])[0] >= (2,)

    @pytest.mark.parametrize("rows", [0, 5])
    @pytest.mark.parametrize("how", [(Succeeded(), Complete()), (Released(), Postpone(timedelta()))])
    @pytest.mark.usefixtures("prepared")
    def test_settles_read_little_of_a_full_one(self, rows: int, how: Any, rival: Rival) -> None:
        me, lanes = Identity("me"), [Lane("default", 0)]
        Job.objects.enqueue_many([NewJob(task="tests.add", run_after=timedelta(days=1))] * rows)
        job = make_job(Status.RUNNING)
        sql("VACUUM ANALYZE pulse_django_job_hot")
        assert Job.objects.settle([Report(lease_of(job), *how)], wait=False).accepted
        self.fill()
        for _ in range(self.ROUNDS):
            claims = rival.run(Job.objects.claim, me, limit=self.AT_ONCE, lanes=lanes)
            reports = [Report(claim.lease, *how) for claim in claims]
            before = self.read(rival)
            assert len(Job.objects.settle(reports, wait=False).accepted) == self.AT_ONCE
            assert self.read(rival) - before < 20 * self.AT_ONCE


def test_a_connection_recovers_when_a_type_changes_under_its_plan(pulse_db: None, rival: Rival) -> None:
    database = GuardedConnection("default", "test", keeps_plans=True)
    sql("CREATE TABLE changing (value int)")
    try:
        for _ in range(2):
            assert database.call(asked, "SELECT value FROM changing", []) == []
        rival.run(sql, "ALTER TABLE changing ALTER value TYPE text")
        with pytest.raises(DatabaseError, match="cached plan"):
            database.call(asked, "SELECT value FROM changing", [])
        assert database.call(asked, "SELECT value FROM changing", []) == []
    finally:
        database.hang_up()
        sql("DROP TABLE changing")


def test_statements_are_not_prepared_any_more_once_the_session_is_not_ours_alone(
    pulse_db: None, caplog: pytest.LogCaptureFixture
) -> None:
    database = GuardedConnection("default", "test", keeps_plans=True)
    try:
        assert database.call(asked, "SELECT 1", []) == [(1,)]
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")  # psycopg would notice a plain one
        with caplog.at_level(logging.WARNING, "pulse_django"), pytest.raises(DatabaseError):
            database.call(asked, "SELECT 1", [])
        assert "Statements are not prepared any more" in caplog.text
        for _ in range(2):
            assert database.call(asked, "SELECT 1", []) == [(1,)]
        assert database.call(asked, "SELECT count(*) FROM pg_prepared_statements", []) == [(0,)]
    finally:
        database.hang_up()


# A single enqueue(), which the project's own connections send.


INSERTS = "SELECT count(*)::int, sum(generic_plans + custom_plans)::int FROM pg_prepared_statements WHERE NOT from_sql"


@pytest.fixture
def fresh(pulse_db: None) -> Iterator[None]:
    connection.close()
    connection.ensure_connection()
    yield
    connection.close()


def enqueue(count: int) -> None:
    for number in range(count):
        tasks.add.enqueue(number, 1)


@pytest.mark.usefixtures("fresh")
def test_a_connection_that_enqueues_often_prepares_its_insert() -> None:
    enqueue(SENT_BEFORE_PREPARED)
    assert sql(INSERTS) == [(0, None)], "a request that sends one gains nothing"
    enqueue(4)
    with transaction.atomic():
        enqueue(5)
    assert sql(INSERTS) == [(2, 9)], "alone it makes its commit durable"
    with suppress(ZeroDivisionError), transaction.atomic():
        enqueue(1)
        raise ZeroDivisionError
    enqueue(1)
    assert Job.objects.count() == SENT_BEFORE_PREPARED + 4 + 5 + 1
    assert connection.connection.prepare_threshold is None, "it is the project's"


@pytest.mark.usefixtures("fresh")
def test_a_job_is_durable_though_its_session_is_not() -> None:
    sql("CREATE TABLE committed (how text)")
    sql(
        "CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO committed VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER note_commit AFTER INSERT ON pulse_django_job_hot"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_commit()"
    )
    try:
        sql("SET synchronous_commit = off")
        enqueue(SENT_BEFORE_PREPARED + 3)
        assert sql(INSERTS) == [(1, 3)]
        assert sql("SELECT how, count(*) FROM committed GROUP BY how") == [("on", SENT_BEFORE_PREPARED + 3)]
    finally:
        sql("DROP TRIGGER note_commit ON pulse_django_job_hot")
        sql("DROP FUNCTION note_commit(); DROP TABLE committed")


@pytest.mark.usefixtures("fresh")
def test_where_something_watches_or_is_set_an_insert_is_not_prepared() -> None:
    def watch(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    seen: list[str] = []
    with connection.execute_wrapper(watch), transaction.atomic():
        enqueue(9)
    assert sum(text.startswith("INSERT INTO pulse_django_job_hot") for text in seen) == 9
    with CaptureQueriesContext(connection) as captured:
        enqueue(9)
    assert sum("INSERT INTO pulse_django_job_hot" in query["sql"] for query in captured) == 9
    assert sql(INSERTS) == [(0, None)]
    connection.close()
    sql("SET default_transaction_isolation = serializable")
    enqueue(9)
    assert sql(INSERTS) == [(0, None)], "alone it runs read committed"


@pytest.mark.usefixtures("fresh")
def test_an_insert_is_sent_anew_if_the_server_does_not_know_it_any_more() -> None:
    enqueue(SENT_BEFORE_PREPARED + 2)
    sql("DEALLOCATE ALL")
    enqueue(1)
    assert Job.objects.count() == SENT_BEFORE_PREPARED + 3
    connection.close()
    enqueue(SENT_BEFORE_PREPARED)
    with transaction.atomic():
        enqueue(2)
    sql("DEALLOCATE ALL")
    with pytest.raises(ProgrammingError, match="does not exist"), transaction.atomic():
        enqueue(1)
    with transaction.atomic():
        enqueue(1)
    assert Job.objects.count() == 2 * SENT_BEFORE_PREPARED + 3 + 2 + 1


@pytest.mark.usefixtures("fresh")
def test_a_connection_that_died_is_replaced(rival: Rival) -> None:
    for before in (SENT_BEFORE_PREPARED, SENT_BEFORE_PREPARED + 2):  # when it is asked whether to prepare, and later
        enqueue(before)
        rival.run(sql, "SELECT pg_terminate_backend(%s)", connection.connection.info.backend_pid)
        with pytest.raises(OperationalError):
            enqueue(1)
        enqueue(1)
    assert Job.objects.count() == 2 * SENT_BEFORE_PREPARED + 2 + 2


@pytest.mark.usefixtures("fresh")
def test_in_a_transaction_that_has_failed_nothing_is_asked() -> None:
    enqueue(SENT_BEFORE_PREPARED)
    with pytest.raises(TransactionManagementError), transaction.atomic():
        with suppress(DatabaseError), transaction.atomic(savepoint=False):
            sql("SELECT 1 / 0")
        enqueue(1)


@pytest.mark.usefixtures("fresh")
def test_an_insert_that_is_refused_leaves_the_transaction_to_the_caller() -> None:
    enqueue(SENT_BEFORE_PREPARED + 1)
    new = NewJob(task="t", args=["a secret"])
    object.__setattr__(new, "priority", 101)
    with pytest.raises(IntegrityError, match="pulse_job_priority_in_range") as refused:
        Job.objects.enqueue(new)
    assert "secret" not in f"{refused.value} {refused.value.__cause__}"
    with transaction.atomic():
        with pytest.raises(IntegrityError), transaction.atomic():
            Job.objects.enqueue(new)
        enqueue(1)
    assert Job.objects.count() == SENT_BEFORE_PREPARED + 2


class TestBehindAPooler:
    """Another process answers than the one that was connected to. tests/crash/test_pooler.py has a real one."""

    @pytest.fixture
    def other_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import psycopg

        real = psycopg.ConnectionInfo.backend_pid
        monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda self: real.fget(self) + 1))

    @pytest.mark.usefixtures("other_process", "prepared")
    def test_nothing_is_prepared_and_no_setting_stays_in_the_session(self) -> None:
        changed = "SELECT name FROM pg_settings WHERE source = 'session' ORDER BY name"
        before = sql(changed)
        for _ in range(3):
            assert asked(SETTINGS, []) == [("read committed", "on")]
        assert asked("SELECT count(*) FROM pg_prepared_statements", []) == [(0,)]
        assert sql(changed) == before


@pytest.mark.usefixtures("prepared")
def test_an_error_tells_what_went_wrong_and_no_values() -> None:
    with pytest.raises(DatabaseError) as raised:
        asked("SELECT %s::int", ["a secret"])
    assert "a secret" not in str(raised.value.__cause__.diag.message_detail or "")
    with pytest.raises(DatabaseError):
        asked("SELECT 1 / %s", [0])
    assert asked("SELECT 1", []) == [(1,)]
    assert sql("SELECT pg_current_xact_id_if_assigned()") == [(None,)]
