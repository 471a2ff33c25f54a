"""What one handler leaves on its connections is never seen by the next, and the connection is the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from psycopg import IsolationLevel
from psycopg.rows import dict_row

from pulse_django.worker.executors import connection_cleanup
from pulse_django.worker.executors.connection_cleanup import (
    close_connections,
    has_connections,
    ready_connections,
    tidy_connections,
)
from pulse_django.worker.executors.event_loop import OrmThreads, ThreadOfRun
from tests.crash.workers import wait_until
from tests.faults import each_of
from tests.proxy import LateProxy

pytestmark = pytest.mark.django_db(transaction=True)


class HandlerThread:
    """A thread that calls handlers as an executor's does."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1)

    def call(self, handler: Callable[[], Any]) -> Any:
        return self._pool.submit(self._call, handler).result(20)

    def _call(self, handler: Callable[[], Any]) -> Any:
        ready_connections()
        try:
            return handler()
        finally:
            tidy_connections()

    def end(self) -> None:
        self._pool.submit(close_connections).result(20)
        self._pool.shutdown()


@contextmanager
def handler_thread() -> Iterator[HandlerThread]:
    thread = HandlerThread()
    try:
        yield thread
    finally:
        thread.end()


@pytest.fixture
def thread() -> Iterator[HandlerThread]:
    with handler_thread() as thread:
        yield thread


def ask(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0] if cursor.description else None


def session() -> int:
    return int(ask("SELECT pg_backend_pid()"))


def run(*statements: str) -> Callable[[], int]:
    """Make a handler that runs these, and returns its session."""

    def handler() -> int:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        return session()

    return handler


@contextmanager
def max_age(seconds: int | None) -> Iterator[None]:
    settings = connection.settings_dict
    before, settings["CONN_MAX_AGE"] = settings["CONN_MAX_AGE"], seconds
    try:
        yield
    finally:
        settings["CONN_MAX_AGE"] = before


@each_of(0, None, 60)
def test_a_connection_is_kept(*, seconds: Any) -> None:
    with handler_thread() as thread, max_age(seconds):
        assert len({thread.call(session) for _ in range(5)}) == 1


