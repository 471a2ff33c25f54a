"""Tasks with chunks: what is refused, what a handler gets, and how each job ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from pulse_django import (
    Chunk,
    ChunkItem,
    Context,
    Discard,
    Limit,
    RateLimited,
    Schedule,
    Snooze,
    Unique,
    amend,
    cancel,
    enqueue_many,
    signals,
    task,
)
from pulse_django.chunks.perform import FOR_ANOTHER
from pulse_django.encryption.values import shown
from pulse_django.exceptions import InvalidJob, InvalidSchedule, WrongArguments
from pulse_django.models import Attempt, Job, Limiter, Pause
from pulse_django.queue.words.bounds import MAX_TASK_NAME
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import MAX_LANE_KEY, key_of, lane_key, lane_of_chunks, limiter_of
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import OutcomeName, Stalled, TimedOut
from pulse_django.queue.words.retry_policies import Backoff, retry_unless
from pulse_django.queue.words.states import Status
from pulse_django.run.execute import perform
from pulse_django.run.registry import BaseTaskBackend, InvalidTask
from pulse_django.run.run import LOSSES_UNTIL_ALONE, ChunkRun, Run
from pulse_django.schedules.declarations import check_call, forget
from pulse_django.signals import job_started
from pulse_django.tasks import PulseTask
from pulse_django.testing import assert_idempotent, drain, jump_to_next_run, run_job, run_schedules
from pulse_django.testing.drain import reported
from tests.database import on_empty_tables
from tests.faults import each_of

pytestmark = pytest.mark.usefixtures("pulse_db")

MINUTE = timedelta(minutes=1)
calls: list[Any] = []  # what each call of a handler has seen


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


class Odd(Exception):
    pass


@task(name="chunks.index", chunk=10)
def index(chunk: Chunk) -> None:
    calls.append([job.kwargs for job in chunk])


HOW: dict[str, Callable[[ChunkItem], None]] = {
    "succeeds": lambda job: job.succeed({"was": job.kwargs["n"]}),
    "fails": lambda job: job.fail(Odd(f"no {job.kwargs['n']}")),
    "snoozes": lambda job: job.fail(Snooze(MINUTE)),
    "discards": lambda job: job.fail(Discard("not wanted")),
    "returns a set": lambda job: job.succeed({1, 2}),
    "is left": lambda job: None,
    "raises": lambda job: (_ for _ in ()).throw(Odd("all of you")),
}


# A retry must not be due while the test still runs, also on a slow machine.
MUCH_LATER = retry_unless(backoff=Backoff(unit=timedelta(hours=1)))


@task(name="chunks.each", chunk=10, max_attempts=2, retry=MUCH_LATER)
def each(chunk: Chunk) -> None:
    calls.append([job.job_id for job in chunk])
    for job in chunk:
        HOW[job.kwargs["how"]](job)


@task(name="chunks.each_async", chunk=10, max_attempts=2, retry=MUCH_LATER)
async def each_async(chunk: Chunk) -> None:
    await asyncio.sleep(0)
    calls.append([(job.job_id, job.context.attempt) for job in chunk])
    for job in chunk:
        HOW[job.kwargs["how"]](job)


def enqueue(which: Any, *hows: str) -> list[int]:
    return [int(which.enqueue(n=n, how=how).id) for n, how in enumerate(hows)]


def statuses(ids: list[int]) -> list[str]:
    found = dict(Job.objects.values_list("pk", "status"))
    return [found[pk] for pk in ids]


def outcomes(ids: list[int]) -> list[str]:
    found = dict(Attempt.objects.order_by("number").values_list("job_id", "outcome"))
    return [found[pk] for pk in ids]


# What is declared


def nothing(chunk: Chunk) -> None: ...


def takes_none() -> None: ...


def takes_two(chunk: Chunk, other: int) -> None: ...


REFUSED: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (nothing, {"chunk": 1}, "chunk: 1 is not within 2 to 1,?000"),
    (nothing, {"chunk": 1001}, "chunk: 1001 is not within"),
    (nothing, {"chunk_wait": MINUTE}, "chunk_wait: give chunk, too"),
    (nothing, {"chunk": 2, "chunk_wait": 2 * MINUTE}, "chunk_wait: 0:02:00 is longer than 0:01:00"),
    (nothing, {"chunk": 2, "chunk_wait": -MINUTE}, "chunk_wait: .* must be positive"),
    (nothing, {"chunk": 2, "takes_context": True}, "omit takes_context"),
    (nothing, {"chunk": 2, "weight": 2}, "omit weight"),
    (nothing, {"chunk": 2, "atomic": True}, r"Use the context\.atomic\(\) of each job"),
    (nothing, {"chunk": 2, "isolation": "process"}, "a process for one job"),
    (nothing, {"chunk": 2, "chunk_wait": MINUTE, "timeout": MINUTE}, "is not shorter than timeout"),
    (nothing, {"chunk": 2, "chunk_wait": MINUTE, "progress_timeout": MINUTE}, "is not shorter than progress_timeout"),
    (takes_none, {"chunk": 2}, r"takes_none\(\) must take one argument, the chunk"),
    (takes_two, {"chunk": 2}, r"takes_two\(\) must take one argument, the chunk"),
]


@each_of(*REFUSED)
def test_what_does_not_go_with_chunks_is_refused_where_it_is_declared(
    *, function: Any, options: Any, message: Any
) -> None:
    with pytest.raises(InvalidTask, match=message):
        PulseTask(func=function, name="chunks.refused", **options)


def test_a_call_may_not_shorten_the_time_limit_to_that_of_gathering() -> None:
    made: PulseTask[..., Any] = PulseTask(func=nothing, name="chunks.gathers", chunk=2, chunk_wait=timedelta(seconds=5))
    assert made.using(timeout=MINUTE).timeout == MINUTE
    with pytest.raises(InvalidTask, match="is not shorter than timeout"):
        made.using(timeout=timedelta(seconds=5))


# What is enqueued

BY_ORDER = Unique(by=("order",))


def test_jobs_are_enqueued_one_at_a_time_and_by_name_only() -> None:
    index.enqueue(document_id=5)
    enqueue_many(index, [{"document_id": 6}, {"anything": [1]}])
    assert [job.kwargs for job in Job.objects.order_by("pk")] == [
        {"document_id": 5},
        {"document_id": 6},
        {"anything": [1]},
    ]
    with pytest.raises(WrongArguments, match="index has chunks and takes only keyword arguments"):
        index.enqueue(5)
    with pytest.raises(WrongArguments, match="only keyword arguments"):
        enqueue_many(index, [[5]])
    drain()
    assert calls == [[{"document_id": 5}, {"document_id": 6}, {"anything": [1]}]]


@task(
    name="chunks.keyed",
    chunk=10,
    limit=Limit(max_running_per_key=2),
    limit_key="customer",
    unique=BY_ORDER,
    sensitive=("pin",),
)
def keyed(chunk: Chunk) -> None: ...


@task(name="chunks.shared", chunk=10, fair_by=("customer", "region"))
def shared(chunk: Chunk) -> None: ...


def test_key_share_unique_and_masked_name_arguments_of_the_call() -> None:
    keyed.enqueue(customer=7, order=1, pin="1234")
    assert keyed.enqueue(customer=8, order=1, pin="1234").id == str(Job.objects.get().pk)
    job = Job.objects.get()
    assert limiter_of(job.lane_key) == "chunks.keyed"
    seen = shown(job.task, job.args, job.kwargs, job.sensitive)
    assert seen == ([], {"customer": 7, "order": 1, "pin": "••••"})
    with pytest.raises(InvalidJob, match="cannot tell which argument is 'order'"):
        keyed.enqueue(customer=7)
    shared.enqueue(customer=7, region="eu")
    assert key_of(Job.objects.get(task="chunks.shared").lane_key) == '[7,"eu"]'


def test_a_task_without_limit_and_share_has_a_lane_of_its_own() -> None:
    index.enqueue(n=1)
    enqueue_many(index, [{"n": 2}])
    assert set(Job.objects.values_list("lane_key", flat=True)) == {":chunk=chunks.index"}
    assert key_of(":chunk=chunks.index") == key_of("queue=mail:chunk=chunks.index") == "chunk=chunks.index"
    assert lane_key("", "chunk=chunks.index") != lane_of_chunks("chunks.index"), "a share cannot look like it"
    long = lane_of_chunks("t" * MAX_TASK_NAME)
    assert len(f"{'q' * 100}{long}") <= MAX_LANE_KEY


@override_settings(PULSE={"QUEUE_LIMITS": {"default": {"max_running": 3}}})
def test_the_limit_of_a_queue_holds_for_chunks() -> None:
    index.enqueue(n=1)
    assert Job.objects.get().lane_key == "queue=default"


def test_jobs_can_be_amended() -> None:
    job = index.enqueue(document_id=5)
    assert amend(job.id, kwargs={"document_id": 6})
    with pytest.raises(WrongArguments, match="only keyword arguments"):
        amend(job.id, args=[5])
    drain()
    assert calls == [[{"document_id": 6}]]


# How each job ends


def test_jobs_have_succeeded_when_the_handler_returns() -> None:
    ids = [int(index.enqueue(n=n).id) for n in range(25)]
    ran = drain()
    assert [len(one) for one in calls] == [10, 10, 5]
    assert [one.job_id for one in ran] == ids
    assert set(statuses(ids)) == {Status.COMPLETED}
    assert set(Attempt.objects.values_list("number", "outcome")) == {(1, OutcomeName.SUCCEEDED)}


MIXED = ("succeeds", "fails", "snoozes", "discards", "is left", "returns a set")
MIXED_ENDS = ("COMPLETED", "RETRYING", "PENDING", "CANCELLED", "COMPLETED", "DEAD_LETTERED")


@pytest.mark.parametrize("which", [each, each_async], ids=["sync", "async"])
def test_each_job_ends_as_the_handler_says_and_what_it_raises_fails_the_others(which: Any) -> None:
    ids = enqueue(which, *MIXED)
    drain(failures="keep")
    assert statuses(ids) == list(MIXED_ENDS)
    assert len(calls) == 1
    failed = Job.objects.get(pk=ids[1])
    assert failed.last_error == "Odd: no 1"
    assert which.get_result(str(ids[0])).return_value == {"was": 0}
    assert which.get_result(str(ids[4])).return_value is None
    assert Job.objects.get(pk=ids[3]).cancel_reason == "not wanted"
    ids = enqueue(which, "succeeds", "discards", "raises", "is left")
    drain(failures="keep")
    assert statuses(ids) == ["COMPLETED", "CANCELLED", "RETRYING", "RETRYING"]
    assert set(Attempt.objects.filter(job_id__in=ids[2:]).values_list("message", flat=True)) == {"all of you"}


def test_retries_have_their_own_attempts_and_backoffs() -> None:
    ids = enqueue(each, "fails", "succeeds")
    drain(failures="keep")
    jump_to_next_run(ids[0])
    [third] = enqueue(each, "fails")
    drain(failures="keep")
    assert calls == [ids, [ids[0], third]] or calls == [ids, [third, ids[0]]]
    assert statuses([*ids, third]) == ["DEAD_LETTERED", "COMPLETED", "RETRYING"]
    assert list(Attempt.objects.filter(job_id=ids[0]).order_by("number").values_list("number", flat=True)) == [1, 2]


@task(name="chunks.twice", chunk=10)
def twice(chunk: Chunk) -> None:
    first, second = chunk
    first.succeed(1)
    with pytest.raises(RuntimeError, match="is already decided"):
        first.fail(Odd())
    with pytest.raises(TypeError, match=r"fail\(\) takes an exception, not type"):
        second.fail(Odd)  # type: ignore[arg-type]  # that is the point
    calls.append(list(chunk))


def test_a_job_is_decided_once() -> None:
    ids = [int(twice.enqueue(n=n).id) for n in range(2)]
    drain()
    assert statuses(ids) == ["COMPLETED", "COMPLETED"]
    with pytest.raises(RuntimeError, match="is already decided"):
        calls[0][1].fail(Odd())


@task(name="chunks.one_by_one", chunk=10)
def one_by_one(chunk: Chunk) -> None:
    chunk[0].succeed()
    chunk[1].fail(Odd())
    calls.append("went on")


def test_what_is_decided_is_told_before_the_handler_is_over() -> None:
    ids = [int(one_by_one.enqueue(n=n).id) for n in range(3)]
    runs = [Run(claim) for claim in Job.objects.claim_these(Identity("w"), ids)]
    performed = perform(ChunkRun(runs, lambda run, _: calls.append(run.claim.job_id)))
    assert calls == [ids[0], ids[1], "went on", ids[2]]
    assert performed.members == []


def test_what_cannot_be_read_fails_alone() -> None:
    ids = [int(index.enqueue(n=n).id) for n in range(2)]
    by_position = Job.objects.enqueue_many([NewJob(task="chunks.index", args=[5])])[0]
    drain(failures="keep")
    assert calls == [[{"n": 0}, {"n": 1}]]
    assert statuses([*ids, by_position]) == ["COMPLETED", "COMPLETED", "DEAD_LETTERED"]
    assert "takes only keyword arguments" in Job.objects.get(pk=by_position).last_error


@task(name="chunks.sees", chunk=10)
def sees(chunk: Chunk) -> None:
    for job in chunk:
        context: Context = job.context
        context.progress(job.kwargs["n"], 10)
        calls.append((context.job_id, context.attempt, context.is_last_attempt, context.checkpoint, job.attempt))
        context.check()


def test_each_job_has_its_own_context_and_progress() -> None:
    ids = [int(sees.enqueue(n=n).id) for n in range(3)]
    drain()
    assert calls == [(pk, 1, False, None, 1) for pk in ids]
    progress = Job.objects.order_by("pk").values_list("progress", flat=True)
    assert list(progress) == [{"done": n, "total": 10} for n in range(3)]


@task(name="chunks.atomically", chunk=10)
def atomically(chunk: Chunk) -> None:
    for job in chunk:
        try:
            with job.context.atomic() as completion:
                each.enqueue(n=job.kwargs["n"], how="succeeds")
                completion.result = job.kwargs["n"]
                if job.kwargs["n"] == 1:
                    raise Odd
        except Odd as error:
            job.fail(error)
        else:
            with pytest.raises(RuntimeError, match="is already decided"):
                job.succeed()


def test_each_job_may_complete_in_a_transaction_of_its_own() -> None:
    ids = [int(atomically.enqueue(n=n).id) for n in range(3)]
    run_chunk(ids)
    assert statuses(ids) == ["COMPLETED", "RETRYING", "COMPLETED"]
    assert [Job.objects.get(pk=pk).result for pk in ids] == [0, None, 2]
    enqueued = Job.objects.filter(task="chunks.each")
    assert sorted(job.kwargs["n"] for job in enqueued) == [0, 2]
    assert {job.parent_id for job in enqueued} == {None}, "it is not known which job they belong to"


def run_chunk(ids: list[int], before: Callable[[list[Run]], object] = lambda _: None) -> list[Run]:
    """Run these jobs as one chunk, after something has happened to their runs."""
    runs = [Run(claim) for claim in Job.objects.claim_these(Identity("w"), ids)]
    before(runs)
    for performed in perform(ChunkRun(runs)).members:
        reported(performed)
    return runs


# Jobs that are asked to stop


@task(name="chunks.checks", chunk=10)
def checks(chunk: Chunk) -> None:
    for job in chunk:
        try:
            job.context.check()
        except BaseException as error:
            job.fail(error)
    calls.append(len(chunk))


@task(name="chunks.stops", chunk=10)
def stops(chunk: Chunk) -> None:
    for job in chunk:
        job.context.check()
        if job.kwargs["n"] == 0:
            job.succeed()


def asked(what: str, at: int = 1) -> Callable[[list[Run]], None]:
    def ask(runs: list[Run]) -> None:
        run = runs[at]
        if what == "cancelled":
            cancel(run.claim.job_id)
            run.cancelled = True
        elif what == "lost":
            Job.objects.release([run.claim.lease])
            run.lost = True
        else:
            run.verdict = TimedOut() if what == "timed out" else Stalled()

    return ask


STOPPED = [
    ("cancelled", "CANCELLED", "CANCELLED"),
    ("lost", "PENDING", "RELEASED"),
    ("timed out", "RETRYING", "TIMED_OUT"),
    ("stalled", "RETRYING", "STALLED"),
]


@each_of(*STOPPED, around=on_empty_tables)
def test_the_handler_goes_on_with_the_others(*, what: Any, status: Any, outcome: Any) -> None:
    calls.clear()
    ids = [int(checks.enqueue(n=n).id) for n in range(3)]
    run_chunk(ids, asked(what))
    assert calls == [3]
    assert statuses(ids) == ["COMPLETED", status, "COMPLETED"]
    assert outcomes(ids)[1] == outcome


@each_of(*STOPPED, around=on_empty_tables)
def test_a_handler_that_stops_for_one_job_hands_the_others_back(*, what: Any, status: Any, outcome: Any) -> None:
    ids = [int(stops.enqueue(n=n).id) for n in range(3)]
    run_chunk(ids, asked(what))
    assert statuses(ids) == ["COMPLETED", status, "PENDING"]
    assert outcomes(ids) == ["SUCCEEDED", outcome, "RELEASED"]
    other = Job.objects.get(pk=ids[2])
    assert (other.attempts, other.refunds, other.last_error) == (1, 1, FOR_ANOTHER.reason)


def test_a_lost_job_changes_nothing_whatever_the_handler_says() -> None:
    ids = enqueue(each, "succeeds", "succeeds", "is left")

    def lose(runs: list[Run]) -> None:
        Job.objects.release([runs[1].claim.lease, runs[2].claim.lease])

    run_chunk(ids, lose)
    assert statuses(ids) == ["COMPLETED", "PENDING", "PENDING"]
    assert set(Attempt.objects.filter(job_id__in=ids[1:]).values_list("late_outcome", flat=True)) == {"SUCCEEDED"}


# Limits


LIMIT = Limit("chunks.api", max_running=20, breaker=None)


@task(name="chunks.limited", chunk=10, limit=LIMIT, limit_key="customer")
def limited(chunk: Chunk) -> None:
    if chunk[0].kwargs.get("raises"):
        raise RateLimited(MINUTE, "quota", only_key=chunk[0].kwargs["raises"] == "key")
    for job in chunk:
        job.fail(RateLimited(MINUTE, "quota", only_key=True))


def test_a_limit_is_told_once_of_what_the_handler_raises() -> None:
    Limiter.objects.declare_new("tests", {"chunks.api": LIMIT.numbers()})
    ids = [int(limited.enqueue(customer=n, raises="limit").id) for n in range(3)]
    seen: list[Any] = []
    original = type(Limiter.objects).pause
    type(Limiter.objects).pause = lambda self, *args, **kwargs: seen.append(args) or original(self, *args, **kwargs)  # type: ignore[method-assign,assignment,func-returns-value]
    try:
        drain()
    finally:
        type(Limiter.objects).pause = original  # type: ignore[method-assign]
    assert seen == [("chunks.api",)]
    assert set(statuses(ids)) == {Status.PENDING}
    assert Limiter.objects.get(name="chunks.api").paused_until is not None


@pytest.mark.parametrize("raises", ["key", None])
def test_each_key_is_paused(raises: str | None) -> None:
    for n in range(3):
        limited.enqueue(customer=n, raises=raises)
    drain()
    assert Pause.objects.count() == 3


def test_a_task_with_chunks_can_be_paused_by_hand() -> None:
    index.enqueue(n=1)
    share = key_of(Job.objects.get().lane_key)
    call_command("pulse_pause", "--fair-key", share, "--reason", "maintenance", stdout=StringIO())
    assert Pause.objects.get().lane_key == Job.objects.get().lane_key
    call_command("pulse_resume", "--fair-key", share, stdout=StringIO())
    assert not Pause.objects.exists()


# What else sees a chunk


@contextmanager
def around(context: Any) -> Iterator[None]:
    calls.append(("around", len(context), context.task.registered_name))
    yield
    calls.append("left")


@override_settings(PULSE={"MIDDLEWARE": [f"{__name__}.around"]})
def test_middleware_wraps_the_call_once_and_gets_the_chunk() -> None:
    enqueue(each, "succeeds", "succeeds")
    drain()
    assert calls == [("around", 2, "chunks.each"), calls[1], "left"]


def test_signals_are_sent_for_each_job() -> None:
    heard: list[tuple[str, int]] = []

    def started(sender: Any, claim: Any, **_: Any) -> None:
        heard.append(("started", claim.job_id))

    def finished(sender: Any, ending: Any, **_: Any) -> None:
        heard.append(("finished", ending.job_id))

    ids = enqueue(each, "succeeds", "discards")
    job_started.connect(started)
    signals.job_finished.connect(finished)
    try:
        drain()
    finally:
        job_started.disconnect(started)
        signals.job_finished.disconnect(finished)
    assert heard == [("started", pk) for pk in ids] + [("finished", pk) for pk in ids]


def test_a_job_that_has_lost_two_workers_is_alone_in_its_chunk() -> None:
    ids = enqueue(each, "succeeds", "succeeds", "succeeds")
    Job.objects.filter(pk=ids[1]).update(losses=LOSSES_UNTIL_ALONE, attempts=LOSSES_UNTIL_ALONE, max_attempts=9)
    drain()
    assert sorted(calls) == sorted([[ids[0], ids[2]], [ids[1]]])


def test_a_single_job_is_a_chunk_of_one() -> None:
    """In a rehearsal of a crash, too."""
    job = index.enqueue(n=1)
    assert run_job(job).status == Status.COMPLETED
    assert calls == [[{"n": 1}]]
    assert_idempotent(each, n=1, how="succeeds")


def test_a_schedule_enqueues_jobs_of_chunks() -> None:
    Schedule("chunks.minutely", every=MINUTE, task=index, kwargs={"n": 1})
    try:
        fired = run_schedules(until=timedelta(minutes=3), names=("chunks.minutely",))
    finally:
        forget("chunks.minutely")
    drain()
    assert [kwargs for call in calls for kwargs in call] == [{"n": 1}] * len(fired)
    with pytest.raises(InvalidSchedule, match="only keyword arguments"):
        check_call(Schedule("chunks.refused", every=MINUTE, task=index, args=[1]).definition)
    forget("chunks.refused")


# Without a job


def test_a_direct_call_takes_a_chunk_of_one() -> None:
    assert each_alone("succeeds") == {"was": 1}
    with pytest.raises(Odd, match="no 1"):
        each_alone("fails")
    with pytest.raises(Odd, match="all of you"):
        each_alone("raises")
    with pytest.raises(WrongArguments, match="only keyword arguments"):
        without_job.call(1)
    assert asyncio.run(without_job.acall(how="succeeds", n=2)) == {"was": 2}


@task(name="chunks.without_job", chunk=10)
def without_job(chunk: Chunk) -> None:
    [job] = chunk
    with pytest.raises(RuntimeError, match="called without a job"):
        job.context  # noqa: B018 - to read it is the point
    with pytest.raises(RuntimeError, match="called without a job"):
        job.job_id  # noqa: B018
    HOW[job.kwargs["how"]](job)


def each_alone(how: str) -> Any:
    return without_job.call(how=how, n=1)


IMMEDIATE = f"{BaseTaskBackend.__module__.removesuffix('.base')}.immediate.ImmediateBackend"


@override_settings(TASKS={"default": {"BACKEND": IMMEDIATE}})
def test_djangos_immediate_backend_runs_chunks_of_one() -> None:
    assert without_job.enqueue(how="succeeds", n=3).return_value == {"was": 3}
