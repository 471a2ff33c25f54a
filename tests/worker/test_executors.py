"""One suite for all executors: the same questions to a handler in a thread, on the event loop and in a process.

One real worker answers all of them at once; the tests look at what it left in the database and in the handlers' trace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from pulse_django import api
from pulse_django.models import Attempt, Job
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import TERMINAL, Status
from tests.crash.workers import Trace, Workers, is_alive, wait_until
from tests.database import empty_tables
from tests.faults import all_faults, each_of
from tests.worker import handlers

# A slot for each job: a claim that waits for one for 2 s goes back, and such an attempt has no handler.
SETTINGS = {"MIDDLEWARE": ["tests.worker.handlers.traced"], "LEASE_TTL": 2, "CONCURRENCY": 80}
RAISED = ("ValueError", "SystemExit", "KeyboardInterrupt", "GeneratorExit", "BaseException", "MemoryError")
QUESTIONS: dict[str, tuple[str, list[Any]]] = {
    **{f"raises {kind}": ("raises", [kind]) for kind in RAISED},
    "succeeds": ("succeeds", [42]),
    **{
        name: (name, [])
        for name in (
            "tells_its_context",
            "raises_what_cannot_be_told",
            "raises_what_no_column_takes",
            "recurses",
            "returns_a_set",
            "raises_after_completion",
            "snoozes",
            "retries_later",
            "discards",
            "resumes",
            "takes_too_long",
            "stalls",
            "is_told_of_its_deadline",
            "is_cancelled",
            "loses_its_lease",
        )
    },
}
# In a process of their own these never get to leave.
KILLED = ("takes_too_long", "stalls", "is_told_of_its_deadline", "loses_its_lease")


@dataclass(frozen=True)
class Story:
    """One job, its runs, and what others saw of it."""

    job: Job
    attempts: list[Attempt]  # without claims that a worker handed back before their handler began
    seen_running: Any  # the progress that others saw meanwhile
    trace: Trace

    def traces(self, what: str) -> list[dict[str, Any]]:
        return self.trace.of(self.job.pk, what)

    @property
    def outcomes(self) -> list[str]:
        return [attempt.outcome for attempt in self.attempts]


Stories = dict[tuple[str, str], Story]


@pytest.fixture(scope="module")
def stories(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stories]:
    with django_db_blocker.unblock():
        empty_tables()
        workers = Workers(tmp_path_factory.mktemp("executors"))
        try:
            yield _ask_everything(workers)
        finally:
            workers.kill()
            empty_tables()


def _ask_everything(workers: Workers) -> Stories:
    jobs: dict[tuple[str, str], int] = {}
    for executor in handlers.EXECUTORS:
        for question, (name, args) in QUESTIONS.items():
            jobs[executor, question] = int(handlers.registered(f"{executor}.{name}").enqueue(*args).id)
    workers.start("--no-watchdog", settings=SETTINGS, env={"PULSE_LISTEN": "1"})
    for executor in handlers.EXECUTORS:
        stopping = [jobs[executor, "is_cancelled"], jobs[executor, "loses_its_lease"]]
        wait_until(lambda ids=stopping: all(workers.trace.of(one, "works") for one in ids))  # type: ignore[misc]
    progress = _progress_while_running(jobs)
    api.cancel(*(jobs[executor, "is_cancelled"] for executor in handlers.EXECUTORS))
    api.release(*(jobs[executor, "loses_its_lease"] for executor in handlers.EXECUTORS))
    wait_until(lambda: Job.objects.filter(status__in=[status.value for status in TERMINAL]).count() == len(jobs))
    late = [jobs["thread", "takes_too_long"], jobs["thread", "stalls"]]
    wait_until(lambda: all(workers.trace.of(one, "left") for one in late))
    late += [jobs[executor, "raises_after_completion"] for executor in handlers.EXECUTORS]
    wait_until(lambda: Attempt.objects.filter(job_id__in=late).exclude(late_outcome="").count() == len(late))
    return {
        key: Story(
            Job.objects.get(pk=pk),
            list(Attempt.objects.filter(job_id=pk).exclude(outcome=OutcomeName.RELEASED).order_by("number")),
            progress.get(key[0]),
            workers.trace,
        )
        for key, pk in jobs.items()
    }


def _progress_while_running(jobs: dict[tuple[str, str], int]) -> dict[str, Any]:
    showing = {executor: jobs[executor, "is_cancelled"] for executor in handlers.EXECUTORS}
    seen: dict[str, Any] = {}

    def look() -> bool:
        for executor, pk in showing.items():
            job = Job.objects.get(pk=pk)
            if job.status == Status.RUNNING and job.progress is not None:
                seen[executor] = job.progress
        return len(seen) == len(showing)

    wait_until(look, lambda: f"progress was seen of {sorted(seen)} only")
    return seen


def of_each_executor(test: Callable[[Stories, str], None]) -> Callable[[Stories], None]:
    """Ask the same of each executor, and show all faults together."""

    def asked(stories: Stories) -> None:
        with all_faults() as about:
            for executor in handlers.EXECUTORS:
                with about(executor):
                    test(stories, executor)

    return asked


@of_each_executor
def test_what_is_raised_after_the_completion_is_kept_and_signalled(stories: Stories, executor: str) -> None:
    story = stories[executor, "raises_after_completion"]
    assert (story.job.status, story.job.last_error, story.outcomes) == (Status.COMPLETED, "", ["SUCCEEDED"])
    [attempt] = story.attempts
    assert (attempt.late_outcome, attempt.error_class, attempt.message) == (
        "FAILED",
        "builtins.ValueError",
        "too late",
    )
    assert "in raises_after_completion" in attempt.traceback
    wait_until(lambda story=story: story.traces("error_after_completion"))
    assert len(story.traces("error_after_completion")) == 1


@of_each_executor
def test_a_result_is_stored(stories: Stories, executor: str) -> None:
    story = stories[executor, "succeeds"]
    assert (story.job.status, story.job.result, story.outcomes) == (
        Status.COMPLETED,
        {"answer": 42},
        ["SUCCEEDED"],
    )
    assert len(story.traces("ran")) == 1


@each_of(*product(handlers.EXECUTORS, RAISED))
def test_whatever_a_handler_raises_is_a_failure_with_its_traceback(
    stories: Stories, *, executor: Any, kind: Any
) -> None:
    story = stories[executor, f"raises {kind}"]
    [attempt] = story.attempts
    assert (story.job.status, story.job.last_error) == (
        Status.DEAD_LETTERED,
        f"{kind}: no [handlers.py:raises]",
    )
    assert (attempt.outcome, attempt.error_class) == ("FAILED", f"builtins.{kind}")
    assert attempt.message == "no"
    assert "in raises" in attempt.traceback
    assert f"{kind}: no" in attempt.traceback


@of_each_executor
def test_an_error_or_a_result_that_cannot_be_told_is_a_failure(stories: Stories, executor: str) -> None:
    [attempt] = stories[executor, "raises_what_cannot_be_told"].attempts
    assert attempt.outcome == "FAILED"
    assert "str() raised RuntimeError" in attempt.message
    [attempt] = stories[executor, "raises_what_no_column_takes"].attempts
    assert attempt.outcome == "FAILED"
    assert (attempt.message[0], attempt.message[-1]) == ("a", "c"), "it is kept as far as possible"
    [attempt] = stories[executor, "recurses"].attempts
    assert (attempt.outcome, attempt.error_class) == ("FAILED", "builtins.RecursionError")
    story = stories[executor, "returns_a_set"]
    assert (story.job.status, story.outcomes) == (Status.DEAD_LETTERED, ["FAILED"])
    assert "set" in story.job.last_error


@of_each_executor
def test_a_handler_that_says_what_becomes_of_its_job_is_asked_before_its_policy(
    stories: Stories, executor: str
) -> None:
    story = stories[executor, "snoozes"]  # it has one attempt only
    assert (story.job.status, story.job.result) == (Status.COMPLETED, "awake")
    assert story.outcomes == ["SNOOZED", "SUCCEEDED"]
    assert story.job.attempts - story.job.refunds == 1
    story = stories[executor, "retries_later"]
    assert (story.job.status, story.outcomes) == (Status.DEAD_LETTERED, ["FAILED", "FAILED"])
    assert story.job.last_error.startswith("RetryLater: busy")
    story = stories[executor, "discards"]
    assert (story.job.status, story.job.cancel_reason) == (Status.CANCELLED, "nobody wants it")
    assert story.outcomes == ["DISCARDED"]


@of_each_executor
def test_progress_is_seen_while_the_handler_runs_and_by_the_next_attempt(stories: Stories, executor: str) -> None:
    assert stories[executor, "is_cancelled"].seen_running == {"done": 3, "total": 4}
    story = stories[executor, "resumes"]
    assert story.outcomes == ["FAILED", "SUCCEEDED"]
    assert story.job.result == {"done": 1, "total": 2, "page": "x"}


@of_each_executor
def test_the_context_says_which_run_this_is(stories: Stories, executor: str) -> None:
    story = stories[executor, "tells_its_context"]
    [attempt] = story.attempts
    said = dict(story.job.result)
    assert 0 < said.pop("remaining") <= SETTINGS["LEASE_TTL"]
    assert said == {"job_id": story.job.pk, "attempt": attempt.number, "token": attempt.token, "last": True}


def expect_to_be_stopped(stories: Stories, executor: str, question: str, outcome: str) -> None:
    story = stories[executor, question]
    [attempt] = story.attempts
    assert (story.job.status, attempt.outcome) == (Status.DEAD_LETTERED, outcome)
    assert attempt.traceback.startswith("Stack of the handler when it was given up (most recent call last):\n")
    places = re.findall(r'^  File "(.+)", line \d+, in (\w+)$', attempt.traceback, re.MULTILINE)
    assert places[0][0].endswith("handlers.py"), "what calls the handler is not shown"
    assert question in [name for _, name in places]
    assert "_sleeps_through" in [name for _, name in places]
    assert "nap(5.0)" in attempt.traceback, "the line of code is shown"
    took = (attempt.finished_at - attempt.started_at).total_seconds()
    assert 1.4 < took < 4.0, "neither before its time, nor only when the handler came back after 5 s"
    [begun] = story.traces("asleep")
    if executor == "thread":
        assert story.traces("slept on"), "nothing can stop a thread"
        assert attempt.late_outcome == "SUCCEEDED", "what it reported in the end is kept as evidence"
        assert story.job.result is None
    else:
        assert story.traces("slept on") == []
        assert attempt.late_outcome == ""
    if executor == "loop":
        [left] = story.traces("left")
        assert left["at"] - begun["at"] < 4.0, "it is cancelled where it awaits, and may clean up"
    if executor == "process":
        assert story.traces("left") == [], "it is killed"
        assert not is_alive(begun["pid"])


def test_a_handler_that_exceeds_a_limit_is_settled_about_when_due(stories: Stories) -> None:
    with all_faults() as about:
        for executor, (question, outcome) in product(
            handlers.EXECUTORS, [("takes_too_long", "TIMED_OUT"), ("stalls", "STALLED")]
        ):
            with about((executor, question, outcome)):
                expect_to_be_stopped(stories, executor, question, outcome)


@of_each_executor
def test_a_handler_that_asks_is_told_of_its_deadline(stories: Stories, executor: str) -> None:
    story = stories[executor, "is_told_of_its_deadline"]
    assert story.outcomes == ["TIMED_OUT"]
    assert story.attempts[0].late_outcome == "", "one report, not two"
    expected = {"thread": ["DeadlinePassed"], "loop": ["CancelledError"], "process": []}[executor]
    told = [line["by"] for line in story.traces("told")]
    assert told == expected or (executor == "loop" and told == ["DeadlinePassed"])


@of_each_executor
def test_a_cancelled_job_stops_its_handler(stories: Stories, executor: str) -> None:
    story = stories[executor, "is_cancelled"]
    assert (story.job.status, story.outcomes) == (Status.CANCELLED, ["CANCELLED"])
    [told] = story.traces("told")  # also in a process: it may clean up before it is killed
    assert told["by"] in ("JobCancelled", "CancelledError")


@of_each_executor
def test_a_handler_whose_lease_is_lost_is_stopped_and_nothing_of_it_counts(stories: Stories, executor: str) -> None:
    story = stories[executor, "loses_its_lease"]
    assert story.outcomes == ["WORKER_LOST", "SUCCEEDED"]
    assert (story.job.status, story.job.result) == (Status.COMPLETED, "attempt 2")
    [works] = story.traces("works")
    if executor == "process":
        assert not is_alive(works["pid"])
        assert works["pid"] != os.getpid()
    else:
        [told] = story.traces("told")
        assert told["by"] in ("LeaseLost", "CancelledError")
        assert told["at"] - works["at"] < 2 * SETTINGS["LEASE_TTL"]


@of_each_executor
def test_middleware_stands_around_every_handler(stories: Stories, executor: str) -> None:
    for question in QUESTIONS:
        story = stories[executor, question]
        entered, left = len(story.traces("enter")), len(story.traces("leave"))
        if executor == "process" and question in KILLED:
            assert (entered, left) == (len(story.attempts), len(story.attempts) - 1), question
        else:
            assert entered == left == len(story.attempts), question


@of_each_executor
def test_signals_are_sent_though_their_receivers_raise(stories: Stories, executor: str) -> None:
    good, bad, late = (stories[executor, question] for question in ("succeeds", "raises ValueError", "takes_too_long"))
    for story, ended_as in ((good, "COMPLETED"), (bad, "DEAD_LETTERED"), (late, "DEAD_LETTERED")):
        for name in ("job_started", "task_started", "job_finished", "task_finished"):
            assert len(story.traces(name)) == 1, name
        assert story.traces("job_finished")[0]["status"] == ended_as
    assert [len(story.traces("job_failed")) for story in (good, bad, late)] == [0, 1, 1]
    assert [len(story.traces("job_dead_lettered")) for story in (good, bad, late)] == [0, 1, 1]
    assert good.traces("task_finished")[0]["status"] == "SUCCESSFUL"
    assert bad.traces("task_finished")[0]["status"] == "FAILED"


def test_where_a_handler_runs_is_what_its_task_asks_for(stories: Stories) -> None:
    pids = {executor: {stories[executor, question].traces("enter")[0]["pid"] for question in QUESTIONS}
            for executor in handlers.EXECUTORS}  # fmt: skip
    assert pids["thread"] == pids["loop"]
    assert len(pids["thread"]) == 1
    assert len(pids["process"]) == len(QUESTIONS), "each has a process of its own"
    assert pids["process"].isdisjoint(pids["thread"])