def test_a_connection_that_is_too_old_is_closed(thread: HandlerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    first = thread.call(session)
    monkeypatch.setattr(connection_cleanup, "MAX_AGE", -1.0)
    assert thread.call(session) == first
    assert thread.call(session) != first


STATEMENTS = {  # what a handler does, and what the next one asks
    "settings": (["SET statement_timeout = 12345"], "SHOW statement_timeout"),
    "search path": (["SET search_path = pg_catalog"], "SHOW search_path"),
    "settings of the project": (["SET shop.tenant = 'a'"], "SELECT NULLIF(current_setting('shop.tenant', true), '')"),
    "time zone": (["SET TimeZone = 'Asia/Tokyo'"], "SHOW TimeZone"),
    "role": (["SET ROLE pg_read_all_data"], "SELECT current_user"),
    "session user": (["SET SESSION AUTHORIZATION pg_read_all_data"], "SELECT session_user"),
    "listens": (["LISTEN shop"], "SELECT count(*) FROM pg_listening_channels()"),
    "advisory locks": (
        ["SELECT pg_advisory_lock(1848)"],
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    ),
    "temporary tables": (["CREATE TEMP TABLE left_behind ()"], "SELECT to_regclass('left_behind')"),
    "cursors": (["DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1"], "SELECT count(*) FROM pg_cursors"),
    "values of sequences": (
        ["CREATE TEMP SEQUENCE counted", "SELECT nextval('counted')"],
        "SELECT to_regclass('counted')",
    ),
    "read only": (["SET default_transaction_read_only = on"], "SHOW transaction_read_only"),
    "a short timeout": (["SET statement_timeout = 250"], "SHOW statement_timeout"),  # 1 would end the next question
}


def set_and_ask(thread: HandlerThread, left: str) -> None:
    statements, question = STATEMENTS[left]
    before, first = thread.call(lambda: ask(question)), thread.call(session)
    changed = thread.call(lambda: [run(*statements)(), ask(question)][1])
    assert changed != before
    assert thread.call(lambda: ask(question)) == before
    assert thread.call(session) == first


@each_of(*STATEMENTS)
def test_what_a_handler_sets_is_reset_and_its_connection_kept(*, left: Any) -> None:
    with handler_thread() as thread:
        set_and_ask(thread, left)


def enter_atomic() -> None:
    transaction.atomic().__enter__()
    run("CREATE TEMP TABLE left_behind ()")()


def fail_in_transaction() -> None:
    with pytest.raises(Exception, match="division by zero"):
        run("BEGIN", "SELECT 1 / 0")()


def lose_session() -> None:
    with pytest.raises(Exception, match=r"terminat|closed"):
        run("SELECT pg_terminate_backend(pg_backend_pid())")()


def change(how: Callable[[Any], object]) -> Callable[[], object]:
    """Make a handler that changes its connection, or psycopg's."""
    return lambda: (session(), how(connection))


UNTIDY: dict[str, Callable[[], object]] = {
    "prepare": run("PREPARE left_behind AS SELECT 1"),
    "deallocate": run("DEALLOCATE ALL"),
    "begin": run("BEGIN", "CREATE TEMP TABLE left_behind ()"),
    "enter atomic": enter_atomic,
    "autocommit": change(lambda connection: connection.set_autocommit(False)),
    "isolation": change(lambda mine: setattr(mine.connection, "isolation_level", IsolationLevel.SERIALIZABLE)),
    "rows": change(lambda mine: setattr(mine.connection, "row_factory", dict_row)),
    "wrapper": change(lambda mine: mine.execute_wrappers.append(lambda execute, *rest: execute(*rest))),
    "notices": change(lambda mine: mine.connection.add_notice_handler(lambda _: None)),
    "failed transaction": fail_in_transaction,
    "lost session": lose_session,
}


@each_of(*UNTIDY.items())
def test_a_connection_that_cannot_be_reset_is_closed(*, left: Any, handler: Any) -> None:
    with handler_thread() as thread:
        first = thread.call(session)
        thread.call(handler)
        assert thread.call(session) != first
        assert thread.call(
            lambda: (
                connection.get_autocommit(),
                connection.in_atomic_block,
                connection.execute_wrappers,
                connection.connection.isolation_level,
            )
        ) == (True, False, [], None)
        wait_until_gone(first)


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: not ask(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"))


@pytest.mark.parametrize("with_the_answer", [True, False])
def test_a_session_is_over_as_soon_as_its_server_says_so(
    thread: HandlerThread, proxy: LateProxy, with_the_answer: bool
) -> None:
    """The message that a session ends arrives some time before the end of the connection."""

    def handler() -> int:
        pid = session()
        if with_the_answer:
            proxy.hold()
        return pid

    first = thread.call(handler)
    ask(f"SELECT pg_terminate_backend({first})")
    wait_until(lambda: b"FATAL" in proxy.heard)
    wait_until_gone(first)
    proxy.pass_on()
    assert thread.call(session) != first


@pytest.fixture
def proxy(thread: HandlerThread) -> Iterator[LateProxy]:
    """Stand between the thread's connections and the server."""
    with TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:
        proxy = LateProxy(Path(folder), connection.settings_dict)
        settings = {**connection.settings_dict, "HOST": proxy.host, "PORT": str(proxy.port)}

        def connect_by_proxy() -> None:
            connections["default"].settings_dict = settings

        thread._pool.submit(connect_by_proxy).result(20)
        yield proxy
        proxy.close()


def test_a_notification_for_one_handler_is_not_heard_by_the_next(thread: HandlerThread) -> None:
    thread.call(run("LISTEN shop", "NOTIFY shop"))
    thread.call(run("LISTEN shop"))
    assert thread.call(lambda: [session(), list(connection.connection.notifies(timeout=0.05))][1]) == []


def test_a_reset_without_an_answer_is_not_waited_for(thread: HandlerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_cleanup, "PATIENCE_WITH_RESET", 0.05)
    first = thread.call(session)
    here = thread._pool.submit(lambda: connection_cleanup._here.opened["default"]).result()
    here.reset = b"SELECT pg_sleep(60), 0"
    thread.call(session)
    assert thread.call(session) != first
    ask(f"SELECT pg_terminate_backend({first})")  # its snapshot would hold up VACUUM and new indexes


def test_an_error_of_a_statement_keeps_the_connection(thread: HandlerThread) -> None:
    first = thread.call(session)

    def fail() -> None:
        with pytest.raises(Exception, match="division by zero"):
            ask("SELECT 1 / 0")

    thread.call(fail)
    assert thread.call(session) == first


def test_locks_are_released_though_no_handler_follows(thread: HandlerThread) -> None:
    thread.call(run("SELECT pg_advisory_lock(1849)"))
    wait_until(lambda: not ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1849"))


class TestReceiversOfNewConnections:
    """A project may set something on each connection as it is opened."""

    @pytest.fixture
    def receive(self) -> Iterator[Callable[[Callable[..., None]], None]]:
        added: list[Callable[..., None]] = []

        def add(receiver: Callable[..., None]) -> None:
            connection_created.connect(receiver)
            added.append(receiver)

        yield add
        for receiver in added:
            connection_created.disconnect(receiver)

    def test_what_they_set_is_set_again(self, thread: HandlerThread, receive: Any) -> None:
        def limit(connection: Any, **_: Any) -> None:
            connection.cursor().execute("SET statement_timeout = '17s'; SET ROLE pg_read_all_data")

        receive(limit)
        thread.call(session)  # the first is opened while ours is not the last receiver
        thread.call(run("SET statement_timeout = 0", "RESET ROLE"))
        first = thread.call(run("SET statement_timeout = 0", "RESET ROLE"))
        asked = thread.call(lambda: (ask("SHOW statement_timeout"), ask("SELECT current_user"), session()))
        assert asked == ("17s", "pg_read_all_data", first)

    def test_a_session_of_another_user_is_not_kept(self, thread: HandlerThread, receive: Any) -> None:
        def change_user(connection: Any, **_: Any) -> None:
            connection.cursor().execute("SET SESSION AUTHORIZATION pg_read_all_data")

        receive(change_user)
        thread.call(session)
        first = thread.call(session)
        assert thread.call(lambda: (ask("SELECT session_user"), session() != first)) == ("pg_read_all_data", True)

    def test_one_that_comes_last_is_noticed(self, thread: HandlerThread, receive: Any) -> None:
        thread.call(session)
        thread.end()
        other = HandlerThread()

        def limit(connection: Any, **_: Any) -> None:
            connection.cursor().execute("SET statement_timeout = '17s'")

        receive(limit)
        assert [other.call(lambda: ask("SHOW statement_timeout")) for _ in range(4)] == ["17s"] * 4
        other.end()
        thread._pool = ThreadPoolExecutor(max_workers=1)


@contextmanager
def _tenant() -> Iterator[None]:
    """Add a database to the settings, as projects do that have one for each tenant."""
    connections.settings["tenant"] = dict(connections.settings["default"])
    try:
        yield
    finally:
        connections.settings.pop("tenant", None)


def _cursor_of_tenant() -> Any:
    if connections["tenant"].connection is None:
        connections["tenant"].connect()  # Django's tests let no other method connect
    return connections["tenant"].cursor()


def test_a_connection_that_a_receiver_has_hidden_is_closed(thread: HandlerThread) -> None:
    """Django keeps it, and no receiver after the one that raised is told."""

    def refuse(connection: Any, **_: Any) -> None:
        if connection.alias == "tenant":
            raise RuntimeError("mine")

    def use() -> None:
        run("SELECT 1")()
        with pytest.raises(RuntimeError):
            _cursor_of_tenant()
        with _cursor_of_tenant() as cursor:
            cursor.execute("SET work_mem = '77MB'")

    def look() -> Any:
        with _cursor_of_tenant() as cursor:
            cursor.execute("SHOW work_mem")
            return cursor.fetchone()[0]

    with _tenant():
        connection_created.connect(refuse)
        connection_created.receivers.insert(0, connection_created.receivers.pop())
        try:
            thread.call(use)
        finally:
            connection_created.disconnect(refuse)
        assert thread.call(look) != "77MB"


def test_a_connection_of_a_database_that_is_gone_keeps_no_other_from_its_reset(thread: HandlerThread) -> None:
    def use() -> None:
        with _tenant():
            _cursor_of_tenant().close()
            connections["tenant"].close()
            del connections["tenant"]
        run("SET work_mem = '77MB'")()

    thread.call(use)
    assert thread.call(lambda: ask("SHOW work_mem")) != "77MB"


class TestThreadsOfAsyncHandlers:
    def test_a_thread_and_its_connection_are_lent_to_the_next_run(self) -> None:
        threads = OrmThreads()
        sessions = []
        for _ in range(3):
            mine = ThreadOfRun(threads)
            sessions.append(mine.submit(run("SET search_path = pg_catalog")).result(20))
            mine.give_back().result(20)  # type: ignore[union-attr]
        mine = ThreadOfRun(threads)
        assert mine.submit(lambda: ask("SHOW search_path")).result(20) != "pg_catalog"
        mine.give_back().result(20)  # type: ignore[union-attr]
        assert len(set(sessions)) == 1
        threads.end_idle(0)
        wait_until_gone(sessions[0])

    def test_what_a_run_left_behind_ends_before_its_thread_is_lent_again(self) -> None:
        threads, go_on = OrmThreads(), threading.Event()
        mine = ThreadOfRun(threads)
        left = mine.submit(go_on.wait, 20)
        given_back = mine.give_back()
        assert given_back is not None
        other = ThreadOfRun(threads)
        other.submit(session).result(20)  # in another thread: the first is not free
        go_on.set()
        given_back.result(20)
        assert left.result()
        other.give_back().result(20)  # type: ignore[union-attr]
        threads.end_idle(0)

    def test_a_run_that_is_over_gets_none(self) -> None:
        mine = ThreadOfRun(OrmThreads())
        assert mine.give_back() is None
        with pytest.raises(RuntimeError, match="over"):
            mine.submit(session)


def test_an_idle_thread_closes_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    from pulse_django.worker.executors import threads as module

    monkeypatch.setattr(module, "KEPT_IDLE", 0.05)
    seen: list[int] = []
    monkeypatch.setattr(module, "perform", lambda run: seen.append(session()) or SimplePerformed())
    executor = module.Threads(1, lambda run: True, lambda run, performed: None)
    executor.submit([SimpleNamespace(begun_at=0.0)])  # type: ignore[list-item]
    wait_until(lambda: len(seen) == 1)
    wait_until_gone(seen[0])
    executor.submit([SimpleNamespace(begun_at=0.0)])  # type: ignore[list-item]
    wait_until(lambda: len(seen) == 2)
    wait_until_gone(seen[1])


class SimplePerformed:
    ended_at: float | None = None


def test_a_thread_that_never_asked_has_none() -> None:
    with ThreadPoolExecutor(max_workers=1) as pool:
        assert pool.submit(has_connections).result() is False
        pool.submit(tidy_connections).result()
        pool.submit(connections.close_all).result()
