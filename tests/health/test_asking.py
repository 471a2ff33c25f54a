"""Ask and repair: conditions of other apps, the command line, and questions that go wrong."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from pulse_django.health.conditions import (
    Condition,
    Severity,
    Threshold,
    ask,
    ask_all,
    asking,
    catalogue,
    known,
    named,
    register,
)
from pulse_django.health.conditions.shared_queries import with_shared_queries
from pulse_django.models import Pause
from tests.factories import make_job, now
from tests.faults import all_faults, each_of
from tests.health.states import LONG_AGO, empty_and_vacuum
from tests.queue.steps import sql
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("vacuumed")


def condition(name: str, **others: Any) -> Condition:
    facts: dict[str, Any] = {
        "severity": Severity.RISK,
        "says": "No problems found.",
        "means": "It is not.",
        "to_do": "Act.",
    }
    return Condition(name=name, **facts | others)


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_known", dict(catalogue._known))


def check(*flags: str) -> tuple[str, str]:
    """Return what the command printed, and how it failed."""
    out, failed = StringIO(), ""
    try:
        call_command("pulse_check", *flags, stdout=out, no_color=True)
    except CommandError as error:
        failed = str(error)
    return out.getvalue(), failed


def backlog() -> None:
    make_job(next_run_at=now(LONG_AGO))


def pause() -> None:
    backlog()
    Pause.objects.pause(queue="default", reason="the bank is down")


def test_an_app_registers_its_own_and_it_is_asked_with_the_others() -> None:
    mine = register(condition("mine", sql="SELECT 7, 'seven' LIMIT %(limit)s"))
    assert register(mine) is mine, "as when its module is loaded twice"
    [finding] = [finding for finding in ask_all("default").findings if finding.condition is mine]
    assert finding.subjects == [(7, "seven")]
    assert known()[-1].severity == Severity.RISK, "what is worst comes first"


def test_what_cannot_be_a_condition_is_refused() -> None:
    limited = {"sql": "SELECT 1, '' LIMIT %(limit)s"}
    threshold = Threshold(default=1, unit="jobs")
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("paused-backlog", limited, "'paused-backlog' is already registered"),
        ("greedy", {"sql": "SELECT id, '' FROM pulse_django_job"}, "could return a whole table: add LIMIT"),
        ("odd", {}, "either sql or look"),
        ("odd", limited | {"look": lambda *_: ()}, "either sql or look"),
        *((name, limited, "is not a name for a condition") for name in ("", "two words", "a\nb", "Loud", "xxx_y")),
        ("overdue", limited | {"threshold": threshold}, "has a threshold, but is a parameter of Limits"),
    ]
    with all_faults() as about:
        for name, facts, message in cases:
            with about((name, message)), pytest.raises(ValueError, match=message):
                register(condition(name, **facts))


def test_a_question_that_goes_wrong_is_a_finding_and_the_others_are_asked(caplog: pytest.LogCaptureFixture) -> None:
    def fail(alias: str, limits: Any) -> Any:
        raise RuntimeError("a bug")

    register(condition("wrong", severity=Severity.BROKEN, sql="SELECT 1 / 0, '' LIMIT %(limit)s"))
    register(condition("buggy", look=fail))
    backlog()
    found = {finding.condition.name: finding.error for finding in ask_all("default").found}
    assert found == {"wrong": "division by zero", "buggy": "RuntimeError: a bug", "queue-without-worker": ""}
    assert "Checking condition buggy failed" in caplog.text
    out, failed = check("--all")
    assert "could not be checked: division by zero" in out
    assert "2 of" in failed


@pytest.mark.alters_statements
def test_a_question_cannot_write_and_is_cut_off_if_it_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    write = "WITH gone AS (DELETE FROM pulse_django_job RETURNING id) SELECT id, '' FROM gone LIMIT %(limit)s"
    make_job()
    assert "read-only transaction" in ask(register(condition("vandal", sql=write)), "default").error
    assert sql("SELECT count(*) FROM pulse_django_job") == [(1,)]
    monkeypatch.setattr("pulse_django.health.conditions.asking.STATEMENT_TIMEOUT", "50ms")
    slow = condition("slow", sql="SELECT 1, pg_sleep(20)::text LIMIT %(limit)s")
    assert "statement timeout" in ask(slow, "default").error


def test_no_more_than_a_screenful_is_shown() -> None:
    many = condition("many", sql="SELECT n, '' FROM generate_series(1, 100) AS n LIMIT %(limit)s")
    finding = ask(many, "default")
    assert (len(finding.subjects), finding.is_more) == (20, True)
    register(condition("long", sql="SELECT 1, repeat('x', 1000000) LIMIT %(limit)s"))
    assert len(ask_all("default").says) < 400


def test_check_exits_with_an_error_that_names_what_fails() -> None:
    out, failed = check("--all")
    assert failed == ""
    assert out.count("\n") == len(known())
    backlog()
    out, failed = check("--all")
    assert "FAIL queue-without-worker (stuck)" in out
    assert "More: the page “Jobs wait in PENDING” of the documentation" in out
    assert failed.startswith("1 of")
    assert failed.endswith("queue-without-worker.")


def test_a_risk_is_a_warning_and_no_error() -> None:
    pause()
    out, failed = check("--all")
    assert failed == ""
    assert "WARN paused-backlog (risk)" in out
    assert "(the bank is down)" in out
    assert "Repair: pulse_check --repair paused-backlog" in out
    out, failed = check("--all", "--json")
    said = json.loads(out)
    assert (failed, said["is_well"]) == ("", True)
    [found] = [one for one in said["conditions"] if not one["is_clear"]]
    assert (found["name"], found["severity"], found["repair"]) == ("paused-backlog", "risk", "Resume the queue.")
    assert found["subjects"][0]["key"] == "default"
    sql("DELETE FROM pulse_django_pause")
    out, failed = check("--all", "--json")
    assert failed
    assert json.loads(out)["is_well"] is False


def test_what_rows_say_cannot_forge_a_line() -> None:
    register(condition("hostile", sql="SELECT 1, E'evil\\x1b[2J\\nok   everything is fine' LIMIT %(limit)s"))
    out, _ = check("--all")
    assert "\x1b" not in out
    assert "\nok   everything is fine" not in out


def test_a_repair_is_rehearsed_first() -> None:
    pause()
    out, failed = check("--repair", "paused-backlog")
    assert failed == ""
    assert "default: paused for" in out
    assert "Nothing was changed. Add --yes to apply it." in out
    assert Pause.objects.exists()
    out, failed = check("--repair", "paused-backlog", "--yes")
    assert failed == ""
    assert "1 repaired; it is clear now" in out
    assert not Pause.objects.exists()
    assert "nothing to repair" in check("--repair", "paused-backlog")[0]


def test_a_repair_speaks_json() -> None:
    pause()
    assert json.loads(check("--repair", "paused-backlog", "--json")[0])["subjects"][0]["key"] == "default"
    done = json.loads(check("--repair", "paused-backlog", "--json", "--yes")[0])
    assert done == {"name": "paused-backlog", "steps": 1, "repaired": 1, "is_clear": True}


@each_of(
    (["--repair", "nonsense"], "Unknown condition 'nonsense'"),
    (["--repair", "attempt-missing"], "attempt-missing has no repair"),
    (["--all", "--yes"], "--yes requires --repair"),
)
def test_a_mistake_is_told(*, flags: Any, said: Any) -> None:
    empty_and_vacuum()
    assert said in check(*flags)[1]


def test_a_repair_that_does_not_help_fails() -> None:
    pause()
    stubborn = named("paused-backlog")
    assert stubborn.repair is not None
    useless = replace(stubborn.repair, act=lambda alias, keys: 0)
    still_paused = "SELECT queue, 'is paused' FROM pulse_django_pause LIMIT %(limit)s"
    register(replace(stubborn, name="stubborn", sql=still_paused, repair=useless))
    out, failed = check("--repair", "stubborn", "--yes")
    assert "still applies" in out
    assert failed == "stubborn still applies."


def test_a_lost_connection_is_raised_and_no_answer() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    connection.connection.pgconn.finish()
    with pytest.raises(DatabaseError):
        ask_all("default")
    connection.close()


def test_questions_that_come_too_late_are_left_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_django.health.conditions.asking.BUDGET", 0.0)
    assert [finding.condition.name for finding in ask_all("default").found] == ["schema-incomplete"], "not in SQL"
    register(condition("of-an-app", sql="SELECT 1, '' LIMIT %(limit)s"))
    assert [finding.condition.name for finding in ask_all("default").found] == ["schema-incomplete", "of-an-app"]


def test_all_are_asked_in_one_statement() -> None:
    with CaptureQueriesContext(connection) as queries:
        ask_all("default")
    asked = [one["sql"] for one in queries if "dead letters" in one["sql"]]
    assert len(asked) == 1
    assert all(f"'{word}" in asked[0] for word in ("queue ", "latest minute", "worker "))


def test_the_worst_comes_first_in_one_line() -> None:
    for name in ("b", "a", "c"):
        register(condition(name, sql="SELECT n, 'x' FROM generate_series(1, 5) AS n LIMIT %(limit)s"))
    register(condition("z", severity=Severity.BROKEN, sql="SELECT 1, 'y' LIMIT %(limit)s"))
    verdict = ask_all("default")
    assert [finding.condition.name for finding in verdict.found] == ["z", "a", "b", "c"]
    assert verdict.says.startswith("z: 1: y; a: 1: x; 2: x; 3: x; and 2 more; b: ")
    assert not verdict.is_well


def test_sql_of_an_app_needs_to_work_alone_only() -> None:
    statements = {
        "SELECT 1, 'x' LIMIT %(limit)s;": "",
        "SELECT 1, 'x' LIMIT %(limit)s -- all": "",
        "SELECT 1, NULL LIMIT %(limit)s": "",
        "SELECT '{}'::jsonb, 5 LIMIT %(limit)s": "",
        "SELECT gen_random_uuid(), 'x' LIMIT %(limit)s": "",
        "SELECT 1 LIMIT %(limit)s": "must return rows of (key, words)",
        "SELECT 1, 'x', 'y' LIMIT %(limit)s": "must return rows of (key, words)",
    }
    with all_faults() as about:
        for awkward, error in statements.items():
            with about(awkward), pytest.MonkeyPatch.context() as patch:
                patch.setattr(catalogue, "_known", dict(catalogue._known))
                empty_and_vacuum()
                register(condition("awkward", sql=awkward))
                with CaptureQueriesContext(connection) as queries:
                    [finding] = ask_all("default").found
                assert finding.condition.name == "awkward"
                assert error in finding.error
                if error:
                    continue
                assert (len(finding.subjects), finding.error) == (1, "")
                assert len(queries) < 25
                assert "awkward" in check("--all", "--json")[0]
                assert "WARN awkward" in check("--all")[0]


@each_of(
    *{
        "SELECT 1": "has 1 columns available",
        "SELECT 1, '%%(gone)s', 2 AS here": "KeyError: 'gone'",
        "SELECT 1, '%%(form)s', 2 AS form": "",
    }.items(),
)
def test_a_row_of_a_capability_that_gives_no_sentence_hides_no_other_condition(*, statement: Any, said: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "_known", {**catalogue._known, "odd": condition("odd", sql=statement)})
        patch.setattr(catalogue, "OURS", {*catalogue.OURS, "odd"})
        empty_and_vacuum()
        pause()
        found = {finding.condition.name: finding for finding in ask_all("default").found}
        assert set(found) == {"odd", "paused-backlog"}
        assert said in found["odd"].error
        assert found["odd"].says == "1: 2" or said


def test_python_of_an_app_runs_inside_the_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    def exits(alias: str, limits: Any) -> Any:
        raise SystemExit(3)

    def fails(alias: str, limits: Any) -> Any:
        return sql("SELECT 1 / 0")

    def writes(alias: str, limits: Any) -> Any:
        sql("INSERT INTO pulse_django_pause (queue) VALUES ('vandal')")
        return []

    def sleeps(alias: str, limits: Any) -> Any:
        return sql("SELECT 1, pg_sleep(20)::text")

    monkeypatch.setattr("pulse_django.health.conditions.asking.STATEMENT_TIMEOUT", "200ms")
    for look in (exits, fails, writes, sleeps):
        register(condition(look.__name__, look=look))
    register(condition("pairs", look=lambda alias, limits: [(1, 2)]))
    with transaction.atomic():
        found = {finding.condition.name: finding for finding in ask_all("default").found}
        assert sql("SELECT 1") == [(1,)], "the transaction of the caller goes on"
    assert "SystemExit" in found["exits"].error
    assert "division by zero" in found["fails"].error
    assert "read-only transaction" in found["writes"].error
    assert "statement timeout" in found["sleeps"].error
    assert found["pairs"].subjects == [(1, "2")]


def test_settings_of_the_callers_transaction_stay_as_they_were() -> None:
    with transaction.atomic():
        sql("SET LOCAL statement_timeout = '61s'")
        ask_all("default")
        assert sql("SHOW statement_timeout") == [("61s",)]
        assert sql("SHOW transaction_read_only") == [("off",)]


def test_a_table_that_is_locked_is_not_waited_for_by_each_question(rival: Rival) -> None:
    rival.begin()
    rival.run(sql, "LOCK TABLE pulse_django_job")
    begin = time.monotonic()
    verdict = ask_all("default")
    assert time.monotonic() - begin < asking.BUDGET
    assert verdict.is_unknown
    assert not verdict.is_well
    rival.rollback()
    assert ask_all("default").is_well


def test_what_several_conditions_look_at_is_asked_once() -> None:
    """PostgreSQL plans a scan of each partition for each time that history is named."""
    with CaptureQueriesContext(connection) as queries:
        ask_all("default")
    together = max((query["sql"] for query in queries), key=len)
    history = re.findall(r"FROM pulse_django_job\s.*", together)
    assert len(history) == 3, history  # the samples of completed and cancelled jobs, and a look for one job by its id
    for name in ("latest_attempts", "waiting_lanes", "due_queues", "live_workers", "ended_lately"):
        assert together.count(f"{name} AS (") == 1, name


def test_the_table_of_an_app_may_have_the_name_of_a_shared_query() -> None:
    sql("CREATE TEMPORARY TABLE live_workers AS SELECT 7 AS id, 'seven' AS words")
    register(condition("mine", sql="SELECT id, words FROM live_workers LIMIT %(limit)s"))
    try:
        [finding] = [finding for finding in ask_all("default").findings if finding.condition.name == "mine"]
    finally:
        sql("DROP TABLE live_workers")
    assert (finding.subjects, finding.error) == ([(7, "seven")], "")


def test_a_shared_query_brings_those_that_it_names() -> None:
    assert with_shared_queries("SELECT 1") == "SELECT 1"
    asked = with_shared_queries("SELECT 1 FROM due_queues")
    assert asked.index("waiting_lanes AS (") < asked.index("due_queues AS (")
    assert "live_workers" not in asked
