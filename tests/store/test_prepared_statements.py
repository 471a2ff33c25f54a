"""What a worker's session plans once, and where it does not: settings, values, changes of the schema, poolers."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from django.db import DatabaseError, connection

from pulse_django.models import Job
from pulse_django.store.prepared_statements import PreparedStatements
from pulse_django.store.transactions import run_alone, with_timeouts
from pulse_django.words.identity import Identity
from pulse_django.words.job_options import NewJob
from pulse_django.words.lanes import Lane
from pulse_django.words.states import Status
from pulse_django.worker.guarded_connection import GuardedConnection
from tests.protocol.steps import claim_one, sql, success
from tests.rival import Rival

SETTINGS = "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit')"
PREPARED = "SELECT count(*), sum(generic_plans)::int, sum(custom_plans)::int FROM pg_prepared_statements"

pytestmark = pytest.mark.session("settings and prepared statements belong to a session of its own")


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
        assert run_alone("default", "SELECT %s::int", [number]) == [(number,)]
    # One more, which asks: it is a run as well.
    assert run_alone("default", PREPARED, [])[0] == (2, 11, 0)


@pytest.mark.usefixtures("prepared")
def test_it_runs_read_committed_and_durably_with_its_timeouts_whatever_the_role_says() -> None:
    role = sql("SELECT current_user::text")[0][0]
    sql(f'ALTER ROLE "{role}" SET default_transaction_isolation = serializable')
    sql(f'ALTER ROLE "{role}" SET synchronous_commit = off')
    try:
        connection.close()
        assert run_alone("default", SETTINGS, []) == [("read committed", "on")]
        timeouts = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
        assert run_alone("default", timeouts, []) == [("1500ms", "5s")]
    finally:
        sql(f'ALTER ROLE "{role}" RESET default_transaction_isolation')
        sql(f'ALTER ROLE "{role}" RESET synchronous_commit')


@pytest.mark.usefixtures("prepared")
def test_every_verb_of_a_child_works_with_prepared_statements() -> None:
    Job.objects.enqueue_many([NewJob(task="tests.add", args=["%s", {"a": None}])] * 30)
    me, lanes = Identity("me"), [Lane("default", 0)]
    for limit in (1, 2, 3, 4):
        claims = Job.objects.claim(me, limit=limit, lanes=lanes)
        assert [claim.args for claim in claims] == [["%s", {"a": None}]] * limit
        assert Job.objects.settle([success(claim) for claim in claims], wait=False).accepted
    assert len(Job.objects.waiting(None)) == 1
    [claim] = Job.objects.claim(me, limit=1)
    assert Job.objects.settle([success(claim)]).accepted
    assert Job.objects.settle([success(claim)]).repeated
    assert Job.objects.release([claim_one(me).lease]).accepted
    assert Job.objects.filter(status=Status.COMPLETED).count() == 11


@pytest.mark.usefixtures("prepared")
def test_one_text_claims_any_number_of_jobs() -> None:
    Job.objects.enqueue_many([NewJob(task="tests.add")] * 9)
    for limit in (1, 3, 5):
        assert len(Job.objects.claim(Identity("me"), limit=limit, lanes=[Lane("default", 0)])) == limit
    texts = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%%picked (id, bytes)%%'"
    assert run_alone("default", texts, [])[0] == (1 + 1,)  # and the question itself


@pytest.mark.usefixtures("prepared")
def test_what_was_planned_for_an_empty_table_does_not_read_all_of_a_full_one() -> None:
    me, lanes = Identity("me"), [Lane("default", 0)]
    sql("VACUUM ANALYZE pulse_django_job_hot")
    assert Job.objects.claim(me, limit=10, lanes=lanes) == []
    assert Job.objects.waiting(None) == []
    sql("SELECT pg_stat_force_next_flush()")
    [(before,)] = sql("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'pulse_django_job_hot'")
    Job.objects.enqueue_many([NewJob(task="tests.add")] * 2_000)
    for _ in range(10):
        claims = Job.objects.claim(me, limit=10, lanes=lanes)
        assert len(claims) == 10
        assert len(Job.objects.settle([success(claim) for claim in claims], wait=False).accepted) == 10
        assert Job.objects.waiting(None)
    sql("SELECT pg_stat_force_next_flush()")
    [(after,)] = sql("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'pulse_django_job_hot'")
    assert after == before


def test_a_connection_recovers_when_a_type_changes_under_its_plan(pulse_db: None, rival: Rival) -> None:
    database = GuardedConnection("default", "test", prepares=True)
    sql("CREATE TABLE changing (value int)")
    try:
        for _ in range(2):
            assert database.call(run_alone, "default", "SELECT value FROM changing", []) == []
        rival.run(sql, "ALTER TABLE changing ALTER value TYPE text")
        with pytest.raises(DatabaseError, match="cached plan"):
            database.call(run_alone, "default", "SELECT value FROM changing", [])
        assert database.call(run_alone, "default", "SELECT value FROM changing", []) == []
    finally:
        database.hang_up()
        sql("DROP TABLE changing")


def test_statements_are_not_prepared_any_more_once_the_session_is_not_ours_alone(
    pulse_db: None, caplog: pytest.LogCaptureFixture
) -> None:
    database = GuardedConnection("default", "test", prepares=True)
    try:
        assert database.call(run_alone, "default", "SELECT 1", []) == [(1,)]
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")  # psycopg would notice a plain one
        with caplog.at_level(logging.WARNING, "pulse_django"), pytest.raises(DatabaseError):
            database.call(run_alone, "default", "SELECT 1", [])
        assert "Statements are not prepared any more" in caplog.text
        for _ in range(2):
            assert database.call(run_alone, "default", "SELECT 1", []) == [(1,)]
        assert database.call(run_alone, "default", "SELECT count(*) FROM pg_prepared_statements", []) == [(0,)]
    finally:
        database.hang_up()


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
            assert run_alone("default", SETTINGS, []) == [("read committed", "on")]
        assert run_alone("default", "SELECT count(*) FROM pg_prepared_statements", []) == [(0,)]
        assert sql(changed) == before


@pytest.mark.usefixtures("prepared")
def test_an_error_tells_what_went_wrong_and_no_values() -> None:
    with pytest.raises(DatabaseError) as raised:
        run_alone("default", "SELECT %s::int", ["a secret"])
    assert "a secret" not in str(raised.value.__cause__.diag.message_detail or "")
    with pytest.raises(DatabaseError):
        run_alone("default", "SELECT 1 / %s", [0])
    assert run_alone("default", "SELECT 1", []) == [(1,)]
    assert sql("SELECT pg_current_xact_id_if_assigned()") == [(None,)]
