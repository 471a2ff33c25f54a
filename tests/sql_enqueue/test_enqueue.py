"""What a call does: in the caller's transaction, with keys that others hold, in a trigger, and under its own role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction
from psycopg.errors import InsufficientPrivilege
from psycopg.sql import SQL

from pulse_django import AlreadyEnqueued, Unique, task
from pulse_django.migrations import _enqueue as function
from pulse_django.models import DeclaredTask, Job
from pulse_django.queue.capability import LoopFacts
from pulse_django.queue.words.leases import Identity
from pulse_django.run.notify import CHANNEL, WakeUp
from pulse_django.run.registry import registry
from pulse_django.sql_enqueue.loop import PAUSE, DeclaredTasks
from pulse_django.testing import drain
from pulse_django.worker.guarded_connection import GuardedConnection
from tests.crash.processes import ROOT, database_url
from tests.faults import all_faults, combined, each_of
from tests.queue.steps import sql
from tests.rival import Rival, backend_pid

from .steps import declare, pulse_enqueue
from .test_options import clear, refusal

pytestmark = [
    pytest.mark.usefixtures("pulse_db"),
    pytest.mark.one_server("Citus has no such function"),
]

RAN: list[int] = []
HOUR = timedelta(hours=1)


@task(name="sql.ship")
def ship(order: int) -> None:
    RAN.append(order)


def sync(order: int, note: str = "") -> None: ...


@pytest.fixture(autouse=True)
def _declared(pulse_db: None) -> None:
    RAN.clear()
    registry.add(ship)
    declare()


def test_a_job_runs_that_sql_enqueued() -> None:
    job_id = pulse_enqueue("sql.ship", [7])
    drain()
    assert RAN == [7]
    assert Job.objects.get(pk=job_id).status == "COMPLETED"


def test_no_commit_no_job() -> None:
    with transaction.atomic():
        pulse_enqueue("sql.ship", [7])
        transaction.set_rollback(True)
    assert not Job.objects.exists()


def test_a_task_that_nobody_declared_is_refused() -> None:
    assert "nobody.knows: no worker has declared this task" in refusal("nobody.knows", [])


class TestDeclaring:
    def test_a_worker_writes_down_the_tasks_of_its_code_and_hangs_up(self) -> None:
        DeclaredTask.objects.all().delete()
        database = GuardedConnection("default", "declared tasks")
        loop = DeclaredTasks(database, LoopFacts(declarer="w:1"))
        assert loop.run_once() == PAUSE
        names = set(DeclaredTask.objects.values_list("name", flat=True))
        assert names >= {"sql.ship", "shop.echo"}
        assert not [name for name in names if name.startswith("pulse_django")], "its own are not declared"
        assert database._wrapper is None
        DeclaredTask.objects.all().delete()
        assert DeclaredTasks(database).run_once() == PAUSE
        assert not DeclaredTask.objects.exists(), "a watchdog has no code"

    def test_the_worker_that_started_last_wins_and_what_it_does_not_declare_is_gone(self) -> None:
        assert declare("w:2", later=HOUR, **{"sql.ship": {"refused": "x"}})
        assert not declare("w:1")
        assert list(DeclaredTask.objects.values_list("name", "options")) == [("sql.ship", {"refused": "x"})]


class TestKeys:
    def test_an_idempotency_key_admits_one_job_also_beside_python_until_that_is_deleted_by_hand(self) -> None:
        first = pulse_enqueue("sql.ship", [1], idempotency_key="'k'")
        assert pulse_enqueue("sql.ship", [2], idempotency_key="'k'") == first
        assert int(ship.using(idempotency_key="k").enqueue(3).id) == first
        assert Job.objects.get().args == [1]
        sql("DELETE FROM pulse_django_job")
        assert pulse_enqueue("sql.ship", [2], idempotency_key="'k'") > first

    @pytest.mark.parametrize("key", ["idempotency", "unique"])
    def test_a_call_waits_for_a_rival_with_its_key_and_is_enqueued_if_that_rolls_back(
        self, rival: Rival, key: str
    ) -> None:
        declared_as(Unique() if key == "unique" else None)
        options = {} if key == "unique" else {"idempotency_key": "'k'"}
        with transaction.atomic():
            theirs = pulse_enqueue("sql.once", [1], **options)
            mine = rival.start(pulse_enqueue, "sql.once", [1], **options)
            rival.wait_until_blocked(backend_pid())
            transaction.set_rollback(True)
        assert mine.result(20) > theirs
        assert Job.objects.count() == 1

    @each_of(
        *combined(
            [
                Unique(by="order"),
                Unique(by="order", until="start"),
                Unique(by="order", on_conflict="follow"),
                Unique(by="order", on_conflict="replace"),
                Unique(by="order", on_conflict="debounce"),
                Unique(by="order", on_conflict="debounce", max_delay=60),
            ],
            (False, True),
        )
    )
    def test_a_call_does_what_python_does_about_a_job_that_holds_the_key(self, *, rule: Any, is_claimed: Any) -> None:
        declared_as(rule)
        assert met_by(by_sql, is_claimed=is_claimed) == met_by(by_python, is_claimed=is_claimed)

    def test_raise_says_which_job_has_the_key(self) -> None:
        one = declared_as(Unique(on_conflict="raise"))
        first = pulse_enqueue("sql.once", [7])
        with pytest.raises(AlreadyEnqueued):
            one.enqueue(7)
        with pytest.raises(IntegrityError, match=f"sql.once: job {first} has its unique key"):
            pulse_enqueue("sql.once", [7])

    def test_a_job_that_has_expired_and_still_has_the_key_is_named(self) -> None:
        declared_as(Unique())
        first = pulse_enqueue("sql.once", [7])
        sql("UPDATE pulse_django_job SET expires_at = statement_timestamp() WHERE id = %s", first)
        with pytest.raises(IntegrityError, match=f"job {first} has its unique key and has expired"):
            pulse_enqueue("sql.once", [7])
        Job.objects.expire()
        assert pulse_enqueue("sql.once", [7]) > first

    def test_a_job_that_started_under_another_rule_lets_go_of_its_key(self) -> None:
        declared_as(Unique())
        first = pulse_enqueue("sql.once", [7])
        Job.objects.claim_these(Identity("w"), [first])
        assert pulse_enqueue("sql.once", [7]) == first
        declared_as(Unique(on_conflict="follow"))
        assert pulse_enqueue("sql.once", [7]) > first


def declared_as(rule: Unique | None):  # type: ignore[no-untyped-def]
    registry._tasks.pop("sql.once", None)
    one = task(name="sql.once", unique=rule)(sync)
    declare()
    return one


def by_python(note: str) -> int:
    one: Any = registry.get("sql.once")
    return int(one.using(run_after=datetime.now(UTC) + HOUR).enqueue(7, note).id)


def by_sql(note: str) -> int:
    return pulse_enqueue("sql.once", [7, note], run_after="clock_timestamp() + interval '1 hour'")


def met_by(call: Callable[[str], int], *, is_claimed: bool) -> object:
    """Return whether a second call gets the job of the first, and the jobs that there are then."""
    clear()
    first = call("a")
    if is_claimed:
        Job.objects.claim_these(Identity("w"), [first])
    is_same = call("b") == first
    minutes = "round(extract(epoch FROM next_run_at - created_at) / 60)"
    return is_same, sql(f"SELECT args::text, status, attempts, {minutes} FROM pulse_django_job ORDER BY id")


class TestNotify:
    def heard(self, **options: str) -> list[str]:
        with psycopg.connect(database_url(), autocommit=True) as session:
            session.execute(f"LISTEN {CHANNEL}")
            pulse_enqueue("sql.ship", [7], **options)
            return [one.payload for one in session.notifies(timeout=0.2 if not options else 5, stop_after=1)]

    def test_two_workers_of_the_queue_are_woken_if_it_is_asked_for_and_nobody_else(self) -> None:
        assert self.heard() == []
        [payload] = self.heard(notify="true", queue="'mail'")
        woken = WakeUp.read(payload)
        assert (woken.queue, woken.first) == ("mail", 0)
        assert woken.number is not None


class TestRights:
    @pytest.fixture
    def session(self) -> Iterator[psycopg.Connection]:
        sql("CREATE ROLE pulse_sql NOLOGIN")
        with psycopg.connect(database_url(), autocommit=True) as session:
            yield session
        sql("DROP OWNED BY pulse_sql")
        sql("DROP ROLE pulse_sql")

    def test_a_role_may_call_it_if_it_is_granted_and_can_do_nothing_else(self, session: psycopg.Connection) -> None:
        session.execute("SET ROLE pulse_sql")
        call = "SELECT pulse_enqueue('sql.ship', '[7]')"
        with pytest.raises(InsufficientPrivilege):
            session.execute(call)
        sql(f"GRANT EXECUTE ON FUNCTION {function.NAME} TO pulse_sql")
        assert session.execute(call).fetchone() == (Job.objects.get().pk,)
        tables = [
            name
            for (name,) in sql(
                "SELECT oid::regclass::text FROM pg_class WHERE relname LIKE 'pulse%%' AND relkind IN ('r', 'p')"
            )
        ]
        with all_faults() as about:
            for table in tables:
                for statement in ("SELECT FROM {}", "DELETE FROM {}", "INSERT INTO {} DEFAULT VALUES"):
                    with about((statement, table)), pytest.raises(InsufficientPrivilege):
                        session.execute(SQL(statement.format(table)))  # type: ignore[arg-type]

    def test_what_the_caller_has_on_its_search_path_is_not_called(self, session: psycopg.Connection) -> None:
        session.execute("CREATE SCHEMA planted")
        try:
            shadow = "planted.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
            session.execute(f"CREATE FUNCTION {shadow} AS 'SELECT NULL::timestamptz'".encode())
            session.execute("CREATE TABLE planted.pulse_django_declared_task (name text, options jsonb)")
            session.execute("SET search_path = planted, pg_catalog, public")
            session.execute("SELECT public.pulse_enqueue('sql.ship', '[7]')")
        finally:
            session.execute("DROP SCHEMA planted CASCADE")
        assert Job.objects.get().args == [7]


def test_the_trigger_of_the_page_enqueues_a_job_for_each_new_row() -> None:
    page = (ROOT / "docs/how-to/sql.md").read_text()
    trigger = page.partition("```sql\nCREATE FUNCTION")[2].partition("```")[0]
    registry._tasks.pop("shop.tasks.ship", None)
    task(name="shop.tasks.ship")(sync)
    declare()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, note text)")
        cursor.execute(f"CREATE FUNCTION{trigger}")
        cursor.execute("INSERT INTO orders (note) SELECT 'x' FROM generate_series(1, 3)")
        assert sorted(Job.objects.values_list("task", "queue", "args")) == [
            ("shop.tasks.ship", "mail", [n]) for n in (1, 2, 3)
        ]
        transaction.set_rollback(True)
    registry._tasks.pop("shop.tasks.ship")
