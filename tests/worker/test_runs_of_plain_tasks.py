"""Runs of a plain task are alike: what surrounds them is found out once in a while, and they are logged together."""

from __future__ import annotations

import io
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pulse_django.models import Job
from pulse_django.queue.words import traces
from pulse_django.queue.words.leases import Claim, Lease
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Settled
from pulse_django.run import execute
from pulse_django.run.registry import task_enqueued
from pulse_django.run.run import Performed, Run
from pulse_django.safe_logging import AT_ONCE, Written, process_log
from pulse_django.signals import job_finished, job_started
from pulse_django.worker import logs
from pulse_django.worker.logs import Json, Plain, write_all
from pulse_django.worker.run_events import RunEvents, job_logger
from testproject.shop import tasks

ADD, FAIL = tasks.add.registered_name, tasks.fail.registered_name


class Lines:
    """What a worker has to write."""

    def __init__(self) -> None:
        self.entries: list[tuple[logging.Logger, Written]] = []

    def put(self, logger: logging.Logger, line: Written) -> None:
        self.entries.append((logger, line))


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.WARNING, "django.tasks")  # as it is without DEBUG
    caplog.set_level(logging.INFO, job_logger.logger.name)
    monkeypatch.setattr(process_log, "writer", found := Lines())
    return found


def perform(job_id: int = 1, task: str = ADD) -> Performed:
    args = "[1, 2]" if task == ADD else '["no luck"]'
    lease = Lease(job_id, "me:1:1", 1)
    claim = Claim(lease, job_id, task, "default", 0, args, "{}", None, 0, 1, 0, 60.0, None, 0.0, 0.0, 0.0)
    performed = execute.perform(Run(claim, alias="default"))
    performed.run.begun_at, performed.ended_at = 1.0, 1.0 + job_id / 1000
    return performed


@contextmanager
def _receiver(told: list[Any]) -> Iterator[None]:
    def receive(**facts: Any) -> None:
        told.append(facts)

    job_started.connect(receive)
    yield
    job_started.disconnect(receive)


@contextmanager
def _tracer(told: list[Any]) -> Iterator[None]:
    class Tracer:
        @contextmanager
        def running(self, claim: Claim) -> Iterator[None]:
            told.append(claim)
            yield

    traces.follow(Tracer())  # type: ignore[arg-type]  # no job is enqueued
    yield
    traces.follow(None)


TOLD: list[Any] = []


@contextmanager
def note(context: object) -> Iterator[None]:
    TOLD.append(context)
    yield


@contextmanager
def _middleware(told: list[Any]) -> Iterator[None]:
    from django.test import override_settings

    TOLD.clear()
    with override_settings(PULSE={"MIDDLEWARE": [f"{__name__}.note"]}):
        yield
    told += TOLD


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("surroundings", [_receiver, _tracer, _middleware])
def test_what_comes_while_a_worker_runs_counts_for_the_next_runs(surroundings: Callable[..., Any]) -> None:
    told: list[Any] = []
    perform()
    with surroundings(told):
        until = time.monotonic() + 10
        while not (told or TOLD) and time.monotonic() < until:
            perform()
    assert told
    TOLD.clear()


def published(lines: Lines, ended: list[Performed], **settled: Any) -> None:
    accepted = {one.report.lease: Status.COMPLETED for one in ended if one.report and one.error is None}
    failed = {one.report.lease: Status.DEAD_LETTERED for one in ended if one.report and one.error is not None}
    events = RunEvents()
    events.add(ended, Settled(accepted=accepted | failed, repeated=frozenset(), lost=frozenset()))
    events.run_once()


def said(lines: Lines, formatter: logging.Formatter, *more: logging.Handler) -> list[str]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    ours = job_logger.logger
    for one in (handler, *more):
        ours.addHandler(one)
    propagates, ours.propagate = ours.propagate, False
    try:
        write_all(lines.entries)
    finally:
        ours.propagate = propagates
        for one in (handler, *more):
            ours.removeHandler(one)
    return stream.getvalue().splitlines()


