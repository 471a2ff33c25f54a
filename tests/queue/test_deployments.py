"""Nothing of a worker acts on a database that belongs to another deployment, until this one adopts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from pulse_django.conf import parse
from pulse_django.metrics.minute_recorder import MinuteRecorder
from pulse_django.models import Declaration, Job, Schedule
from pulse_django.queue.capability import LoopFacts, installed
from pulse_django.queue.database.database_errors import DatabaseFault, fault_of
from pulse_django.queue.database.deployments import WrongDeployment, adopt, owner_of, require_deployment
from pulse_django.queue.words.states import Status
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.heartbeat import Heartbeat
from pulse_django.worker.recovery import Recovery
from pulse_django.worker.watchdog import Watchdog
from tests.factories import WorkerFactory, make_job, now
from tests.faults import all_faults, each_of
from tests.queue.steps import sql
from tests.worker.steps import claimer_for

pytestmark = pytest.mark.usefixtures("pulse_db")

ACT = ("schedules", "declared tasks")  # in their first step
STAGING = override_settings(PULSE={"DEPLOYMENT": "staging"})
SENTENCE = (
    "Database 'default' belongs to deployment 'production', not to 'staging' (PULSE['DEPLOYMENT']). "
    "If it is a copy, let this deployment adopt it: python manage.py pulse_check --adopt"
)


def of_production() -> None:
    """Let the database be one that was copied from production."""
    with override_settings(PULSE={"DEPLOYMENT": "production"}):
        adopt("default")


def test_without_a_name_nothing_is_asked_and_nothing_is_written() -> None:
    of_production()
    database = GuardedConnection("default", "x")
    with CaptureQueriesContext(connection) as sent:
        require_deployment("default", is_worker=True)
        database.call(database.jobs.server_clock)
    assert "declaration" not in str(sent.captured_queries)


@STAGING
def test_the_first_worker_writes_the_name_and_others_read_it() -> None:
    require_deployment("default")
    assert owner_of("default") is None
    for _ in range(2):
        require_deployment("default", is_worker=True)
        assert owner_of("default") == "staging"
    assert Declaration.objects.count() == 1


@STAGING
def test_a_worker_that_only_loads_writes_no_name() -> None:
    call_command("pulse_worker", "--only-load")
    assert owner_of("default") is None


@STAGING
def test_commands_that_would_act_do_not_start() -> None:
    of_production()
    for command in (["pulse_worker"], ["pulse_worker", "--burst"], ["pulse_watchdog"], ["pulse_watchdog", "--once"]):
        with pytest.raises(CommandError) as refused:
            call_command(*command)
        assert str(refused.value) == SENTENCE
    assert owner_of("default") == "production"


@STAGING
def test_no_loop_of_a_worker_acts() -> None:
    of_production()
    make_job()
    make_job(Status.RUNNING, expired=True)
    Schedule.objects.create(name="nightly", task="shop.echo", args=[1], every=timedelta(hours=1))
    sql("UPDATE pulse_django_schedule SET next_at = statement_timestamp()")
    before = [sql(f"SELECT * FROM {table}") for table in ("pulse_django_job", "pulse_django_schedule")]

    def line() -> GuardedConnection:
        return GuardedConnection("default", "x")

    facts = LoopFacts(declarer="w:1", with_work=lambda: frozenset({"schedules"}))
    loops = [loop for one in installed() for loop in one.loops]
    steps: dict[str, Callable[[], Any]] = {
        "claims": claimer_for().run_once,
        "watchdog": Watchdog(line()).take_turn,
        "sweep": Watchdog(line()).sweep,
        "recovery": lambda: Recovery(line(), lambda: None).database.call(Job.objects.reap),
        "heartbeat": lambda: Heartbeat(line(), list).database.call(Job.objects.heartbeat, []),
        "minutes": lambda: MinuteRecorder(line()).write(),
        **{loop.purpose: loop(line(), facts).run_once for loop in loops if loop.purpose in ACT},
    }
    with all_faults() as about:
        for name, step in steps.items():
            with about(name), pytest.raises(WrongDeployment, match="belongs to deployment 'production'"):
                step()
    assert [sql(f"SELECT * FROM {table}") for table in ("pulse_django_job", "pulse_django_schedule")] == before


@STAGING
def test_a_connection_looks_when_it_is_opened_and_with_each_heartbeat() -> None:
    database, done = GuardedConnection("default", "x"), list[str]()

    def act() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        done.append("acted")

    database.call(act)
    of_production()
    database.call(act)  # it has just looked
    database.hang_up()
    for _ in range(2):  # the second look is not left out because there is a connection now
        with pytest.raises(WrongDeployment):
            database.call(act)
    adopt("default")
    database.call(act)
    of_production()
    database._looked_at -= 10
    with pytest.raises(WrongDeployment):
        database.call(act)
    assert done == ["acted"] * 3


def test_for_a_loop_it_is_a_database_that_cannot_be_reached() -> None:
    """It says so once, waits, and does not trust the leases that ran out meanwhile."""
    assert fault_of(WrongDeployment("x")) is DatabaseFault.CUT_OFF


def said_by(*arguments: str) -> str:
    out = StringIO()
    call_command("pulse_check", "--adopt", *arguments, stdout=out)
    return out.getvalue().strip()


class TestAdopt:
    @STAGING
    def test_it_says_whose_database_it_is_and_changes_nothing(self) -> None:
        assert "belongs to no deployment, and this is 'staging'" in said_by()
        of_production()
        said = said_by()
        assert "Database 'default' belongs to deployment 'production', and this is 'staging'." in said
        assert said.endswith("Nothing was changed. Add --yes to adopt it.")
        assert owner_of("default") == "production"

    @STAGING
    def test_with_yes_the_database_belongs_to_this_deployment(self) -> None:
        of_production()
        assert said_by("--yes").endswith("It belongs to 'staging' now.")
        require_deployment("default", is_worker=True)
        answer = {"database": "default", "owner": "staging", "deployment": "staging", "adopted": True}
        assert json.loads(said_by("--yes", "--json")) == answer

    @STAGING
    def test_a_database_in_which_workers_of_another_deployment_are_heard_is_refused(self) -> None:
        of_production()
        lives = WorkerFactory()
        with pytest.raises(CommandError, match=r"1 workers of 'production' were heard .* within .* wait \d+ s if"):
            said_by("--yes")
        assert owner_of("default") == "production"
        type(lives).objects.update(last_beat_at=now(-timedelta(hours=1)))
        said_by("--yes")
        assert owner_of("default") == "staging"

    def test_without_a_name_there_is_nothing_to_adopt(self) -> None:
        with pytest.raises(CommandError, match="is not set: there is nothing to adopt"):
            said_by("--yes")
        with pytest.raises(CommandError, match="--yes requires --repair or --adopt"):
            call_command("pulse_check", "--yes")


@each_of(*((7, "E003"), ("x" * 65, "E004"), ("a\nb", "E004"), ("", None), ("production", None)))
def test_a_name_that_cannot_be_kept_is_a_problem_of_the_setting(*, name: Any, problem: Any) -> None:
    found = [one.id.rpartition(".")[2] for one in parse({"DEPLOYMENT": name})[1]]
    assert found == ([problem] if problem else [])
