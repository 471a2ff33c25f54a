"""Call a handler with a chunk, and determine the outcome of each of its jobs.

Decisions of the handler are reported at once, so that they are not lost if the worker dies later. Messages to a limit
wait until the handler has ended: they use the database, and the handler may have an open transaction or a running
event loop.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async

from pulse_django import conf
from pulse_django.exceptions import CannotBeCalled, DeadlinePassed, JobCancelled, LeaseLost, RateLimited, WrongArguments
from pulse_django.queue.words.outcomes import Released
from pulse_django.run.calls import checked
from pulse_django.run.context import Context
from pulse_django.run.execute import (
    NOTHING_AROUND,
    afailed,
    failed,
    is_concerned,
    prepared,
    put_back,
    succeeded,
    unprepared,
)
from pulse_django.run.judging import judged, judged_error, judged_value, outcome_of_stopped
from pulse_django.run.middleware import surrounded
from pulse_django.run.registry import Task
from pulse_django.run.results import result_of_run
from pulse_django.run.run import ChunkRun, Performed, Run, end_if_forked, running

from .chunk import Chunk, ChunkItem, call_handler

_STOPS = (JobCancelled, LeaseLost, DeadlinePassed, asyncio.CancelledError)
FOR_ANOTHER = Released(timedelta(), "the handler stopped because of another job of its chunk", has_begun=True)


def perform_chunk(run: ChunkRun, task: Task | None) -> Performed:
    """Call the handler. The outcomes that were not reported before are in ``members``."""
    if task is None:
        return Performed(run, None, None, members=[put_back(member) for member in run.members])
    call = _ChunkCall(run, task)
    call.prepare()
    error: BaseException | None = None
    try:
        if call.items:
            with call.surroundings() as chunk:
                call_handler(task, chunk)
    except BaseException as raised_by_handler:  # SystemExit too: it ends only these runs
        error = raised_by_handler
    for member, raised in call.to_tell(error):
        if raised is not None:
            call.ends_with[id(raised)] = failed(member, task, raised)
        elif member.claim.is_probe:
            succeeded(member)
    return call.end(error)


async def perform_chunk_async(run: ChunkRun, task: Task) -> Performed:
    """Await the handler on the running event loop."""
    call = _ChunkCall(run, task)
    if all(member.claim.attempt == 1 for member in run.members):
        call.prepare()
    else:  # a repeated run reads its history, and an event loop must not wait for the database
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
            call.ends_with[id(raised)] = await afailed(member, task, raised)
        elif member.claim.is_probe:
            await sync_to_async(succeeded)(member)
    return call.end(error)


class _ChunkCall:
    """One call of a handler, and the outcome of each of its jobs."""

    def __init__(self, run: ChunkRun, task: Task) -> None:
        self.performed = Performed(run, task, None)
        self.items: list[ChunkItem] = []
        self.ends_with: dict[int, BaseException] = {}  # for each exception, the one that a limit replaced it with
        self._run, self._task = run, task
        self._late: list[ChunkItem] = []  # decided, but a message to a limit comes first

    def prepare(self) -> None:
        """Make an item of each member. A member that cannot be prepared ends, and the others continue."""
        for member in self._run.members:
            try:
                self.items.append(self._item_of(member))
            except BaseException as error:
                self._pass_on(unprepared(member, self._task, error))

    @contextmanager
    def surroundings(self) -> Iterator[Chunk]:
        """Return the chunk for the handler, inside the context of its call."""
        pid, chunk = os.getpid(), Chunk.of(self._task, self.items)
        with running(self._run), surrounded(chunk) if conf.current().middleware else NOTHING_AROUND:
            try:
                yield chunk
            finally:
                end_if_forked(pid)

    def to_tell(self, error: BaseException | None) -> Iterator[tuple[Run, BaseException | None]]:
        """Yield the exceptions for a limit: each once, or once for each key that it concerns."""
        yielded: set[tuple[int, str]] = set()
        raised = [(item.run, item.error) for item in self._late]
        if not isinstance(error, _STOPS):
            raised += [(item.run, error) for item in self._undecided]
        for run, one in raised:
            of_key = run.claim.lane_key if isinstance(one, RateLimited) and one.only_key else ""
            if one is None or (id(one), of_key) not in yielded:
                yielded.add((id(one), of_key))
                yield run, one

    def end(self, error: BaseException | None) -> Performed:
        """Determine the other outcomes when the handler ended. Return in ``members`` what was not reported before."""
        # Whether it stopped because some of its jobs were asked to stop.
        is_stop = isinstance(error, _STOPS) and any(map(_was_asked_to_stop, self._run.members))
        for item in self._late:
            self._pass_on(self._judged(item, item.error))
        for item in self._undecided:
            item.is_decided = True
            self._pass_on(self._stopped(item, error) if is_stop else self._judged(item, error))
        return self.performed

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
        if run.claim.is_probe if error is None else is_concerned(run, self._task, error):
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
        """Hand back a job that was not asked to stop: its handler ended because of another job."""
        if item.run.completed:
            return self._judged(item, error)
        outcome = outcome_of_stopped(item.run) if _was_asked_to_stop(item.run) else FOR_ANOTHER
        return judged(item.run, self._task, outcome, error)


def _was_asked_to_stop(run: Run) -> bool:
    return run.cancelled or run.lost or run.was_out_of_touch or run.verdict is not None
