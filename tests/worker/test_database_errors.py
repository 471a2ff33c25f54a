"""What each database error means, raised by the real server; and no loop of the runtime's ends for any of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection, connections
from django.db.utils import Error

from pulse_django.managers import JobManager
from pulse_django.models import Job
from pulse_django.queue import reap
from pulse_django.queue.database.database_errors import DatabaseFault, Patience, fault_of, sqlstate_of
from pulse_django.queue.database.transactions import renew_deadline, run_joined
from pulse_django.queue.statements import in_halves
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status
from pulse_django.run.execute import perform
from pulse_django.signals import job_reaped
from pulse_django.worker.guarded_connection import GuardedConnection, keep_calling
from pulse_django.worker.heartbeat import Heartbeat
from pulse_django.worker.in_flight import InFlight
from pulse_django.worker.shared_leases import SharedLeases
from pulse_django.worker.watchdog import Watchdog
from tests.crash.workers import wait_until
from tests.database import empty_tables
from tests.factories import make_job
from tests.faults import all_faults, each_of
from tests.queue.steps import sql
from tests.worker.steps import claimer_for, reporter_for

pytestmark = pytest.mark.usefixtures("pulse_db")

STATES = {
    "08006": DatabaseFault.CUT_OFF,  # connection_failure
    "08P01": DatabaseFault.CUT_OFF,  # protocol_violation
    "57P01": DatabaseFault.CUT_OFF,  # admin_shutdown
    "57P02": DatabaseFault.CUT_OFF,  # crash_shutdown
    "57P03": DatabaseFault.CUT_OFF,  # cannot_connect_now
    "57P05": DatabaseFault.CUT_OFF,  # idle_session_timeout
    "25006": DatabaseFault.CUT_OFF,  # read_only_sql_transaction
    "25P03": DatabaseFault.CUT_OFF,  # idle_in_transaction_session_timeout
    "28P01": DatabaseFault.CUT_OFF,  # invalid_password
    "3D000": DatabaseFault.CUT_OFF,  # invalid_catalog_name
    "XX000": DatabaseFault.CUT_OFF,  # internal_error
    "40001": DatabaseFault.BUSY,  # serialization_failure
    "40P01": DatabaseFault.BUSY,  # deadlock_detected
    "55P03": DatabaseFault.BUSY,  # lock_not_available
    "57014": DatabaseFault.BUSY,  # query_canceled
    "53100": DatabaseFault.FULL,  # disk_full
    "53200": DatabaseFault.FULL,  # out_of_memory
    "53300": DatabaseFault.FULL,  # too_many_connections
    "54000": DatabaseFault.FULL,  # program_limit_exceeded
    "58030": DatabaseFault.FULL,  # io_error
    "42P01": DatabaseFault.CHANGING,  # undefined_table
    "42703": DatabaseFault.CHANGING,  # undefined_column
    "42501": DatabaseFault.CHANGING,  # insufficient_privilege
    "0A000": DatabaseFault.CHANGING,  # cached plan must not change result type
    "26000": DatabaseFault.CUT_OFF,  # invalid_sql_statement_name
    "42P05": DatabaseFault.CUT_OFF,  # duplicate_prepared_statement
    "23514": DatabaseFault.MISTAKE,  # check_violation
    "22P02": DatabaseFault.MISTAKE,  # invalid_text_representation
    "42601": DatabaseFault.MISTAKE,  # syntax_error
}


def raise_state(state: str) -> None:
    """Let the server raise it."""
    sql(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = 'as a test wanted'; END $$")


@each_of(*STATES.items())
def test_every_sqlstate_has_a_meaning(*, state: Any, fault: Any) -> None:
    with pytest.raises(DatabaseError) as raised:
        raise_state(state)
    assert sqlstate_of(raised.value) == state
    assert fault_of(raised.value) is fault


@each_of(
    ("BEGIN READ ONLY; DELETE FROM pulse_django_job", DatabaseFault.CUT_OFF),
    ("SET statement_timeout = 20; SELECT pg_sleep(5)", DatabaseFault.BUSY),
    ("SELECT pg_terminate_backend(pg_backend_pid())", DatabaseFault.CUT_OFF),
    ("SELECT 1 FROM no_such_table", DatabaseFault.CHANGING),
    ("SELECT no_such_column FROM pulse_django_job", DatabaseFault.CHANGING),
    ("SELECT 1 / 0", DatabaseFault.MISTAKE),
)
def test_real_trouble_is_recognised(*, statement: Any, fault: Any) -> None:
    try:
        with pytest.raises(Error) as raised:
            sql(statement)
        assert fault_of(raised.value) is fault
    finally:
        connection.close()


def test_a_server_that_is_not_there_and_a_connection_that_was_cut_are_cut_off() -> None:
    with pytest.raises(psycopg.OperationalError) as refused:
        psycopg.connect("host=/nonexistent connect_timeout=2")
    assert fault_of(OperationalError("x")) is DatabaseFault.CUT_OFF
    assert fault_of(refused.value) is DatabaseFault.CUT_OFF, "what psycopg raises itself, as the listener meets it"
    assert fault_of(ValueError("x")) is DatabaseFault.MISTAKE


def test_patience_grows_and_has_an_end_and_is_not_in_step() -> None:
    for fault in DatabaseFault:
        patience = Patience()
        pauses = [patience.pause(fault) for _ in range(40)]
        assert pauses[0] <= 1.0
        assert max(pauses) <= 10.0
        assert max(pauses[:2]) < max(pauses[10:]), "it waits longer from failure to failure"
        assert len(set(pauses[20:])) > 5
        assert patience.succeeded()
        assert not patience.succeeded()
    cut_off = Patience()
    assert max(cut_off.pause(DatabaseFault.CUT_OFF) for _ in range(100)) <= 2.0, (
        "work resumes soon after the server is back"
    )


def test_a_missing_right_is_told_once_while_other_statements_succeed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    may = False

    def verb() -> None:
        if not may:
            raise_state("42501")

    database, pauses = GuardedConnection("default", "claims"), []
    for _ in range(6):
        database.call(lambda: sql("SELECT 1"))
        with pytest.raises(DatabaseError) as raised:
            database.call(verb)
        pauses.append(database.failed(raised.value))
    assert caplog.text.count("as a test wanted") == 1, caplog.text
    assert "responding again" not in caplog.text
    assert "as a test wanted" in database.refused
    assert pauses[-1] > 4 * pauses[0]
    may = True
    database.call(verb)
    assert caplog.text.count("responding again") == 1
    assert (database.refused, database.patience.failures) == ("", 0)
    database.hang_up()


def fail_with(database: GuardedConnection, state: str, verb: Callable[[str], None] = raise_state) -> DatabaseError:
    with pytest.raises(DatabaseError) as raised:
        database.call(verb, state)
    return raised.value


def test_a_failure_that_a_caller_swallows_hides_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    database = GuardedConnection("default", "schedules")
    for outages in (1, 2):
        fail_with(database, "42601")
        database.call(lambda: sql("SELECT 1"))
        database.failed(fail_with(database, "57P01", lambda state: raise_state(state)))
        database.call(lambda: sql("SELECT 1"))
        assert caplog.text.count("as a test wanted") == outages
        assert caplog.text.count("responding again") == outages
    database.hang_up()


def test_a_right_is_missing_until_the_verb_that_lacked_it_succeeds() -> None:
    def look(state: str) -> None:
        if state:
            raise_state(state)

    database = GuardedConnection("default", "schedules")
    database.failed(fail_with(database, "42501", look))
    database.failed(fail_with(database, "42P01"))  # another verb, which goes on failing
    database.call(lambda: sql("SELECT 1"))
    assert "as a test wanted" in database.refused
    database.call(look, "")
    assert database.refused == ""
    database.hang_up()


Start = Callable[[GuardedConnection, Callable[[], object]], threading.Thread]


@contextmanager
def loops() -> Iterator[Start]:
    """Give a function that calls a step in a thread until the case is over."""
    over, threads = threading.Event(), []

    def start(database: GuardedConnection, step: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=keep_calling, args=(database, over, step))
        threads.append(thread)
        thread.start()
        return thread

    try:
        yield start
    finally:
        over.set()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()


Case = Callable[[Start], None]


def fail_first(verb: str, kinds: Sequence[str], case: Case) -> None:
    """Let the first call of a verb raise a real error of the server's, one kind after the other."""
    original = getattr(JobManager, verb)
    with all_faults() as about:
        for state in kinds:
            calls: list[str] = []

            def flaky(self: Any, *args: Any, state: str = state, calls: list[str] = calls, **kwargs: Any) -> Any:
                calls.append(verb)
                if len(calls) == 1:
                    raise_state(state)
                return original(self, *args, **kwargs)

            with about(state), pytest.MonkeyPatch.context() as patch, loops() as start:
                patch.setattr(JobManager, verb, flaky)
                empty_tables()
                case(start)
                assert len(calls) >= 2


