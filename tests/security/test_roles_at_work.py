"""What people do under each role, by pages and by commands: it is done, or refused with a sentence."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any
from unittest import mock

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command, get_commands
from django.test import Client

from pulse_django import conf
from pulse_django.console.mass import page as mass_page
from pulse_django.console.mass.criteria import Criteria
from pulse_django.console.mass.operation import KIND, start_operation
from pulse_django.models import Job, Limiter, Pause, Schedule, StoredBatch
from pulse_django.operations.acts import ACTS
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.own_tasks import ACT
from pulse_django.queue.words.states import Status
from pulse_django.run.job_progress import progress_token
from pulse_django.schedules.imports import SOURCES, Found
from pulse_django.schedules.timings import Every
from pulse_django.testing import drain
from pulse_django.workflows.batches import Batch, event_link
from tests.console import test_every_page as pages
from tests.database import empty_tables, on_empty_tables
from tests.factories import make_job, now
from tests.faults import all_faults, each_of
from tests.queue.steps import sql

from .roles import OPERATOR, PRODUCER, ROLES, WATCHDOG, WORKER, acting_as, bullet_with, statements_in

pytestmark = [pytest.mark.usefixtures("pulse_db", "roles")]

REFUSED = "permission denied"


@pytest.fixture
def of_django(root: Client) -> Iterator[Client]:
    """Give each role the rights on Django's own tables that any admin needs."""
    others = sql(
        "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables"
        " WHERE schemaname = current_schema() AND tablename NOT LIKE 'pulse%%'"
    )
    for role in ROLES:
        sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {others[0][0]} TO {role}")
    root.raise_request_exception = False
    yield root
    for role in ROLES:
        sql(f"REVOKE SELECT, INSERT, UPDATE, DELETE ON {others[0][0]} FROM {role}")


def test_an_operator_opens_every_page_and_does_what_it_offers(
    of_django: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mass_page, "AT_ONCE", -1)
    with all_faults() as about:
        empty_tables()
        for address in pages.with_rows():
            with about(address.url), acting_as(OPERATOR):
                for response in (of_django.get(address.url), of_django.post(address.url, address.data, follow=True)):
                    assert response.status_code < 500
                    assert REFUSED not in text_of(response)
    started = {batch.context["act"] for batch in StoredBatch.objects.filter(kind=KIND)}
    assert started == {act.name for act in pages.OF_MANY}
    assert Job.objects.filter(task="shop.echo").exists(), "a schedule was run by hand"


GIVEN: list[tuple[str, dict[str, Any]]] = [
    ("retry", {"runs": 1, "per_minute": None}),
    ("retry", {"first": 1, "patience": 30, "per_minute": 60, "runs": 1}),
    ("cancel", {"reason": "x"}),
    ("move", {"queue": "elsewhere", "priority": None}),
    ("run-now", {}),
    ("delete", {"reason": "x"}),
]


def test_an_operation_works_in_its_workers_and_is_cancelled_with_a_sentence_in_others(root: Client) -> None:
    create, *grants = statements_in(bullet_with("[Operations on all that match](../how-to/admin.md#all-that-match)"))
    console = create.split()[2]
    sql(create)
    try:
        for grant in grants:
            sql(grant)
        with all_faults() as about:
            for (verb, given), role in product(GIVEN, (console, WORKER)):
                with about((verb, role)):
                    batch = operation(verb, given)
                    with acting_as(role):
                        drain(queues=[conf.current().admin_queue], failures="keep")
                    row = batch.row
                    if role == console:
                        assert row.cancelled_at is None
                        done = batch.jobs.get(task=ACT)
                        assert done.result[ACTS[verb].changes[0]] == 1, (done.status, done.last_error)
                    else:
                        assert "permission denied for table auth_user" in row.cancel_reason
                        assert not batch.jobs.exclude(status=Status.CANCELLED).exists()
    finally:
        sql(f"DROP OWNED BY {console}")
        sql(f"DROP ROLE {console}")


