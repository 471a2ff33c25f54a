"""Inside a disposable process: run one handler, report how it ended, and exit."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import selectors
import signal
import threading
from collections.abc import Coroutine
from contextlib import suppress
from inspect import iscoroutinefunction
from typing import Any

from pulse_django.execution.execute import perform, perform_async
from pulse_django.execution.judging import Performed
from pulse_django.execution.registry import registry
from pulse_django.execution.run import Run
from pulse_django.words.error_details import MAX_TRACEBACK
from pulse_django.words.outcomes import Failed
from pulse_django.worker.channel import Channel, Hung, Message
from pulse_django.worker.fork_server import ignore_stops
from pulse_django.worker.handler_stacks import open_dump_file, stack_of_coroutine, stack_of_thread
from pulse_django.worker.needed_threads import NeededThreads

from .event_loop import end_copies_of
from .serialization import claim_from_wire, outcome_to_wire

# Seconds between two looks for progress. It travels with the next heartbeat, which is further away than that.
BETWEEN_PROGRESS = 0.2
_AWAITED: list[Coroutine[Any, Any, Performed]] = []  # the handler, if it is a coroutine
PR_SET_PDEATHSIG = 1


class Relayed:
    """What the child that asked for this process passes on of its keeper's answers."""

    def __init__(self) -> None:
        self.at, self.cancelled = 0.0, False

    def extended_at(self) -> float:
        return self.at

    def is_lost(self) -> bool:
        return False  # this process is killed then

    def is_cancelled(self) -> bool:
        return self.cancelled


def runner_main(_order: Message, channel: Channel) -> int:
    """Take the one run that comes, and run it."""
    ignore_stops()
    _die_with_parent()
    faulthandler.enable()
    first = _wait_for(channel)
    tether = Relayed()
    run = Run(claim_from_wire(first["claim"]), granted_at=first["granted_at"], alias=first["alias"], tether=tether)
    if (file := open_dump_file()) is not None:
        channel.send({"stack_file": True}, [file])
    NeededThreads(_died).start("to-child", lambda: _listen(channel, run, tether))
    performed = _perform(run)
    outcome = performed.report.outcome if performed.report is not None else None
    _pass_progress(channel, run, run.last_progress())
    afterwards = outcome_to_wire(Failed(performed.afterwards)) if performed.afterwards is not None else None
    done = outcome_to_wire(outcome) if outcome else None
    channel.send({"done": done, "completed": run.completed, "afterwards": afterwards})
    _deliver(channel)
    return 0


def _die_with_parent() -> None:
    """Have the kernel kill this process when the fork server is gone, even if a handler holds the interpreter."""
    with suppress(Exception):  # Linux has it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _died(name: str, why: str) -> None:
    os.write(2, f"pulse: thread {name!r} of a single-run process ended ({why}); the process exits\n".encode())
    os._exit(70)  # EX_SOFTWARE


def _perform(run: Run) -> Performed:
    task = registry.get(run.claim.task)
    if task is not None and iscoroutinefunction(task.func):
        _AWAITED.append(performing := perform_async(run, task))
        return _complete(performing)
    return perform(run)


def _complete(performing: Coroutine[Any, Any, Performed]) -> Performed:
    """Run a coroutine to its end. A task beside it that raises SystemExit stops the loop, which then goes on."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        end_copies_of(loop)
        task = loop.create_task(performing)
        while not task.done():
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_until_complete(task)
        return task.result()


def _wait_for(channel: Channel) -> Message:
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while True:
            selector.select()
            try:
                if messages := channel.receive():
                    return messages[0]
            except Hung:
                os._exit(0)


def _listen(channel: Channel, run: Run, tether: Relayed) -> None:
    pid, told_completed = os.getpid(), False
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while True:
            ready = selector.select(timeout=BETWEEN_PROGRESS)
            if run.completed and not told_completed:
                told_completed = True
                channel.send({"completed": True})
            _pass_progress(channel, run, run.take_progress())
            try:
                messages: list[Any] = channel.receive() if ready else []
            except Hung:  # the child is gone, and its leases with it
                os.killpg(pid, signal.SIGKILL)
            for message in messages:
                tether.at = message.get("extended_at", tether.at)
                tether.cancelled = message.get("cancelled", tether.cancelled)
                if "where" in message:
                    channel.send({"stack": _where()[:MAX_TRACEBACK]})


def _where() -> str:
    """Say where the handler is. It runs in the main thread."""
    main = threading.main_thread().ident or 0
    return stack_of_coroutine(_AWAITED[0], main) if _AWAITED else stack_of_thread(main)


def _pass_progress(channel: Channel, run: Run, progress: str | None) -> None:
    if progress is not None:
        channel.send({"progress": progress})


def _deliver(channel: Channel) -> None:
    """Wait until everything that was said is on its way: a result may be larger than a socket's buffer."""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_WRITE)
        while channel.has_more:
            selector.select()
            channel.flush()