# One of each kind; that all of a kind are treated alike is what the table above says.
KINDS = ["57P01", "25006", "XX000", "40001", "40P01", "55P03", "57014", "53100", "53300", "42P01", "23514"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = "pulse_django.queue.database.database_errors._PAUSES"
    monkeypatch.setattr(pauses, dict.fromkeys(DatabaseFault, (0.01, 0.02)))


@pytest.mark.usefixtures("impatient")
def test_the_claims_go_on() -> None:
    def case(start: Start) -> None:
        job, database, identity = make_job(), GuardedConnection("default", "claims"), Identity("me")
        claimed: list[Any] = []

        def step() -> float:
            claimed.extend(database.call(database.jobs.claim, identity))
            return 0.01

        thread = start(database, step)
        wait_until(lambda: bool(claimed))
        assert thread.is_alive()
        assert [claim.job_id for claim in claimed] == [job.pk]

    fail_first("claim", KINDS, case)


@pytest.mark.usefixtures("impatient")
def test_the_reports_go_on() -> None:
    def case(start: Start) -> None:
        make_job(task="testproject.shop.tasks.add", args=[1, 2])
        in_flight = InFlight(SharedLeases("me:boot:"), "default", 1)
        [run] = in_flight.take(Job.objects.claim(Identity("me", "boot")), 1e9)
        in_flight.begin(run)
        performed = perform(run)
        in_flight.ended(run)
        reporter = reporter_for(in_flight)
        reporter.report(performed)
        start(reporter.database, reporter.run_once)
        wait_until(lambda: Job.objects.get().status == Status.COMPLETED)

    fail_first("settle", KINDS, case)


@pytest.mark.usefixtures("impatient")
def test_the_heartbeats_go_on(settings: Any) -> None:
    settings.PULSE = {"LEASE_TTL": 0.6, "HEARTBEAT_INTERVAL": 0.1, "WATCHDOG_INTERVAL": 0.3}

    def case(start: Start) -> None:
        make_job()
        shared_leases = SharedLeases("me:boot:")
        [claim] = Job.objects.claim(Identity("me", "boot"))
        entry = shared_leases.hold(claim, 0.6)
        beat = Heartbeat(GuardedConnection("default", "heartbeat"), lambda: [shared_leases])
        start(beat.database, beat.run_once)
        wait_until(lambda: entry.extended_at() > 0)

    fail_first("heartbeat", KINDS, case)


@pytest.mark.usefixtures("impatient")
def test_the_watchdog_goes_on(settings: Any) -> None:
    settings.PULSE = {"LEASE_TTL": 0.6, "HEARTBEAT_INTERVAL": 0.1, "WATCHDOG_INTERVAL": 0.05}

    def case(start: Start) -> None:
        make_job(Status.RUNNING, expired=True)
        dog = Watchdog(GuardedConnection("default", "watchdog"))
        start(dog.database, lambda: dog.pause_after(dog.sweep()))
        wait_until(lambda: Job.objects.get().status == Status.RETRYING)

    fail_first("reap", ["57P01", "40001", "53300", "23514"], case)


def test_statements_of_the_runtime_are_never_compiled() -> None:
    """By default PostgreSQL 15 compiles a statement whose estimate is high, and that takes longer than it may run."""
    database = GuardedConnection("default", "test")

    def ask() -> list[tuple[str]]:
        with connections[database.alias].cursor() as cursor:
            cursor.execute("SET jit = on")
        return run_joined(database.alias, "SELECT pg_catalog.current_setting('jit')", [])

    try:
        assert database.call(ask) == [("off",)]
    finally:
        database.hang_up()


def test_a_claim_that_was_never_sent_hands_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection could not be opened: what the claim before it was granted is running."""
    claimer = claimer_for()
    running = make_job()
    claimer.run_once()
    assert Job.objects.get(pk=running.pk).status == Status.RUNNING
    make_job()
    claimer.wake("default")
    cut_off = OperationalError("connection refused")
    cut_off.__cause__ = psycopg.OperationalError("connection refused")
    with monkeypatch.context() as patches:
        patches.setattr(claimer.database, "_prepared", mock.Mock(side_effect=cut_off))
        with pytest.raises(OperationalError):
            claimer.run_once()
    claimer.run_once()
    found = Job.objects.get(pk=running.pk)
    assert (found.status, found.refunds) == (Status.RUNNING, 0)


def test_a_verb_that_repeats_a_statement_has_time_for_it_again() -> None:
    """Otherwise the connection is closed before the halves of a statement that timed out are sent."""
    database = GuardedConnection("default", "reports")

    def verb() -> tuple[float, float]:
        before = database._until
        renew_deadline("default")
        return before, database._until

    before, after = database.call(verb)
    assert before < after
    database.hang_up()


def test_a_connection_whose_verb_sends_its_next_statement_is_not_closed() -> None:
    """The cancellation has ended the one that took too long."""
    database, (ours, theirs) = GuardedConnection("default", "reports"), socket.socketpair()

    def cancel(**_: object) -> None:
        renew_deadline("default")

    def verb() -> None:
        raw = SimpleNamespace(fileno=ours.fileno, closed=False, cancel_safe=cancel, cancel=cancel)
        database._cut(cast(Any, SimpleNamespace(connection=raw)), raw, database._calls)

    with ours, theirs:
        database.call(verb)
        ours.send(b"more")
    database.hang_up()


@contextmanager
def ending_in_vain(job_id: int) -> Iterator[None]:
    """Let each attempt to end this run time out."""
    refuse = "RAISE EXCEPTION USING ERRCODE = '57014'"
    sql(f"CREATE FUNCTION in_vain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {refuse}; END $$")
    sql(
        "CREATE TRIGGER in_vain BEFORE INSERT ON pulse_django_attempt "
        f"FOR EACH ROW WHEN (NEW.job_id = {job_id}) EXECUTE FUNCTION in_vain()"
    )
    try:
        yield
    finally:
        sql("DROP FUNCTION in_vain CASCADE")


def test_attempts_after_a_timeout_have_their_own_deadlines_and_are_short_until_all_others_were_sent() -> None:
    """While an attempt waits for the end of one run, it locks the rows of healthy ones."""
    database, sent = GuardedConnection("default", "reports", keeps_plans=True), list[tuple[int, str, int]]()

    def send(rows: Sequence[int], is_bare: bool) -> list[int]:
        ask = "SELECT pg_catalog.current_setting('statement_timeout')"
        [(timeout,)] = run_joined("default", ask, [], plan_once=True)
        sent.append((len(rows), timeout, database._calls))
        if 2 in rows and not is_bare:
            raise_state("57014")
        return list(rows)

    found = database.call(in_halves, "default", send, range(4))
    assert found == [0, 1, 3, 2]
    attempts = [(4, "8s"), (2, "1s"), (2, "1s"), (1, "1s"), (1, "1s"), (1, "8s"), (1, "8s"), (1, "8s")]
    assert [one[:2] for one in sent] == attempts
    assert len({calls for *_, calls in sent}) == len(sent)
    database.hang_up()


def test_each_statement_of_a_reap_after_a_timeout_has_its_own_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [make_job(Status.RUNNING, expired=True) for _ in range(4)]
    database, calls = GuardedConnection("default", "watchdog"), list[int]()

    def watch(name: str) -> None:
        original = getattr(reap, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            calls.append(database._calls)
            return original(*args, **kwargs)

        monkeypatch.setattr(reap, name, watched)

    watch("_reap")
    watch("touch_expired")
    with ending_in_vain(jobs[3].pk), pytest.raises(OperationalError):
        database.call(database.jobs.reap)
    assert len(calls) > 8
    assert len(set(calls)) == len(calls)
    database.hang_up()


def test_the_watchdog_announces_what_it_ended_before_an_error() -> None:
    jobs = [make_job(Status.RUNNING, expired=True) for _ in range(4)]
    announced: list[int] = []

    def receive(sender: object, reaped: Any, **_: object) -> None:
        announced.append(reaped.lease.job_id)

    dog = Watchdog(GuardedConnection("default", "watchdog"))
    job_reaped.connect(receive)
    try:
        with ending_in_vain(jobs[1].pk), pytest.raises(OperationalError):
            dog.sweep()
    finally:
        job_reaped.disconnect(receive)
        dog.database.hang_up()
    assert sorted(announced) == [jobs[0].pk, jobs[2].pk, jobs[3].pk]
