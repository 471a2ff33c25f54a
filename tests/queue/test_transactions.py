"""What must hold for our statements holds whatever the project, the role or the last user of the session set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from datetime import timedelta
from functools import partial
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext, override_settings

from pulse_django.models import Job
from pulse_django.queue.database.read_only import briefly, read_only
from pulse_django.queue.database.transactions import joined, run_alone
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status
from tests.citus import is_on_citus
from tests.factories import lease_of, make_job
from tests.queue.steps import claim_one, sql, success
from tests.rival import Rival

SHOW = (
    "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit'),"
    " pg_current_xact_id_if_assigned()"
)


# Behind a transaction pooler these settings would stay, for any test, with a session of the server.
careless = pytest.mark.session("what it sets stays with the pooler's session")


@pytest.fixture
def careless_session(pulse_db: None) -> Iterator[None]:
    """A session as a careless role, project or neighbour behind a pooler leaves it."""
    sql("SET default_transaction_isolation = 'serializable'")
    sql("SET synchronous_commit = off")
    yield
    connection.close()


@pytest.fixture
def server_side_binding(pulse_db: None) -> Iterator[None]:
    connection.close()
    options = connection.settings_dict["OPTIONS"]
    options["server_side_binding"] = True
    yield
    connection.close()
    del options["server_side_binding"]


@careless
@pytest.mark.usefixtures("careless_session")
def test_our_statements_run_read_committed_and_durably_whatever_the_session_says() -> None:
    assert run_alone("default", SHOW, [])[0][:2] == ("read committed", "on")
    with joined("default"):
        assert sql(SHOW)[0][:2] == ("read committed", "on")
    assert sql("SHOW synchronous_commit") == [("off",)]  # and the session is as it was


@careless
@pytest.mark.usefixtures("careless_session")
def test_a_verb_that_waited_behind_a_rival_does_not_fail_to_serialise(rival: Rival) -> None:
    job = make_job(Status.RUNNING)
    rival.begin()
    rival.run(sql, "UPDATE pulse_django_job SET lease_until = statement_timestamp() WHERE id = %s", job.pk)
    # Under SERIALIZABLE both would fail with 40001 once the rival commits.
    with closing(Rival()) as waiter:
        waiter.run(sql, "SET default_transaction_isolation = 'serializable'")
        waiting = waiter.start(Job.objects.release, [lease_of(job)])
        waiter.wait_until_blocked(by=rival.pid)
        rival.commit()
        assert waiting.result(20).accepted


@pytest.mark.usefixtures("server_side_binding")
def test_everything_works_with_server_side_binding() -> None:
    job = Job.objects.enqueue(NewJob(task="tests.add", args=[1]))
    assert len(Job.objects.enqueue_many([NewJob(task="tests.add")] * 3)) == 3
    me = Identity("me")
    claims = Job.objects.claim(me, limit=10)
    assert len(claims) == 4
    leases = [claim.lease for claim in claims]
    assert Job.objects.heartbeat(leases, {leases[0]: "{}"}).alive == set(leases)
    assert Job.objects.settle([success(claims[0])]).accepted
    assert Job.objects.settle([success(claims[0])]).repeated
    assert Job.objects.release(leases[1:2]).accepted
    assert Job.objects.request_cancel([leases[2].job_id]).asked
    assert Job.objects.reap() == []
    assert Job.objects.retry([job.pk]).moved_on
    assert Job.objects.prune(Status.COMPLETED, older_than=timedelta()) == 1


@pytest.mark.usefixtures("server_side_binding")
def test_a_watchdog_that_looked_before_it_began_does_not_bind_on_the_server() -> None:
    job = make_job(Status.RUNNING, expired=True)
    short = {"LEASE_TTL": 4, "HEARTBEAT_INTERVAL": 0.3, "WATCHDOG_INTERVAL": 0.3}
    with override_settings(PULSE=short):  # a server that was only just started is given a lease's time
        call_command("pulse_watchdog", "--once", stdout=StringIO())
    job.refresh_from_db()
    assert job.status == Status.RETRYING


@pytest.mark.usefixtures("pulse_db")
class TestAfterAnError:
    def test_the_connection_is_as_good_as_before(self) -> None:
        make_job()
        with pytest.raises(DatabaseError, match="division by zero"):
            run_alone("default", "SELECT 1 / 0", [])
        assert claim_one(Identity("me"))
        assert sql("SELECT pg_current_xact_id_if_assigned()") == [(None,)]  # no transaction was left open

    @pytest.mark.session("it has its own session killed by its number")
    def test_a_connection_that_died_is_closed_so_that_the_next_verb_opens_another(self, rival: Rival) -> None:
        make_job()
        [(pid,)] = sql("SELECT pg_backend_pid()")
        rival.run(sql, "SELECT pg_terminate_backend(%s)", pid)
        with pytest.raises(OperationalError):
            claim_one(Identity("me"))
        assert claim_one(Identity("me"))

    def test_an_error_in_the_callers_transaction_stays_the_callers(self) -> None:
        with pytest.raises(DatabaseError), transaction.atomic():
            sql("SELECT 1 / 0")
        with transaction.atomic():
            Job.objects.enqueue(NewJob(task="tests.add"))
        assert Job.objects.count() == 1


@pytest.mark.usefixtures("pulse_db")
def test_each_verb_is_one_round_trip() -> None:
    make_job()
    me = Identity("me")
    lanes = Job.objects.lanes()
    Job.objects.claim(me, limit=1, lanes=[Lane("nowhere", 0)])  # the picks are compiled once
    Job.objects.reap()
    Job.objects.prune(Status.COMPLETED, older_than=timedelta())

    def statements(act: Any) -> int:
        with CaptureQueriesContext(connection) as captured:
            act()
        return len(captured)

    ending = 2 if is_on_citus() else 1  # docs/adr/0086
    claims: list[Any] = []
    assert statements(lambda: claims.extend(Job.objects.claim(me, limit=1, lanes=lanes))) == 1
    [claim] = claims
    assert statements(lambda: Job.objects.heartbeat([claim.lease])) == 1
    assert statements(lambda: Job.objects.request_cancel([claim.job_id])) == ending
    assert statements(lambda: Job.objects.settle([success(claim)])) == ending
    assert statements(lambda: Job.objects.reap()) == ending
    assert statements(lambda: Job.objects.retry([claim.job_id])) == 1
    assert statements(lambda: Job.objects.prune(Status.COMPLETED, older_than=timedelta())) == 1


class InsideATestCase(TestCase):
    """Django wraps these in a transaction; the verbs know it from a caller's."""

    def test_a_job_can_be_run_from_enqueue_to_completion(self) -> None:
        Job.objects.enqueue(NewJob(task="tests.add"))
        claim = claim_one(Identity("me"))
        assert Job.objects.heartbeat([claim.lease]).alive
        assert Job.objects.settle([success(claim)]).accepted
        assert Job.objects.reap() == []

    def test_a_callers_transaction_is_refused_here_too(self) -> None:
        with transaction.atomic(), pytest.raises(RuntimeError, match=r"outside atomic\(\)"):
            Job.objects.claim(Identity("me"))


