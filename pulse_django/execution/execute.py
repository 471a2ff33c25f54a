"""From a claim to a report: find the task, call its handler, and report the outcome and the decision."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from asgiref.sync import sync_to_async

from pulse_django.words import traces

from .judging import Performed, judged_error, judged_value
from .limit_events import anote_error, anote_success, note_error, note_success
from .middleware import configured, surrounded
from .perform_chunk import perform_chunk, perform_chunk_async
from .preparing import Call, prepared, put_back, unprepared
from .registry import Registry, Task, chunk_of, is_plain, registry
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
            value = _surrounded(task, call) if configured() else _invoke(task, call)
    except BaseException as error:  # SystemExit too: what a handler raises ends its run, and nothing else
        return judged_error(run, task, context, note_error(run, task, error))
    note_success(run)
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
        with running(run), traces.running(run.claim), surrounded(context) if configured() else _NOTHING_AROUND:
            try:
                value = await task.func(*call.args, **call.kwargs)
            finally:
                end_if_forked(pid)
    except BaseException as error:
        return judged_error(run, task, context, await anote_error(run, task, error))
    await anote_success(run)
    return judged_value(run, task, context, value)


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