class Memory(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_runs_that_completed_have_a_line_each_in_their_order(lines: Lines) -> None:
    published(lines, [perform(1), perform(2), perform(3, FAIL), perform(4)])
    ours = [line for logger, line in lines.entries if logger is job_logger.logger]
    assert len(ours) == 3, "those of plain runs are handed over together"
    shown = [line for line in said(lines, Plain()) if "pulse_django.jobs: job" in line]
    assert [line.partition("jobs: ")[2].partition(":")[0] for line in shown] == [
        *[f"job {number} {ADD!r} attempt 1" for number in (1, 2)],
        f"job 3 {FAIL!r} attempt 1",
        f"job 4 {ADD!r} attempt 1",
    ]
    assert shown[1].endswith("COMPLETED in 2 ms")
    assert shown[3].endswith("COMPLETED in 4 ms")
    as_json = [json.loads(line) for line in said(lines, Json())]
    assert [line["job_id"] for line in as_json] == [1, 2, 3, 4]
    assert [line["duration"] for line in as_json] == pytest.approx([0.001, 0.002, 0.003, 0.004])
    said(lines, Plain(), memory := Memory())
    assert [record.job_id for record in memory.records] == [1, 2, 3, 4]
    assert memory.records[3].getMessage() == f"job 4 {ADD!r} attempt 1: COMPLETED in 4 ms"


def test_a_receiver_or_a_record_factory_gets_each_run(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Any] = []

    def receive(ending: Any, **_: Any) -> None:
        ended.append(ending.job_id)

    job_finished.connect(receive, sender=Job)
    try:
        published(lines, [perform(1), perform(2)])
    finally:
        job_finished.disconnect(receive, sender=Job)
    assert ended == [1, 2]
    assert len(lines.entries) == 2
    lines.entries.clear()
    made: list[str] = []

    def factory(*args: Any, **options: Any) -> logging.LogRecord:
        made.append(args[4])
        return logging.LogRecord(*args, **options)

    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(factory)
    try:
        published(lines, [perform(1), perform(2)])
    finally:
        logging.setLogRecordFactory(before)
    assert len(made) == 2


def test_lines_that_wait_together_are_counted_each(lines: Lines) -> None:
    """A stream that blocks fills the memory with lines, and not with entries of the queue."""
    published(lines, [perform(number) for number in range(1, 401)])
    writer = logs.LogWriter()
    writer._writing, writer._moved_at = True, float("-inf")  # it hangs
    for _ in range(2 * logs.MOST_WAITING // 400):
        writer.put(*lines.entries[0])
    assert writer._waiting.qsize() == logs.MOST_WAITING // 400
    assert writer.dropped == logs.MOST_WAITING
    writer.run_once()
    writer._moved_at = float("-inf")
    writer.put(*lines.entries[0])
    assert writer.dropped == 0, "there is room again"


class Odd(logging.Handler):
    """Its level cannot be compared, as that of one that was given a text."""

    level = property(lambda self: "INFO", lambda self, level: None)  # type: ignore[assignment]


class Raising(Memory):
    def filter(self, record: logging.LogRecord) -> bool:
        if record.job_id == 2:  # type: ignore[attr-defined]
            raise RuntimeError("mine")
        return True


def test_a_log_handler_that_raises_costs_its_lines_alone(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_django.run.django_log._lately", (float("-inf"), False))
    caught, django_logger, ours = io.StringIO(), logging.getLogger("django.tasks"), job_logger.logger
    django_logger.setLevel(logging.INFO)  # lines sets it back
    other = logging.getLogger("pulse_django.worker")
    other.addHandler(good := logging.StreamHandler(caught))
    for logger in (django_logger, ours):
        logger.addHandler(odd := Odd())
        try:
            published(lines, [perform(1), perform(2)])
            write_all([*lines.entries, (other, other.makeRecord("x", 30, "f", 1, "hello", (), None))])
        finally:
            logger.removeHandler(odd)
    other.removeHandler(good)
    assert caught.getvalue().count("hello") == 2
    monkeypatch.setattr(process_log, "writer", AT_ONCE)
    ours.addHandler(raising := Raising())
    try:
        published(lines, [perform(number) for number in (1, 2, 3, 4)])
    finally:
        ours.removeHandler(raising)
    assert [record.job_id for record in raising.records] == [1, 3, 4]


def test_lines_that_were_logged_together_name_the_thread_that_logged_them(lines: Lines) -> None:
    thread = threading.Thread(target=published, args=(lines, [perform(1), perform(2)]), name="events of runs")
    thread.start()
    thread.join()
    said(lines, Plain(), memory := Memory())
    assert {record.threadName for record in memory.records} == {"events of runs"}


@pytest.mark.django_db
def test_a_receiver_of_the_projects_may_have_the_name_of_one_of_djangos() -> None:
    told: list[str] = []

    def log_task_enqueued(task_result: Any, **_: Any) -> None:
        told.append(task_result.id)

    task_enqueued.connect(log_task_enqueued)
    try:
        result = tasks.add.enqueue(1, 2)
    finally:
        task_enqueued.disconnect(log_task_enqueued)
    assert told == [result.id]