@pytest.mark.one_server("Citus is sent again what its node said")
@pytest.mark.usefixtures("pulse_db")
def test_no_instant_of_pythons_clock_reaches_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    import datetime as datetimes
    import re
    import time

    from django.utils import timezone

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600)  # this host's clock is an hour slow
    monkeypatch.setattr(timezone, "now", lambda: datetimes.datetime(1999, 1, 1, tzinfo=datetimes.UTC))
    with CaptureQueriesContext(connection) as captured:
        Job.objects.enqueue(NewJob(task="tests.add", run_after=timedelta()))
        claim = claim_one(Identity("me"))
        Job.objects.heartbeat([claim.lease])
        Job.objects.reap()
        Job.objects.release([claim.lease])
        claim = claim_one(Identity("me"))
        Job.objects.settle([success(claim)])
        Job.objects.prune(Status.COMPLETED, older_than=timedelta(days=1))
    assert len(captured) >= 8
    for query in captured.captured_queries:
        assert not re.search(r"\d{4}-\d{2}-\d{2}", query["sql"]), query["sql"]
    job = Job.objects.get()
    assert job.finished_at
    assert job.finished_at.year > 2000


def setting(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        return str(cursor.fetchone()[0])


@pytest.mark.parametrize("reading", [read_only, partial(briefly, timeout="5s")], ids=["read_only", "briefly"])
def test_a_read_is_bounded_and_not_compiled(
    pulse_db: None, reading: Callable[[str], AbstractContextManager[None]]
) -> None:
    """The server's compiler takes seconds for long statements, which run in milliseconds."""
    names = ("transaction_read_only", "jit", "lock_timeout")
    before = [setting(name) for name in names]
    with reading("default"):
        assert [setting(name) for name in names] == ["on", "off", "1s"]
        assert setting("statement_timeout") in ("5s", "15s")
    assert [setting(name) for name in names] == before


def test_a_callers_transaction_gets_its_settings_back(pulse_db: None) -> None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL jit = on")
        with briefly("default", "5s"):
            assert setting("jit") == "off"
        assert (setting("jit"), setting("transaction_read_only")) == ("on", "off")
