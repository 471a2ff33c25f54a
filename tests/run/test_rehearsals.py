"""``assert_idempotent``: what counts, and on which databases."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test import TestCase, override_settings

from pulse_django import Context, task
from pulse_django.models import Job
from pulse_django.testing import assert_idempotent
from testproject.shop.models import Invoice
from tests.queue.steps import sql

SECOND = "second"


@task
def after_the_commit(*effects: str) -> None:
    """Do what is said by name, as a callback of a transaction."""
    with transaction.atomic():
        for effect in effects:
            transaction.on_commit(EFFECTS[effect])


@task(atomic=True)
def after_its_completion(*effects: str) -> None:
    for effect in effects:
        transaction.on_commit(EFFECTS[effect])


@task
def rolls_back(*effects: str) -> None:
    try:
        with transaction.atomic():
            for effect in effects:
                transaction.on_commit(EFFECTS[effect])
            raise ValueError("not this time")
    except ValueError:
        pass


@task(takes_context=True)
def elsewhere(context: Context, how: str) -> None:
    """Write to another database than that of the jobs."""
    rows = Invoice.objects.using(SECOND)
    with transaction.atomic(using=SECOND, durable=True):
        if how == "carefully":
            rows.get_or_create(order_number=7)
        elif how == "carelessly":
            rows.create(order_number=7)
        elif how == "carelessly after its commit":
            transaction.on_commit(lambda: rows.create(order_number=7) and None, using=SECOND)


@task
def where_the_router_says() -> None:
    Invoice.objects.create(order_number=7)


def bill() -> None:
    Invoice.objects.create(order_number=7)


def bill_once() -> None:
    Invoice.objects.get_or_create(order_number=7)


def fail() -> None:
    raise RuntimeError("the mail server is away")


EFFECTS: dict[str, Callable[[], Any]] = {
    "bill": bill,
    "bill once": bill_once,
    "bill in its turn": lambda: transaction.on_commit(bill),
    "enqueue": lambda: after_the_commit.enqueue(),
    "enqueue once": lambda: after_the_commit.using(idempotency_key="k").enqueue(),
    "fail": fail,
}


class Stories:
    """What a handler leaves for after its commit."""

    @pytest.mark.parametrize(
        ("effect", "row"), [("bill", "shop.Invoice"), ("bill in its turn", "shop.Invoice"), ("enqueue", "a job")]
    )
    def test_an_effect_after_the_commit_that_is_had_twice_is_seen(self, effect: str, row: str) -> None:
        with pytest.raises(AssertionError, match=rf"(?s)after_the_commit is not idempotent.*\+ 1 x {row}"):
            assert_idempotent(after_the_commit, effect)

    def test_effects_that_are_had_once_or_were_rolled_back_are_fine(self) -> None:
        for effect in ("bill once", "enqueue once"):
            assert_idempotent(after_the_commit, effect)
        assert_idempotent(after_its_completion, "bill", "enqueue")
        assert_idempotent(rolls_back, "bill", "fail")

    def test_what_a_callback_raises_is_told(self) -> None:
        with pytest.raises(RuntimeError, match="the mail server is away"):
            assert_idempotent(after_the_commit, "fail")

    def test_nothing_is_left_behind(self) -> None:
        with pytest.raises(AssertionError):
            assert_idempotent(after_the_commit, "bill", "enqueue")
        assert_idempotent(after_the_commit, "bill once", "enqueue once")
        assert not Invoice.objects.exists()
        assert not Job.objects.exists()


@pytest.mark.django_db
class TestInATestCase(Stories):
    def test_callbacks_of_the_test_itself_are_left_alone(self, django_capture_on_commit_callbacks: Any) -> None:
        called: list[str] = []
        with django_capture_on_commit_callbacks(execute=True):
            transaction.on_commit(partial(called.append, "the test's"))
            assert_idempotent(after_the_commit, "bill once")
            assert called == []
        assert called == ["the test's"]
        assert not Invoice.objects.exists()


@pytest.mark.usefixtures("pulse_db")
class TestWhereTransactionsCommit(Stories):
    pass


@pytest.mark.django_db
def test_a_robust_callback_that_raises_is_logged_as_by_django(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.MonkeyPatch.context() as patch:
        patch.setitem(EFFECTS, "register", lambda: transaction.on_commit(fail, robust=True))
        assert_idempotent(after_the_commit, "register", "bill once")
    assert "the mail server is away" in caplog.text


# ----------------------------------------------------------------------------------------------------- other databases


@pytest.fixture
def second(pulse_db: None) -> Iterator[str]:
    """Another alias: the same server and database, where tables are looked for in a schema of their own."""
    sql(f"DROP SCHEMA IF EXISTS {SECOND} CASCADE")
    sql(f"CREATE SCHEMA {SECOND}")
    sql(f"CREATE TABLE {SECOND}.shop_invoice (LIKE public.shop_invoice INCLUDING ALL)")
    settings = connection.settings_dict
    options = {**settings["OPTIONS"], "options": f"-c lock_timeout=25s -c search_path={SECOND}"}
    connections.databases[SECOND] = {**settings, "OPTIONS": options}
    yield SECOND
    connections[SECOND].close()
    del connections[SECOND]
    del connections.databases[SECOND]
    sql(f"DROP SCHEMA {SECOND} CASCADE")


own_session = pytest.mark.session("its second database is a search_path of the session")
one_server = pytest.mark.one_server("its second database is a schema that is not distributed")


@own_session
@one_server
@pytest.mark.usefixtures("second")
class TestAnotherDatabase:
    def test_what_is_written_there_is_rolled_back(self) -> None:
        assert_idempotent(elsewhere, "carefully")
        assert not Invoice.objects.using(SECOND).exists()
        assert not Invoice.objects.exists()

    @pytest.mark.parametrize("how", ["carelessly", "carelessly after its commit"])
    def test_what_is_written_there_counts(self, how: str) -> None:
        with pytest.raises(AssertionError, match=r"\+ 1 x shop.Invoice in database 'second'"):
            assert_idempotent(elsewhere, how)
        assert not Invoice.objects.using(SECOND).exists()

    def test_so_does_what_a_router_sends_there(self) -> None:
        class Router:
            def db_for_write(self, model: Any, **hints: Any) -> str | None:
                return SECOND if model is Invoice else None

            db_for_read = db_for_write

        with override_settings(DATABASE_ROUTERS=[Router()]):
            with pytest.raises(AssertionError, match=r"\+ 1 x shop.Invoice \{"):
                assert_idempotent(where_the_router_says)
            assert not Invoice.objects.exists()


@own_session
@one_server
def test_no_connection_is_left_open_that_was_not(second: str) -> None:
    assert_idempotent(elsewhere, "carefully")
    assert connections[second].connection is None
    connections[second].ensure_connection()
    assert_idempotent(elsewhere, "carefully")
    assert connections[second].connection is not None


@own_session
@one_server
def test_a_database_that_the_test_may_not_use_is_left_alone(second: str) -> None:
    """Django forbids a test what its ``databases`` does not name."""

    class OnlyTheDefault(TestCase):
        def runTest(self) -> None:  # noqa: N802 - what unittest calls
            assert_idempotent(after_the_commit, "bill once")

    outcome = OnlyTheDefault("runTest").run()
    assert outcome is not None
    assert outcome.wasSuccessful(), [text for _, text in (*outcome.errors, *outcome.failures)]


def test_a_database_that_is_away_is_left_alone(pulse_db: None) -> None:
    connections.databases["away"] = {**connection.settings_dict, "HOST": "127.0.0.1", "PORT": "1"}
    try:
        assert_idempotent(after_the_commit, "bill once")
    finally:
        del connections["away"]
        del connections.databases["away"]
