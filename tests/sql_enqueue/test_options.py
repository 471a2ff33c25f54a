"""For each option of tasks and calls: the row that SQL enqueues equals that of ``enqueue()``, or it is refused."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg.errors
import pytest
from django.db import DataError, IntegrityError
from django.test import override_settings

from pulse_django import NO_RETRIES, DeadJob, Every, Limit, Rate, Unique, task
from pulse_django.migrations import _enqueue as function
from pulse_django.models import Job
from pulse_django.queue.words.options import OPTIONS
from pulse_django.run.registry import registry
from pulse_django.tasks import PulseTask
from tests.crash.processes import ROOT
from tests.faults import all_faults
from tests.queue.steps import sql

from .steps import declare, pulse_enqueue, row

pytestmark = [
    pytest.mark.usefixtures("pulse_db"),
    pytest.mark.one_server("Citus has no such function"),
]

NOON = datetime(2031, 5, 1, 12, tzinfo=UTC)
_AT = f"timestamptz '{NOON.isoformat()}'"


def handler(order: int = 1, note: str = "", *, express: bool = False) -> None: ...


def of_any_arguments(a: int, *more: int, **rest: int) -> None: ...


def of_sentinel(a: int, b: object = handler) -> None: ...


def by_chunk(chunk: Any) -> None: ...


@task(name="sql.note_death", timeout=60)
def note_death(dead: DeadJob) -> None: ...


def made(**options: Any) -> PulseTask[..., Any]:
    """Declare a task, and forget an earlier one."""
    for name in ("sql.made", "sql.once"):
        registry._tasks.pop(name, None)
    function = by_chunk if "chunk" in options else handler
    made: PulseTask[..., Any] = task(name="sql.made", **options)(function)
    return made


# Of each option of a task: values for which the rows are equal, and values whose task is refused, with the reason.
EQUAL: dict[str, list[dict[str, Any]]] = {
    "priority": [{"priority": 7}],
    "queue_name": [{"queue_name": "mail"}],
    "backend": [{"backend": "default"}],
    "max_attempts": [{"max_attempts": 3}],
    "timeout": [{"timeout": 90_000.5}],
    "lease": [{"lease": 60}],
    "progress_timeout": [{"progress_timeout": 60}],
    "give_up_after": [{"give_up_after": timedelta(days=40)}],
    "weight": [{"weight": 2}],
    "tags": [{"tags": ["b", "a"]}],
    "unique": [
        {"unique": Unique()},
        {"unique": Unique(by=("order", "note"))},
        {"unique": Unique(on_conflict="follow")},
    ],
    "on_dead": [{"on_dead": note_death}, {"on_dead": note_death, "sensitive": "note"}],
    "at_most_once": [{"at_most_once": True}],
    "limit": [{"limit": Limit(max_running=1)}, {"limit": Limit("of_all", rate=Rate(5, per=1))}],
    "limit_key": [
        {"limit": Limit(max_running_per_key=1), "limit_key": "note"},
        {"limit": Limit(max_running_per_key=1), "limit_key": ("order", "note")},
    ],
    "fair_by": [{"fair_by": "order"}],
    "name": [{}],
    "aliases": [{"aliases": "sql.once"}],
    "retry": [{"retry": NO_RETRIES}],
    "expires": [{"expires": timedelta(days=3)}],
    "max_lost_workers": [{"max_lost_workers": 2}],
    "count_lost_workers": [{"count_lost_workers": False}],
    "isolation": [{"isolation": "process"}],
    "atomic": [{"atomic": True}],
    "sensitive": [{"sensitive": "note"}, {"sensitive": "return", "unique": Unique()}],
    "searchable": [{"searchable": ("note", "order", "express")}],
    "schedule": [{"schedule": Every(days=1)}],
    "chunk": [{"chunk": 5}, {"chunk": 5, "limit": Limit(max_running=2)}],
    "chunk_wait": [{"chunk": 5, "chunk_wait": 1}],
}
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "unique": [
        (
            {"unique": Unique(by=lambda order, **_: order)},
            "its unique key is made by a function. Enqueue it from Python",
        ),
        ({"unique": Unique(per=60)}, "its rule of unique jobs needs Python. Enqueue it"),
    ],
    "limit_key": [
        (
            {"limit": Limit(max_running_per_key=1), "limit_key": lambda order, **_: order},
            "its key is made by a function. Enqueue it from Python",
        )
    ],
    "fair_by": [({"fair_by": lambda order, **_: order}, "its key is made by a function. Enqueue it from Python")],
    "sensitive": [({"sensitive": "note", "unique": Unique()}, "its unique key is made with SECRET_KEY")],
    "encrypted": [({"encrypted": True}, "its arguments are encrypted, and PostgreSQL has no key")],
}
# Of each option of a call: for Python and for SQL. What is not here, the function has no argument for.
CALLS: dict[str, tuple[Any, dict[str, str]]] = {
    "priority": (-5, {"priority": "-5"}),
    "queue_name": ("mail", {"queue": "'mail'"}),
    "tags": (["c", "a"], {"tags": "'{c,a}'"}),
    "run_after": (NOON, {"run_after": _AT}),
    "idempotency_key": ("k", {"idempotency_key": "'k'"}),
    "expires": (NOON, {"expires": _AT}),
    "meta": ({"by": "x"}, {"meta": """'{"by": "x"}'"""}),
}
OF_TASK_ALONE = {
    *(
        "backend",
        "max_attempts",
        "timeout",
        "lease",
        "progress_timeout",
        "give_up_after",
        "weight",
        "unique",
        "on_dead",
    ),
}
OF_DATABASE = {"database"}  # the function is in one


def test_each_option_is_looked_at() -> None:
    """One that is added is neither forgotten here nor in the page."""
    of_task = {name for name, option in OPTIONS.items() if option.for_task}
    of_call = {name for name, option in OPTIONS.items() if option.for_call}
    assert EQUAL.keys() | REFUSED.keys() == of_task
    assert CALLS.keys() | OF_TASK_ALONE | OF_DATABASE == of_call
    page = (ROOT / "docs/how-to/sql.md").read_text()
    assert [name for name in sorted(OPTIONS) if f"`{name}`" not in page] == []


def test_the_row_is_that_of_enqueue_for_each_option_of_a_task() -> None:
    with all_faults() as about:
        for values in EQUAL.values():
            for value in values:
                with about(value):
                    one = made(**value)
                    declare()
                    kwargs: dict[str, Any] = {"order": 7, "note": "x"}
                    ours = row(one.enqueue(**kwargs).id)
                    clear()  # it may have a key
                    assert row(pulse_enqueue("sql.made", [], kwargs)) == ours
                    clear()


def test_the_row_is_that_of_enqueue_for_each_option_of_a_call() -> None:
    tasks = {"plain": {"tags": ["a"]}, "limited": {"limit": Limit(max_running=1)}, "shared": {"fair_by": "order"}}
    with all_faults() as about:
        for name, options in tasks.items():
            one = made(**options)
            declare()
            for option, (value, argument) in CALLS.items():
                with about((name, option)):
                    ours = row(one.using(**{option: value}).enqueue(7).id)
                    clear()
                    assert row(pulse_enqueue("sql.made", [7], **argument)) == ours


def test_a_task_is_refused_with_a_sentence() -> None:
    with all_faults() as about:
        for values in REFUSED.values():
            for options, why in values:
                with about(options):
                    made(**options)
                    declare()
                    assert f"sql.made: {why}" in refusal("sql.made", [7])


def test_queues_with_rules_of_their_own_give_lanes() -> None:
    rules = {"QUEUE_LIMITS": {"mail": {"max_running": 1}}, "FAIR_BY_QUEUE": {"fair": "order"}}
    with override_settings(PULSE=rules):
        one = made()
        declare()
        for queue in ("default", "mail", "fair"):
            ours = row(one.using(queue_name=queue).enqueue(7).id)
            assert row(pulse_enqueue("sql.made", [7], queue=f"'{queue}'")) == ours
        made(weight=2)
        declare()
        assert "weight: 2 is more than the queue 'mail' allows at once" in refusal("sql.made", [7], queue="'mail'")


VALUES: list[Any] = ["", "x", 'say "x"', "a\\b", "x" * 500, "\n\t\x01", 0, -7, 10**30, True, False, None]
ELSEWHERE: list[Any] = ["Zoë", "日本", "\U0001f600", "\x7f", [1], {"a": 1}, 1.5]
A_KEY = "a key is made of an argument that is not given, or is no whole number, boolean, null or text in ASCII"


def test_keys_are_spelt_as_python_spells_them() -> None:
    by_names = made(unique=Unique(by=("note", "order")), fair_by=("note", "order"))
    by_all = task(name="sql.once", unique=Unique(), fair_by="order")(handler)
    declare()
    with all_faults() as about:
        for value in VALUES:
            for one, kwargs in ((by_names, {"note": value}), (by_all, {"note": value, "express": True})):
                with about((one.registered_name, value)):
                    ours = row(one.enqueue(**kwargs).id)
                    clear()
                    assert row(pulse_enqueue(one.registered_name, [], kwargs)) == ours


def test_a_key_of_one_text_is_the_text_itself() -> None:
    one = made(fair_by="note")
    declare()
    with all_faults() as about:
        for value in VALUES:
            with about(value):
                assert row(pulse_enqueue("sql.made", [7, value])) == row(one.enqueue(7, value).id)


def test_an_argument_that_python_would_spell_in_another_way_is_refused_in_a_key() -> None:
    made(unique=Unique(by="order"))
    task(name="sql.once", fair_by="order")(handler)
    task(name="sql.needs", unique=Unique(by=("a", "b")))(of_sentinel)
    declare()
    for value in ELSEWHERE:
        assert A_KEY in refusal("sql.made", [value])
        assert A_KEY in refusal("sql.once", [value])
    assert A_KEY in refusal("sql.needs", [1])
    for name in ("sql.needs", "sql.once"):
        registry._tasks.pop(name)
    task(name="sql.once", fair_by="a")(of_any_arguments)
    declare()
    assert "made of arguments whose names only Python knows" in refusal("sql.once", [1])


def test_searched_arguments_are_found_as_python_stores_them() -> None:
    one = made(searchable=("order", "note"))
    declare()
    for order in (7, 1.5, 2.0, 0.1, True, "", "x" * 300, None, [1]):
        assert row(pulse_enqueue("sql.made", [order, "n"])) == row(one.enqueue(order, "n").id)  # type: ignore[arg-type]


def nested(levels: int) -> Any:
    found: list[Any] = []
    for _ in range(levels - 1):
        found = [found]
    return found


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"args": {"a": 1}}, "args is a JSON array"),
    ({"args": None}, "args is a JSON array"),
    ({"kwargs": [1]}, "kwargs is a JSON object"),
    ({"args": [1, "", True]}, "its handler does not accept these arguments"),
    ({"args": [1], "kwargs": {"order": 1}}, "its handler does not accept these arguments"),
    ({"kwargs": {"other": 1}}, "its handler does not accept these arguments"),
    ({"args": ["x" * 1_000_001]}, "the arguments are longer than PULSE['MAX_PAYLOAD_BYTES'] allows"),
    ({"args": ["x" * 1_000_001], "queue": "repeat('x', 101)"}, "the arguments are longer"),  # before other work
    ({"args": [1, nested(100)]}, "nested more than 100 levels deep"),
    ({"meta": f"""'{{"x": {nested(100)}}}'"""}, "nested more than 100 levels deep"),
    ({"priority": "101"}, "priority: it is between -100 and 100"),
    ({"priority": "-40000"}, "priority: it is between -100 and 100"),
    ({"queue": "''"}, "queue: it is empty or has control characters"),
    ({"queue": "E'a\\n'"}, "queue: it is empty or has control characters"),
    ({"idempotency_key": "''"}, "idempotency_key: it is empty or has control"),
    ({"tags": "'{a b}'"}, "tags: each has 1 to 200 characters without spaces"),
    ({"tags": "'{NULL}'"}, "tags: each has 1 to 200 characters without spaces"),
    ({"meta": "'[1]'"}, "meta: an object"),
    ({"meta": "jsonb_build_object('x', repeat('x', 99999))"}, "meta: an object"),
    ({"run_after": "now()", "expires": "now()"}, "expires: the job would expire before it is due"),
]


def test_what_enqueue_refuses_is_refused_with_a_sentence() -> None:
    made()
    declare()
    with all_faults() as about:
        for given, why in WRONG:
            with about(given):
                assert why in refusal("sql.made", given.get("args", [1]), given.get("kwargs"), **_options(given))
    made(unique=Unique())
    declare()
    assert "a unique job has no idempotency_key" in refusal("sql.made", [1], idempotency_key="'k'")
    made(unique=Unique(on_conflict="debounce"))
    declare()
    assert "on_conflict='debounce' requires run_after" in refusal("sql.made", [1])


BY_TEXT = "SELECT pulse_enqueue('sql.made', '[1]', %s, meta => %s)"
# Arguments by name, and meta. 1e4300 has one digit more than Python reads, and the worker failed to read the job.
TOO_LONG = [
    ('{"note": 1e4300}', "{}"),
    ('{"note": -1e4300}', "{}"),
    ('{"note": {"deep": ["", {"in": [1.5, 1e4300]}]}}', "{}"),
    ("{}", '{"x": 1e4300}'),
]
LONG = [
    (f'{{"note": {"9" * 4300}}}', "{}"),
    (f'{{"note": -{"9" * 4300}}}', "{}"),
    (f'{{"note": "{"1" * 5000}"}}', f'{{"{"1" * 5000}": 7}}'),
    (f'{{"note": 0.{"1" * 5000}}}', f'{{"x": "{"x" * 5000}", "y": [1, 2.5]}}'),
]


def test_what_is_as_deep_as_enqueue_allows_is_enqueued_and_what_is_out_of_range_refused() -> None:
    one = made()
    declare()
    assert row(pulse_enqueue("sql.made", [1, nested(99)])) == row(one.enqueue(1, nested(99)).id)  # type: ignore[arg-type]
    for sign in ("", "-"):
        with pytest.raises(DataError, match="a number that Python reads as infinity"):
            sql(BY_TEXT, f'{{"note": {sign}1{"0" * 309}.5}}', "{}")
    with pytest.raises(IntegrityError, match="pulse_job_labels_are_bounded"):
        pulse_enqueue("sql.made", [1], tags="ARRAY(SELECT n::text FROM generate_series(1, 99) AS n)")
    with pytest.raises(DataError, match="value too long"):
        pulse_enqueue("sql.made", [1], queue="repeat('x', 101)")


def test_a_whole_number_that_python_cannot_read_is_refused() -> None:
    made()
    declare()
    with all_faults() as about:
        for kwargs, meta in TOO_LONG:
            with about((kwargs, meta)), pytest.raises(DataError, match="a whole number of more than 4300 digits"):
                sql(BY_TEXT, kwargs, meta)
        for kwargs, meta in LONG:
            with about(kwargs[:20]):
                [(job_id,)] = sql(BY_TEXT, kwargs, meta)
                assert Job.objects.get(pk=job_id).kwargs == json.loads(kwargs)


def test_the_signature_of_the_function_is_that_of_the_page() -> None:
    page = (ROOT / "docs/how-to/sql.md").read_text()
    assert f"GRANT EXECUTE ON FUNCTION public.{function.NAME} TO" in " ".join(page.split())
    said = " ".join(re.sub(r"--.*", "", page.partition("```sql\npulse_enqueue(")[2].partition("\n)")[0]).split())
    assert said == function._ARGUMENTS


def test_what_counts_over_jobs_is_refused_where_there_are_several_shards() -> None:
    refused: list[tuple[dict[str, Any], dict[str, str], str]] = [
        ({"unique": Unique()}, {}, "its rule of unique jobs needs Python"),
        ({"limit": Limit(max_running=1)}, {}, "its limit belongs to one of several shards"),
        ({}, {"idempotency_key": "'k'"}, "idempotency_key: it belongs to one of several shards"),
    ]
    with override_settings(PULSE={"SHARDS": {"default": 0, "other": 1}}), all_faults() as about:
        for options, given, why in refused:
            with about(options):
                made(**options)
                declare()
                assert why in refusal("sql.made", [7], **given)
        made(fair_by="order")
        declare()
        assert pulse_enqueue("sql.made", [7])


def _options(given: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name not in ("args", "kwargs")}


def refusal(name: str, args: Any, kwargs: Any = None, **options: str) -> str:
    with pytest.raises(DataError) as refused:
        pulse_enqueue(name, args, kwargs, **options)
    assert isinstance(refused.value.__cause__, psycopg.errors.InvalidParameterValue)
    return str(refused.value)


def clear() -> None:
    sql("DELETE FROM pulse_django_job")
    sql("DELETE FROM pulse_django_key")