def operation(verb: str, given: dict[str, Any]) -> Batch:
    empty_tables()
    make_job(Status.DEAD_LETTERED, queue="mail", finished_at=now(-timedelta(hours=1)))
    make_job(queue="mail", next_run_at=now(timedelta(hours=1)))
    query = "status__exact=PENDING" if verb in ("cancel", "move", "run-now") else "status__exact=DEAD_LETTERED"
    boss = get_user_model().objects.get(is_superuser=True)
    return start_operation("default", ACTS[verb], Criteria.read(f"{query}&queue=mail"), given, boss)


def text_of(response: Any) -> str:
    return (b"".join(response) if response.streaming else response.content).decode()


def test_others_are_refused_a_page_with_a_sentence(of_django: Client) -> None:
    refused = 0
    with all_faults() as about:
        empty_tables()
        addresses = pages.with_rows()
        for address, role in product(addresses, (PRODUCER, WORKER)):
            for ask in (of_django.get, of_django.post):
                with about((ask.__name__, address.url, role)), acting_as(role):
                    response = ask(address.url, address.data if ask is of_django.post else {})
                    assert response.status_code < 500
                    if REFUSED in text_of(response):
                        refused += 1
                        assert response.status_code == 403
    assert refused > 100


@each_of(*ROLES, around=on_empty_tables)
def test_who_is_no_staff_sees_progress_and_sends_events_under_every_role(of_django: Client, *, role: Any) -> None:
    job = make_job(Status.RUNNING, progress={"done": 1, "total": 2})
    link = event_link("approved:1", title="Ship it?", by="ada")
    for url in (f"/pulse/progress/{progress_token(job)}/", link):
        with acting_as(role):
            assert Client().get(url).status_code == 200, url
    with acting_as(role):
        assert Client().post(link).status_code == 200
    assert sql("SELECT name FROM pulse_django_event") == [("approved:1",)]


# By command: what it is called with, and who may. The others are refused, also where it only looks.
LOOKS, DOES = {WORKER, WATCHDOG, OPERATOR}, {OPERATOR}
COMMANDS: list[tuple[list[str], set[str]]] = [
    (["pulse_status"], {WATCHDOG, OPERATOR}),
    (["pulse_status", "--all", "--json"], {WATCHDOG, OPERATOR}),
    (["pulse_status", "--queue=mail"], LOOKS),
    (["pulse_check", "--advice"], {WATCHDOG, OPERATOR}),
    (["pulse_check"], {WATCHDOG, OPERATOR}),
    (["pulse_explain", "{waits}"], LOOKS),
    (["pulse_pause", "--queue=mail"], {WATCHDOG, OPERATOR}),  # it looks for the name in what ran lately
    (["pulse_pause", "--task=shop.echo"], {WATCHDOG, OPERATOR}),
    (["pulse_pause", "--task=shop.echo", "--queue=mail"], {WATCHDOG, OPERATOR}),
    (["pulse_resume", "--queue=mail"], LOOKS),
    (["pulse_resume", "--task=shop.echo"], LOOKS),
    (["pulse_retry", "{dead}", "--yes"], LOOKS),
    (["pulse_cancel", "{waits}", "--yes"], LOOKS),
    (["pulse_cancel", "{waits}"], LOOKS),
    (["pulse_prune", "--all", "--yes"], {WATCHDOG, OPERATOR}),
    (["pulse_schedules"], LOOKS),
    (["pulse_schedules", "next", "nightly"], LOOKS),
    (["pulse_schedules", "run", "nightly"], {WORKER, WATCHDOG, OPERATOR}),
    (["pulse_schedules", "pause", "nightly"], {WORKER, OPERATOR}),
    (["pulse_schedules", "resume", "paused"], {WORKER, OPERATOR}),
    (["pulse_limits"], LOOKS),
    (["pulse_limits", "show", "stripe"], LOOKS),
    (["pulse_limits", "set", "stripe", "--max-running=2"], {WORKER, OPERATOR}),
    (["pulse_limits", "reset", "stripe"], {WORKER, OPERATOR}),
    (["pulse_pause", "--limit=stripe", "--for=1m"], {WORKER, OPERATOR}),
    (["pulse_resume", "--limit=closed"], {WORKER, OPERATOR}),
    (["pulse_pause", "--limit=stripe", "--key=k"], LOOKS),
    (["pulse_resume", "--limit=stripe", "--key=paused"], LOOKS),
    (["pulse_workflows"], LOOKS),
    (["pulse_workflows", "show", "{batch}"], LOOKS),
    (["pulse_workflows", "pause", "{batch}"], LOOKS),
    (["pulse_workflows", "resume", "{paused}"], LOOKS),
    (["pulse_workflows", "cancel", "{batch}"], LOOKS),
    (["pulse_workflows", "retry", "{batch}"], LOOKS),
    (["pulse_import_schedules", "django-q2", "--yes"], {WORKER, OPERATOR}),
    (["pulse_check", "--all"], {WATCHDOG, OPERATOR}),
    (["pulse_watchdog", "--once"], {WATCHDOG}),
    (["pulse_check", "--repair", "lease-too-long", "--yes"], set()),
    (["pulse_shards"], set(ROLES)),
    (["pulse_postgres", "status"], set(ROLES)),  # it connects to another server
]
# A process of its own: tests/security/test_grants.py starts it.
NOT_HERE = {"pulse_worker", "pulse_dev"}  # the second runs the first


