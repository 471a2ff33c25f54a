"""What is stored as JSON is read as JSON: nothing is unpickled, and what cannot be read harms its own job only."""

from __future__ import annotations

import base64
import io
import os
import pickle
import re
import signal
import time
from contextlib import suppress
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError
from django.test import Client, override_settings

from pulse_django.exceptions import PayloadError
from pulse_django.models import Job, Minute
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.payloads import MAX_DEPTH
from pulse_django.queue.words.states import Status
from pulse_django.run.registry import registry
from pulse_django.testing import drain
from tests.crash.workers import LONG_LEASE, Workers, status, wait_for, wait_until
from tests.database import on_empty_tables
from tests.factories import AttemptFactory, WorkerFactory, make_job
from tests.faults import combined, each_of
from tests.queue.steps import sql
from tests.security import handlers, trap
from tests.worker import handlers as vandals

pytestmark = pytest.mark.usefixtures("pulse_db")

OURS = {"TASK_MODULES": ["tests.security.handlers"]}

# ------------------------------------------------------------------------------------------------- no other format


class Bomb:
    """Unpickling it imports the trap and calls what is in it."""

    def __reduce__(self) -> Any:
        return trap.spring, ()


def _is_loaded(blob: bytes, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    loaded: list[int] = []
    monkeypatch.setattr(trap, "spring", lambda: loaded.append(1))
    pickle.loads(blob)
    return loaded


@override_settings(PULSE=OURS)
def test_a_pickle_in_any_column_is_text(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    blob, binary = pickle.dumps(Bomb(), protocol=0), base64.b64encode(pickle.dumps(Bomb())).decode()
    assert _is_loaded(blob, monkeypatch) == [1], "or the rest would prove nothing"
    called: list[int] = []
    monkeypatch.setattr(trap, "spring", lambda: called.append(1))
    for text in (blob.decode("latin-1"), binary):
        job = make_job(
            Status.DEAD_LETTERED, task=text[:200], queue=text[:100], args=[text], kwargs={text: text}, progress=text,
            last_error=text, cancel_reason=text, idempotency_key=text[:200], trace=text[:55],
        )  # fmt: skip
        AttemptFactory(job=job, number=1, outcome="FAILED", message=text, traceback=text, error_class=text[:200])
        runs = make_job(task="security.echo", args=[text], kwargs={"a": text}, progress=text, queue=text[:100])
        drain(failures="keep")
        runs.refresh_from_db()
        assert runs.result == {"args": [text], "kwargs": {"a": text}}
        for page in ("", f"{job.pk}/change/", f"{runs.pk}/change/"):
            assert admin_client.get(f"/admin/pulse_django/job/{page}").status_code == 200
        with suppress(SystemExit):  # it exits with 1 if something is wrong
            call_command("pulse_status", stdout=io.StringIO())
    assert called == []


# -------------------------------------------------------------------------------------------------- bombs at enqueue


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


BOMBS = {
    "a list of lists, 100,000 deep": lambda: nested(100_000),
    "a level too deep": lambda: nested(MAX_DEPTH - 1),  # within the list, or the dict, of all arguments
    "50 MB of text": lambda: "x" * 50_000_000,
    "an int of a million digits": lambda: 1 << 3_321_928,
    "a list that contains itself": lambda: (loop := [], loop.append(loop))[0],
    "200,000 keys": lambda: {str(n): n for n in range(200_000)},
}


PLACES = [*(("args", name) for name in BOMBS), ("kwargs", "a level too deep"), ("kwargs", "50 MB of text")]


@each_of(*PLACES)
def test_a_bomb_is_refused_at_enqueue_at_once(*, where: Any, name: Any) -> None:
    payload = BOMBS[name]()
    new = NewJob(task="security.echo", **{where: [payload] if where == "args" else {"a": payload}})  # type: ignore[arg-type]
    begin = time.thread_time()
    with pytest.raises(PayloadError, match=where):
        Job.objects.enqueue(new)
    assert time.thread_time() - begin < 2.0, "enqueue() kept the processor busy for that long"
    assert not Job.objects.exists()


def test_what_is_as_deep_as_may_be_is_stored() -> None:
    assert Job.objects.enqueue(NewJob(task="security.echo", args=[nested(MAX_DEPTH - 2)])).pk


@override_settings(PULSE=OURS)
@pytest.mark.parametrize("name", ["a list of lists, 100,000 deep", "an int of a million digits", "50 MB of text"])
def test_a_bomb_that_a_handler_returns_is_a_dead_letter_with_a_reason(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = registry.get("security.innocent")
    assert task is not None
    bomb = BOMBS[name]()
    monkeypatch.setattr(type(task), "call", lambda self, *_: bomb)
    job = make_job(task="security.innocent", max_attempts=3)
    drain(failures="keep")
    job.refresh_from_db()
    assert job.status == Status.DEAD_LETTERED
    assert "result: " in job.last_error


# ------------------------------------------------------------------------------------ bombs that somebody wrote by hand


def test_the_table_refuses_what_is_too_large_or_too_deep() -> None:
    """Who writes rows without Pulse is stopped by the CHECK, and by the depth that PostgreSQL itself reads."""
    with pytest.raises(IntegrityError, match=r"pulse_job_payload_(text_)?is_bounded"):
        sql("INSERT INTO pulse_django_job (task, args) VALUES ('x', jsonb_build_array(repeat('x', 50000000)))")
    deep = "(repeat('[', 100000) || repeat(']', 100000))::jsonb"
    with pytest.raises(DatabaseError, match="stack depth"):
        sql(f"INSERT INTO pulse_django_job (task, args) VALUES ('x', {deep})")
    with pytest.raises(DatabaseError, match="numeric"):
        sql("INSERT INTO pulse_django_job (task, args) VALUES ('x', (repeat('9', 1000000))::jsonb)")
    assert not Job.objects.exists()


DEEP = "repeat('[', 5000) || repeat(']', 5000)"
UNREADABLE = {"deep": DEEP, "an int of 131,000 digits": "'[' || repeat('9', 131000) || ']'", "short": "'[1e5000]'"}


# Since Python 3.13 what is so deep can be read; the handler then returns it, and a result may not be.
UNREADABLE_ERRORS = "RecursionError|ValueError: Exceeds the limit|UnstorableResult: result: nested more than"


def by_hand(task: str, args: str, **columns: Any) -> int:
    columns = {"max_attempts": 1, **columns}
    names, marks = ", ".join(columns), ", ".join("%s" for _ in columns)
    [(job_id,)] = sql(
        f"INSERT INTO pulse_django_job (task, args, {names}) VALUES (%s, ({args})::jsonb, {marks}) RETURNING id",
        task,
        *columns.values(),
    )
    return int(job_id)


def test_a_worker_lives_through_rows_that_no_reader_can_read(workers: Workers) -> None:
    """In a thread and in a process of its own, with the arguments logged. The one process goes on to the innocent."""
    worker = workers.ready("--concurrency", "2", settings=LONG_LEASE | OURS | {"LOG_ARGUMENTS": True})
    child = worker.child()
    bad = [by_hand(task, args) for task in ("security.echo", "security.echo_apart") for args in UNREADABLE.values()]
    heavy = by_hand("security.echo", "jsonb_build_array(repeat('x', 20000000))::text")
    innocent = [handlers.innocent.enqueue().id for _ in range(20)]
    wait_for(Status.COMPLETED, *innocent)
    wait_for(Status.DEAD_LETTERED, *bad, heavy)
    assert worker.child() == child
    for job in Job.objects.filter(pk__in=bad).defer("args"):
        assert re.match(UNREADABLE_ERRORS, job.last_error), job.last_error
    assert "over the limit" in Job.objects.defer("args").get(pk=heavy).last_error, "what it returned was as large"
    assert not worker.says("Logging the end of job"), (
        "the lines and signals of its neighbours would be lost with its own"
    )


@each_of(*combined(["deep", "short"], ["args", "kwargs", "progress", "result"]), around=on_empty_tables)
def test_one_row_that_cannot_be_read_closes_no_page(admin_client: Client, *, which: Any, column: Any) -> None:
    args = UNREADABLE[which]
    state = {"progress": Status.RUNNING, "result": Status.COMPLETED}.get(column, Status.DEAD_LETTERED)
    job = make_job(state, task="security.echo", locked_by="host-1:b:1" if column == "progress" else None)
    worker = WorkerFactory(name="host-1", boot_id="b")
    text = f"'{{\"done\": ' || ({args}) || ', \"total\": 3}}'" if column in ("kwargs", "progress") else args
    sql(f"UPDATE pulse_django_job SET {column} = ({text})::jsonb")
    for page in (f"job/{job.pk}/change/", "job/", "board/", "deadletter/", f"worker/{worker.pk}/change/"):
        response = admin_client.get(f"/admin/pulse_django/{page}")
        assert response.status_code == 200, page
    if which == "short":  # how deep a list may be differs between Pythons
        assert b"cannot be" in admin_client.get(f"/admin/pulse_django/job/{job.pk}/change/").content
    for command in (["pulse_status"], ["pulse_retry", str(job.pk)], ["pulse_cancel", str(job.pk)]):
        with suppress(SystemExit):
            call_command(*command, stdout=io.StringIO(), stderr=io.StringIO())


def test_a_worker_of_another_release_that_says_what_cannot_be_read_closes_no_page(admin_client: Client) -> None:
    worker = WorkerFactory()
    sql("UPDATE pulse_django_worker SET vitals = '{\"beats\": 1e5000}', queues = '[1e5000]', tasks = '[1e5000]'")
    for page in ("worker/", f"worker/{worker.pk}/change/", "board/", "queue/"):
        assert admin_client.get(f"/admin/pulse_django/{page}").status_code == 200, page
    [minute, *_] = Minute.objects.unwritten()
    assert Minute.objects.write(minute), "and a minute is written all the same"


def test_what_a_dead_process_held_is_recovered_though_one_row_cannot_be_read(workers: Workers) -> None:
    """The keeper reads what its child held: one row must not leave the others to a watchdog."""
    held = [vandals.naps.enqueue(60).id for _ in range(3)]
    worker = workers.ready("--concurrency", "3", settings=LONG_LEASE)
    wait_until(lambda: workers.trace.count("begin").total() == 3)
    Job.objects.filter(pk__in=held).update(args=[0])
    sql("UPDATE pulse_django_job SET progress = '[1e5000]' WHERE id = %s", int(held[0]))
    os.kill(worker.child(), signal.SIGKILL)
    wait_until(
        lambda: all(status(job) != Status.RUNNING or workers.trace.count("end")[int(job)] for job in held), patience=5
    )
    wait_for(Status.COMPLETED, *held)
