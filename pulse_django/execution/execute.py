"""From a claim to a report: find the task, call its handler, and report the outcome and the decision."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.db import Error

from pulse_django import conf
from pulse_django.exceptions import (
    CannotBeCalled,
    CannotDecrypt,
    DeadlinePassed,
    JobCancelled,
    LeaseLost,
    RateLimited,
    WrongArguments,
)
from pulse_django.models import Job
from pulse_django.signals import job_started, send
from pulse_django.store.capability import AfterRun, assembled, installed
from pulse_django.words import traces
from pulse_django.words.decisions import DeadLetter
from pulse_django.words.display import without
from pulse_django.words.outcomes import CANNOT_DECRYPT, GIVEN_UP, UNKNOWN_TASK, Failed, Released
from pulse_django.words.payloads import ErrorReport
from pulse_django.words.verb_results import Report

from . import django_log
from .calls import checked
from .chunks import Chunk, ChunkItem, call_handler
from .context import Context
from .django_log import Receivers, receivers_of
from .judging import Performed, judged, judged_error, judged_value, outcome_of_stopped, report_of
from .middleware import surrounded
from .registry import Registry, Task, TaskResultStatus, chunk_of, is_plain, registry, sender_of, task_started
from .results import result_of_run
from .run import ChunkRun, Run, end_if_forked, running

_NOTHING_AROUND: AbstractContextManager[None] = nullcontext()


def perform(run: Run, tasks: Registry = registry) -> Performed:
    """Call the handler of a claimed job. Whatever it does ends as a report."""
    task = tasks.get(run.claim.task)
    if isinstance(run, ChunkRun):
        return perform_chunk(run, task)
    if task is None:
        return put_back(run)
    if chunk_of(task):
        return perform_chunk(ChunkRun([run]), task).members[0]
    try:
        call = prepared(run, task)
    except BaseException as error:
        return unprepared(run, task, error)
    context = call.context
    try:
        with running(run), traces.running(run.claim):
            value = _surrounded(task, call) if conf.current().middleware else _invoke(task, call)
    except BaseException as error:  # SystemExit too: what a handler raises ends its run, and nothing else
        return judged_error(run, task, context, _failed(run, task, error))
    if run.claim.is_probe:
        _succeeded(run)
    return judged_value(run, task, context, value)


async def perform_async(run: Run, task: Task) -> Performed:
    """Await the handler of a claimed job on the loop that is running."""
    if isinstance(run, ChunkRun):
        return await perform_chunk_async(run, task)
    if chunk_of(task):
        return (await perform_chunk_async(ChunkRun([run]), task)).members[0]
    try:
        # A repeated run reads its history, and no loop may wait for a database.
        call = prepared(run, task) if run.claim.attempt == 1 else await sync_to_async(prepared)(run, task)
    except BaseException as error:
        return unprepared(run, task, error)
    context, pid = call.context, os.getpid()
    try:
        around = surrounded(context) if conf.current().middleware else _NOTHING_AROUND
        with running(run), traces.running(run.claim), around:
            try:
                value = await task.func(*call.args, **call.kwargs)
            finally:
                end_if_forked(pid)
    except BaseException as error:
        return judged_error(run, task, context, await _afailed(run, task, error))
    if run.claim.is_probe:
        await sync_to_async(_succeeded)(run)
    return judged_value(run, task, context, value)


# Hooks of capabilities after a handler has raised or returned, before its run is judged.


def _failed(run: Run, task: Task, error: BaseException) -> BaseException:
    """Return the error that the run ends with."""
    for after_run in _after_runs():
        error = after_run.failed(run, task, error)
    return error


async def _afailed(run: Run, task: Task, error: BaseException) -> BaseException:
    return await sync_to_async(_failed)(run, task, error) if _is_concerned(run, task, error) else error


def _is_concerned(run: Run, task: Task, error: BaseException) -> bool:
    return any(after_run.concerns(run, task, error) for after_run in _after_runs())


def _succeeded(run: Run) -> None:
    for after_run in _after_runs():
        after_run.succeeded(run)


@assembled
def _after_runs() -> list[AfterRun]:
    return [one.after_run for one in installed() if one.after_run is not None]


def _surrounded(task: Task, call: Call) -> Any:
    with surrounded(call.context):
        return _invoke(task, call)


def _invoke(task: Task, call: Call) -> Any:
    if not getattr(task, "atomic", False) or call.context is None:
        return _called(task, call)
    with call.context.atomic() as completion:
        completion.result = _called(task, call)
    return completion.result


def _called(task: Task, call: Call) -> Any:
    pid = os.getpid()
    try:
        if is_plain(task):
            return task.func(*call.args, **call.kwargs)
        return task.call(*call.args, **call.kwargs)
    finally:
        end_if_forked(pid)


# What happens before a handler is called: its arguments are read, and its start is announced.


HOW_TO_DECLARE = (
    "this worker has no task with that name. Deploy the code that defines it. If it is not in the tasks.py of an "
    "installed app, add its module to PULSE['TASK_MODULES'] and restart the workers"
)


class Call(NamedTuple):
    """What a handler is called with."""

    args: list[Any]
    kwargs: dict[str, Any]
    context: Context | None  # None: nothing would read it

    def __repr__(self) -> str:
        return without(self, "args", "kwargs")


def prepared(run: Run, task: Task) -> Call:
    """Read the arguments, make the context if anything will read it, and announce the start."""
    if run.claim.masked is not None:
        run.decrypt()
    claim = run.claim
    args, kwargs = claim.args, claim.kwargs
    context = None
    heard_by = receivers_of(task_started)
    announced = heard_by is Receivers.PROJECT
    if announced or task.takes_context or getattr(task, "atomic", False) or conf.current().middleware:
        context = Context(task_result=result_of_run(claim, task, args, kwargs, run.alias), run=run)
        if task.takes_context:
            args = [context, *args]
    if announced and context is not None:
        send(task_started, sender_of(task), is_encrypted=claim.is_encrypted, task_result=context.task_result)
    elif heard_by is Receivers.DJANGOS_LOG:
        django_log.log_task(run, task, TaskResultStatus.RUNNING)
    send(job_started, Job, claim=claim, task=task, using=run.alias)
    return Call(args, kwargs, context)


def unprepared(run: Run, task: Task, error: BaseException) -> Performed:
    """Say why a handler could not be called."""
    if isinstance(error, Error):  # its task's policy has nothing to judge
        return _postponed(run, task, error)
    if isinstance(error, CannotDecrypt):  # it is not given up, for no code is missing: it waits, each time for longer
        settings = conf.current()
        delay = max(settings.unknown_task_delay, settings.backoff.delay(run.claim.refunds + 1))
        return judged(run, task, Released(delay, f"{CANNOT_DECRYPT}: {error}"))
    return judged(run, task, Failed(report_of(run, error)), error)  # arguments that cannot be read, say


def put_back(run: Run) -> Performed:
    """Let a job wait for a worker that knows its task, as during a deploy, and give up on it in the end."""
    settings, claim = conf.current(), run.claim
    try:
        waited = Job.objects.db_manager(run.alias).put_back_for(claim.job_id)
    except Error as error:
        return _postponed(run, None, error)
    why = f"{claim.task!r}: {HOW_TO_DECLARE}"
    if waited is not None and waited >= settings.unknown_task_age:
        reason = f"{GIVEN_UP} {why}, for {waited}"
        return Performed(run, None, Report(claim.lease, Released(reason=reason), DeadLetter(reason)))
    return judged(run, None, Released(settings.unknown_task_delay, f"{UNKNOWN_TASK} {why}"))


def _postponed(run: Run, task: Task | None, error: BaseException) -> Performed:
    """Hand a job back that the database kept us from beginning, each time for longer."""
    delay = conf.current().backoff.delay(run.claim.refunds + 1)
    return judged(run, task, Released(delay, f"the run could not be prepared: {ErrorReport.of(error).summary}"))


# Call a handler with a chunk, and judge each of its jobs.
#
# What the handler decides is reported at once, so that a worker that dies later has not done it for nothing. What a
# limit has to be yielded of waits for the end: telling asks the database, which a handler may have a transaction or a
# loop in.


_STOPS = (JobCancelled, LeaseLost, DeadlinePassed, asyncio.CancelledError)
FOR_ANOTHER = Released(timedelta(), "the handler stopped because of another job of its chunk")


def perform_chunk(run: ChunkRun, task: Task | None) -> Performed:
    """Call the handler. What was not reported before is in ``members``."""
    if task is None:
        return Performed(run, None, None, members=[put_back(member) for member in run.members])
    call = _ChunkCall(run, task)
    call.prepare()
    error: BaseException | None = None
    try:
        if call.items:
            with call.surroundings() as chunk:
                call_handler(task, chunk)
    except BaseException as raised_by_handler:  # SystemExit too: it ends these runs, and nothing else
        error = raised_by_handler
    for member, raised in call.to_tell(error):
        if raised is not None:
            call.ends_with[id(raised)] = _failed(member, task, raised)
        elif member.claim.is_probe:
            _succeeded(member)
    call.end(error)
    return call.performed


async def perform_chunk_async(run: ChunkRun, task: Task) -> Performed:
    """Await the handler on the loop that is running."""
    call = _ChunkCall(run, task)
    if all(member.claim.attempt == 1 for member in run.members):
        call.prepare()
    else:  # a repeated run reads its history, and no loop may wait for a database
        await sync_to_async(call.prepare)()
    error: BaseException | None = None
    try:
        if call.items:
            with call.surroundings() as chunk:
                await task.func(chunk)
    except BaseException as raised_by_handler:
        error = raised_by_handler
    for member, raised in call.to_tell(error):
        if raised is not None:
            call.ends_with[id(raised)] = await _afailed(member, task, raised)
        elif member.claim.is_probe:
            await sync_to_async(_succeeded)(member)
    call.end(error)
    return call.performed


class _ChunkCall:
    """One call of a handler, and how each of its jobs ends."""

    def __init__(self, run: ChunkRun, task: Task) -> None:
        self.performed = Performed(run, task, None)
        self.items: list[ChunkItem] = []
        self.ends_with: dict[int, BaseException] = {}  # by what was raised: what stands for it, as a limit says
        self._run, self._task = run, task
        self._late: list[ChunkItem] = []  # decided, and a limit is to be yielded first

    def prepare(self) -> None:
        """Make an item of each member. One that cannot be prepared ends, and the others go on."""
        for member in self._run.members:
            try:
                self.items.append(self._item_of(member))
            except BaseException as error:
                self._pass_on(unprepared(member, self._task, error))

    @contextmanager
    def surroundings(self) -> Iterator[Chunk]:
        """Give what the handler is called with, where it is to be called."""
        pid, chunk = os.getpid(), Chunk(self._task, self.items)
        with running(self._run), surrounded(chunk) if conf.current().middleware else _NOTHING_AROUND:
            try:
                yield chunk
            finally:
                end_if_forked(pid)

    def to_tell(self, error: BaseException | None) -> Iterator[tuple[Run, BaseException | None]]:
        """Yield what a limit has to be told of: each exception once, or once for each key that it concerns."""
        yielded: set[tuple[int, str]] = set()
        raised = [(item.run, item.error) for item in self._late]
        if not isinstance(error, _STOPS):
            raised += [(item.run, error) for item in self._undecided]
        for run, one in raised:
            of_key = run.claim.lane_key if isinstance(one, RateLimited) and one.only_key else ""
            if one is None or (id(one), of_key) not in yielded:
                yielded.add((id(one), of_key))
                yield run, one

    def end(self, error: BaseException | None) -> None:
        """Judge what is left when the handler is over."""
        # Whether it stopped because some of its jobs were asked to.
        is_stop = isinstance(error, _STOPS) and any(map(_was_asked_to_stop, self._run.members))
        for item in self._late:
            self._pass_on(self._judged(item, item.error))
        for item in self._undecided:
            item.is_decided = True
            self._pass_on(self._stopped(item, error) if is_stop else self._judged(item, error))

    @property
    def _undecided(self) -> list[ChunkItem]:
        return [item for item in self.items if not item.is_decided]

    def _item_of(self, member: Run) -> ChunkItem:
        args, kwargs, context = prepared(member, self._task)
        try:
            checked(self._task, args, kwargs)
        except WrongArguments as error:
            raise CannotBeCalled(str(error)) from None
        if context is None and iscoroutinefunction(self._task.func):
            context = self._context_of(member, kwargs)
        return ChunkItem(kwargs, member, partial(self._context_of, member, kwargs), self._decided, context)

    def _context_of(self, member: Run, kwargs: dict[str, Any]) -> Context:
        return Context(task_result=result_of_run(member.claim, self._task, [], kwargs, member.alias), run=member)

    def _decided(self, item: ChunkItem) -> None:
        run, error = item.run, item.error
        if run.claim.is_probe if error is None else _is_concerned(run, self._task, error):
            self._late.append(item)
        else:
            self._pass_on(self._judged(item, error))

    def _pass_on(self, performed: Performed) -> None:
        performed.ended_at = time.monotonic()
        if self._run.report is None:
            self.performed.members.append(performed)
        else:
            self._run.report(performed.run, performed)

    def _judged(self, item: ChunkItem, error: BaseException | None) -> Performed:
        if error is None:
            return judged_value(item.run, self._task, item.known_context, item.result)
        return judged_error(item.run, self._task, item.known_context, self.ends_with.get(id(error), error))

    def _stopped(self, item: ChunkItem, error: BaseException | None) -> Performed:
        """A job that was not asked to stop is handed back: its handler has ended, and not because of it."""
        if item.run.completed:
            return self._judged(item, error)
        outcome = outcome_of_stopped(item.run) if _was_asked_to_stop(item.run) else FOR_ANOTHER
        return judged(item.run, self._task, outcome, error)


def _was_asked_to_stop(run: Run) -> bool:
    return run.cancelled or run.lost or run.was_out_of_touch or run.verdict is not None