def test_every_command_is_there() -> None:
    ours = {name for name, app in get_commands().items() if app == "pulse_django"}
    assert {command for (command, *_), _ in COMMANDS} | NOT_HERE == ours


def test_a_command_does_it_for_who_may_and_refuses_the_others_with_a_sentence() -> None:
    with all_faults() as about:
        for given, granted_to in COMMANDS:
            rows: dict[str, int] = {}
            for role in sorted(ROLES, key=lambda role: role in granted_to):  # who is refused changes nothing
                if not rows or role in granted_to:
                    empty_tables()
                    rows = rows_for_commands()
                with about((" ".join(given), role)), acting_as(role):
                    said = said_by([one.format(**rows) for one in given])
                    assert any(text in said for text in (REFUSED, "lacks the right")) is (role not in granted_to), said


def rows_for_commands() -> dict[str, int]:
    Schedule.objects.create(name="nightly", task="shop.echo", args=[1], every=timedelta(hours=1))
    Schedule.objects.pause(
        Schedule.objects.create(name="paused", task="shop.echo", args=[1], every=timedelta(hours=1)).pk
    )
    Limiter.objects.declare_new("project", {"stripe": {"max_running": 1}, "closed": {"max_running": 1}})
    Limiter.objects.pause("closed", duration=timedelta(hours=1))
    Pause.objects.pause(lane_key=lane_key("stripe", "paused"))
    Pause.objects.pause("shop.echo")
    Pause.objects.pause(queue="mail")
    batch, paused = StoredBatch.objects.create(name="a"), StoredBatch.objects.create(name="b", paused_at=now())
    dead = make_job(Status.DEAD_LETTERED, attempts=0, batch=batch)
    make_job(Status.RUNNING, lease_until=now(timedelta(days=3)))
    make_job(Status.COMPLETED, finished_at=now(-timedelta(days=90)))
    return {"waits": make_job(queue="mail").pk, "dead": dead.pk, "batch": batch.pk, "paused": paused.pk}


def said_by(command: list[str]) -> str:
    """Return all that a command says. Only a CommandError and an exit are expected of it."""
    out, found = io.StringIO(), Found(name="theirs", task="shop.echo", args=[1], timing=Every(timedelta(hours=1)))
    try:
        with mock.patch.dict(SOURCES, {"django-q2": lambda _: [found]}):
            call_command(*command, stdout=out, stderr=out)
    except SystemExit:
        pass
    except CommandError as error:
        out.write(str(error))
    return out.getvalue()
