"""No function or operator that somebody planted in a schema of the search path is called by a statement of ours.

Whoever may CREATE in one of the schemas would otherwise have code run with the rights of every worker.
"""

from __future__ import annotations

import ast
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, models
from django.db.migrations.executor import MigrationExecutor

import pulse_django
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from tests.crash.processes import database_url
from tests.crash.workers import Workers, wait_for
from tests.faults import each_of
from tests.security import drive, handlers, shadows

HOME = Path(pulse_django.__file__).parent
# Before a statement's own: what must hold in its transaction.
_AROUND = re.compile(r"^\s*(?:(?:BEGIN|SET LOCAL)[^;]*;\s*)+|;\s*COMMIT\s*$")
_ASKS = re.compile(r"\s*\(?(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
_OF_DJANGO = re.compile(r'"(?:auth|django)_\w+"')

SQL = re.compile(r"^\s*(?:SELECT|INSERT INTO|UPDATE \w+|DELETE FROM|WITH(?: RECURSIVE)? \w+)\b", re.MULTILINE)


# Where the server binds parameters, a number has the type of its size: another chance for a better match.
# What a plain server cannot plan.
OF_CITUS = re.compile("pg_dist_|master_run_on_worker|run_command_on_all_nodes|citus_schema_")


@pytest.fixture(scope="module", params=[False, True], ids=["client", "server"])
def sent(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> dict[str, str]:
    """Every statement of ours that the drive sends, with its parameters, and as it is written."""
    with django_db_blocker.unblock(), options(server_side_binding=request.param), drive.recording() as statements:
        drive.drive(*drive.EVERYTHING)
    stripped = ((_AROUND.sub("", spelt), _AROUND.sub("", text)) for spelt, text in statements.items())
    return {spelt: text for spelt, text in stripped if is_ours(text)}


def is_ours(text: str) -> bool:
    """Those on Django's own tables are not."""
    bare = shadows.bare(text)
    return bool(_ASKS.match(text)) and ("pulse_django" in bare or not _OF_DJANGO.search(bare))


@contextmanager
def options(**values: object) -> Iterator[None]:
    """Connect with other options for a while."""
    settings = connection.settings_dict
    before = settings["OPTIONS"]
    connection.close()
    settings["OPTIONS"] = before | values
    try:
        yield
    finally:
        connection.close()
        settings["OPTIONS"] = before


@pytest.fixture(scope="module")
def attacked(sent: dict[str, str], django_db_blocker: Any) -> Iterator[psycopg.Connection]:
    """A session whose search path ends with a schema in which everything has a shadow."""
    with django_db_blocker.unblock():
        session = connection.get_new_connection(connection.get_connection_params() | {"autocommit": True})
    with session, shadows.planted(session, sent.values()):
        session.execute(f"SET search_path = public, {shadows.SCHEMA}")
        yield session


@contextmanager
def under_attack() -> Iterator[None]:
    """Let our own sessions find the shadows, each of which raises."""
    before = connection.settings_dict["OPTIONS"]["options"]
    with options(options=f"{before} -c search_path=public,{shadows.SCHEMA}"):
        yield


# ---------------------------------------------------------------------------------------------------------- statements


def test_no_statement_calls_what_was_planted(attacked: psycopg.Connection, sent: dict[str, str]) -> None:
    ours = {spelt: text for spelt, text in sent.items() if not OF_CITUS.search(text)}
    found = {text: called for spelt, text in ours.items() if (called := called_by(attacked, spelt))}
    assert not found, "\n\n".join(f"{called}\n  by {text}" for text, called in found.items())


def called_by(session: psycopg.Connection, statement: str) -> str:
    try:
        return ", ".join(shadows.called_by(session, statement))
    except psycopg.Error as error:  # a shadow that is no aggregate, say
        return str(error)


FITS_BETTER = [
    ("SELECT power(2, 2)", "power(integer,integer)"),
    ("SELECT count(id) FROM pulse_django_job", "count(bigint)"),
    ("SELECT left(task, 2::smallint) FROM pulse_django_job", '"left"(character varying,smallint)'),
    ("SELECT FROM pulse_django_job WHERE status = 'RUNNING'", "=(character varying,character varying)"),
    ("SELECT FROM pulse_django_job WHERE status IN ('RUNNING', 'x')", "=(character varying,character varying)"),
    ("SELECT CASE status WHEN 'x' THEN 1 END FROM pulse_django_job", "=(character varying,character varying)"),
    ("SELECT NULLIF(status, 'x') FROM pulse_django_job", "=(character varying,character varying)"),
    ("SELECT args -> '1' FROM pulse_django_job", "->(jsonb,jsonb)"),
    ("SELECT 2 * interval '1 s'", "*(integer,interval)"),
    ("SELECT id FROM pulse_django_job WHERE 0.5 < random()", "<(numeric,double precision)"),
    ("SELECT FROM pg_class WHERE oid = 'pulse_django_job'::regclass", "=(oid,regclass)"),
]


@each_of(*FITS_BETTER)
def test_a_statement_that_fits_a_shadow_better_is_found(
    attacked: psycopg.Connection, *, statement: Any, shadow: Any
) -> None:
    """Or the test above could not fail."""
    assert shadow in called_by(attacked, statement)


@each_of("clock_timestamp()", "count(*)", "statement_timestamp()")
def test_ties_are_the_catalogues(attacked: psycopg.Connection, *, call: Any) -> None:
    """Why calls without arguments need no schema, though each has a shadow whose argument has a default."""
    name = call.partition("(")[0]
    found = attacked.execute("SELECT to_regprocedure(%s)", [f"{shadows.SCHEMA}.{name}(date)"])
    assert found.fetchone() != (None,)
    assert called_by(attacked, f"SELECT {call} FROM pulse_django_job") == ""


# ------------------------------------------------------------------------------------------------------------- sources


def sources() -> Iterator[tuple[str, str]]:
    """Each SQL text that stands in our sources, with the name of its file. What is filled in is left out."""
    for path in sorted(HOME.rglob("*.py")):
        tree = ast.parse(path.read_text())
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if id(node) not in inner | said and SQL.search(text := _text_of(node)):
                yield str(path.relative_to(HOME)), text


def _text_of(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(part) or FILLED for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


FILLED = " \x00 "


def test_every_call_in_the_sources_says_whose_function_it_means() -> None:
    """Migrations are watched at work: test_tables_that_are_made_under_attack_hold_no_shadow."""
    ours = [(path, text) for path, text in sources() if not path.startswith("migrations")]
    found = {f"{path}: {name}()" for path, text in ours for name in shadows.calls_to_qualify(text)}
    assert not found, f"write pg_catalog. in front of each (docs/adr/0039): {sorted(found)}"


def test_every_call_that_is_sent_says_whose_function_it_means(sent: dict[str, str]) -> None:
    found = {text: names for text in sent.values() if (names := shadows.calls_to_qualify(text))}
    assert not found, f"give the expression function='pg_catalog....' (docs/adr/0039): {found}"


def test_every_text_in_the_sources_is_driven(sent: dict[str, str]) -> None:
    """What is not sent cannot be found: add it to drive.py. A server that Pulse has just made has no shadows yet."""
    everything = "\n".join(" ".join(text.split()) for text in sent.values())
    missed = [
        (path, line)
        for path, text in sources()
        if (line := _longest(text)) not in everything and not path.startswith(("migrations", "embedded"))
    ]
    assert not missed


def _longest(text: str) -> str:
    """The longest part of a line into which nothing is filled."""
    text = re.sub(r"--[^\n]*", "", text)
    parts = (part for line in text.splitlines() for part in re.split(r"\x00|{.*?}|%%|%\(\w+\)s|%s", line))
    return max((" ".join(part.split()) for part in parts), key=len)


CALLS = [
    ("SELECT power(a, 2), pg_catalog.power (a, 2)", ["power"]),
    ("SELECT count (id), count(*), COUNT( * ), now()", ["count"]),
    ("SELECT COALESCE(max (a), 0), GREATEST(a, b) WHERE a IN (1) AND (b)", ["max"]),
    ("WITH a (b) AS (SELECT 1), c (d) AS MATERIALIZED (SELECT 1) INSERT INTO e AS f (g) SELECT 1", []),
    ("SELECT 'power(2, 2)' -- power(2, 2)\nFROM pg_catalog.json_to_recordset(%s::json) AS said (a int)", []),
    ('SELECT other.power(1), "power"(1)', []),
]


@each_of(*CALLS)
def test_calls_are_told_from_syntax(*, statement: Any, names: Any) -> None:
    assert shadows.calls_to_qualify(statement) == names


def test_columns_of_short_text_are_compared_as_text() -> None:
    """Of every model: the ORM compares a CharField as varchar, which has no operators of its own."""
    ours = [model for model in models_of_ours() if not model._meta.proxy]
    fields = [field for model in ours for field in model._meta.concrete_fields if isinstance(field, models.CharField)]
    assert len(fields) > 10
    assert [str(field) for field in fields if type(field).__name__ != "ShortText"] == []


def models_of_ours() -> list[type[models.Model]]:
    return list(Job._meta.app_config.get_models())  # type: ignore[union-attr]  # it has one


# ---------------------------------------------------------------------------------------------------------------- live


@pytest.mark.usefixtures("pulse_db", "attacked")
def test_all_of_it_works_while_everything_has_a_shadow_that_raises() -> None:
    with under_attack():
        drive.drive(*drive.OWN)


@pytest.mark.usefixtures("pulse_db", "attacked")
def test_a_worker_works_while_everything_has_a_shadow_that_raises(workers: Workers) -> None:
    path = {"DATABASE_URL": database_url(options=f"-c search_path=public,{shadows.SCHEMA}")}
    job, dead = handlers.echo.enqueue(1).id, handlers.crashes.enqueue().id
    worker = workers.ready(settings={"TASK_MODULES": ["tests.security.handlers"]}, env=path)
    wait_for(Status.COMPLETED, job)
    wait_for(Status.DEAD_LETTERED, dead)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "shadow" not in worker.log


# -------------------------------------------------------------------------------------------------------------- tables


def test_tables_that_are_made_under_attack_hold_no_shadow(attacked: psycopg.Connection, django_db_blocker: Any) -> None:
    """Constraints, indexes and defaults keep for ever what they found when they were made."""
    attacked.execute("CREATE SCHEMA fresh")
    before = connection.settings_dict["OPTIONS"]["options"]
    try:
        with (
            django_db_blocker.unblock(),
            options(options=f"{before} -c search_path=fresh,{shadows.SCHEMA}", server_side_binding=False),
        ):
            executor = MigrationExecutor(connection)
            executor.migrate([node for node in executor.loader.graph.leaf_nodes() if node[0] == "pulse_django"])
            [(made,)] = connection_rows(
                "SELECT count(*) FROM pg_constraint WHERE conrelid = 'fresh.pulse_django_job_hot'::regclass::oid"
                " OR contypid = 'fresh.pulse_django_job_rules'::regtype::oid"
            )
        assert made > 10
        assert shadows.called_by_tables(attacked) == []
    finally:
        attacked.execute("DROP SCHEMA fresh CASCADE")


def connection_rows(statement: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def test_a_table_that_keeps_a_shadow_is_found(attacked: psycopg.Connection) -> None:
    """Or the test above could not fail."""
    attacked.execute("CREATE TABLE public.varying (a varchar CHECK (a IN ('x', 'y')), b int DEFAULT power(2, 2))")
    try:
        assert len(shadows.called_by_tables(attacked)) >= 2
    finally:
        attacked.execute("DROP TABLE public.varying")
