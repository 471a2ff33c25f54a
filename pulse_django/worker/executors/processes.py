"""Runs handlers in disposable processes: one for each run, which can be killed.

It is for tasks with ``isolation="process"``, and for jobs that lost their worker twice: a job that kills its process
then does not affect other jobs.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import selectors
import signal
import threading
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any

from pulse_django.queue.words.outcomes import Outcome, Released, Stalled, TimedOut, WorkerLost
from pulse_django.queue.words.payloads import MAX_TRACEBACK, ErrorReport
from pulse_django.run.execute import perform, perform_async
from pulse_django.run.judging import judged
from pulse_django.run.registry import registry
from pulse_django.run.run import OUT_OF_TOUCH, Performed, Run
from pulse_django.safe_logging import SafeLogger
from pulse_django.worker.channel import Channel, Hung, Message, Nudges, from_wire, to_wire
from pulse_django.worker.fork_server import ignore_stops, kill_family, status_in_words
from pulse_django.worker.handler_stacks import (
    TITLE,
    AskedDump,
    dump_of,
    send_dump_file,
    stack_in_dump,
    stack_of_coroutine,
    stack_of_thread,
)
from pulse_django.worker.needed_threads import NeededThreads, Start, start_thread

from . import Begin, Done, Executor
from .event_loop import end_copies_of

logger = SafeLogger("pulse_django.worker")

TICK = 0.2
# Seconds for a handler to stop after its job was cancelled. Longer keeps its slot; shorter interrupts its cleanup.
GRACE_FOR_CANCELLED = 2.0
NOT_NOW = timedelta(seconds=1)  # until a job that could not begin is retried


# Seconds for a process to send the stack of its handler before it is killed. It needs the interpreter for this. If the
# handler holds it, faulthandler is used, which writes when the process gets CPU time: on a busy machine, that took more
# than 0.3 s. No other run waits for it.
PATIENCE_WITH_ANSWER = 0.15
PATIENCE_WITH_DUMP = 1.0
TICK_OF_STACKS = 0.02


@dataclass(slots=True, eq=False)
class Ward:
    """One process, as seen by the child that requested it."""

    run: Run
    channel: Channel
    pid: int | None = None
    outcome: Outcome | None = None
    afterwards: ErrorReport | None = None  # the error that its handler raised after it had completed the job
    said_done: bool = False
    out_of_touch: bool = False  # it was killed because its lease was uncertain
    last_sent: Message = field(default_factory=lambda: {"extended_at": 0.0, "cancelled": False})
    kill_at: float = float("inf")
    hung_at: float = float("inf")
    stack: str = field(default="", repr=False)  # of its handler
    stack_file: int | None = None  # for its dump
    stack_asked_at: float | None = None
    _dump: AskedDump | None = None

    def awaits_stack(self, pid: int, now: float) -> bool:
        """Request the stack of its handler, or read the answer. Return whether to wait for it, for about a second."""
        if self.stack_asked_at is None:
            self.stack_asked_at = now
            self.channel.send({"where": True})
        waited = now - self.stack_asked_at
        if self.stack or waited > PATIENCE_WITH_ANSWER + PATIENCE_WITH_DUMP:
            return False
        if waited <= PATIENCE_WITH_ANSWER:
            return True
        if self.stack_file is None:
            return False
        self._dump = self._dump or AskedDump(pid, self.stack_file)
        if not self._dump.is_complete():
            return True
        self.stack = stack_in_dump(self._dump.read())
        return False

    def close(self) -> None:
        self.channel.close()
        if self.stack_file is not None:
            with suppress(OSError):
                os.close(self.stack_file)
            self.stack_file = None


class Processes(Executor):
    """Requests processes on the channel ``fork_server``. One thread does all of the work."""

    can_stop = kills = True

    def __init__(self, slots: int, begin: Begin, done: Done, fork_server: Channel, start: Start = start_thread) -> None:
        super().__init__(slots, begin, done, start)
        self._fork_server = fork_server
        self._wards: dict[int, Ward] = {}
        self._number = 0
        self._selector = selectors.DefaultSelector()
        self._nudges = Nudges()
        self._thread: threading.Thread | None = None
        self._orphaned = False

    def submit(self, runs: Sequence[Run]) -> None:
        self._waiting.extend(runs)
        if self._thread is None:
            self._thread = self._start_thread("processes", self._serve)
        self._nudges.nudge()

    def stop(self, run: Run) -> bool:
        """Kill the process at the next check. If its job was cancelled, it may clean up first."""
        self._nudges.nudge()
        return True

    def current_stack(self, run: Run) -> str:  # for a run that is given up, ``awaits_stack`` does it
        ward = next((one for one in list(self._wards.values()) if one.run is run), None)
        if ward is None or ward.pid is None or ward.stack_file is None:
            return ""
        with suppress(OSError):
            return dump_of(ward.pid, ward.stack_file).removeprefix(TITLE)  # it waits for some 0.01 s
        return ""

    def _serve(self) -> None:
        self._selector.register(self._nudges, selectors.EVENT_READ)
        self._selector.register(self._fork_server, selectors.EVENT_READ)
        while True:
            try:
                self._turn()
            except BaseException:  # this thread must go on
                logger.exception("Supervising the processes failed")
                time.sleep(TICK)

    def _turn(self) -> None:
        for key, _ in self._selector.select(timeout=self._until_next_look()):
            if key.fileobj is self._nudges:
                self._nudges.taken()
            elif key.fileobj is self._fork_server:
                self._read_fork_server()
            elif key.data in self._wards.values():
                self._hear(key.data)
        self._look_after()
        self._fill()

    def _until_next_look(self) -> float | None:
        if any(ward.stack_asked_at is not None for ward in list(self._wards.values())):
            return TICK_OF_STACKS
        return TICK if self._wards else None

    def _fill(self) -> None:
        while len(self._wards) < self._slots and (run := self._waiting.next()) is not None:
            if not self._begin(run):
                self._done(run, None)
            elif self._orphaned:
                self._over(run, Released(NOT_NOW, "the fork server is not available"))
            else:
                try:
                    self._ask_for(run)
                except OSError as error:  # a handler leaked all file descriptors of this process
                    self._wards.pop(self._number, None)
                    self._over(run, Released(NOT_NOW, f"requesting a process failed: {error}"))

    def _ask_for(self, run: Run) -> None:
        self._number += 1
        channel, theirs = Channel.pair()
        self._fork_server.send({"number": self._number}, [theirs.fileno()])
        theirs.close()
        ward = self._wards[self._number] = Ward(run, channel)
        self._selector.register(channel, selectors.EVENT_READ, ward)
        channel.send({"claim": to_wire(run.claim), "granted_at": run.granted_at, "alias": run.alias})

    def _read_fork_server(self) -> None:
        try:
            messages = self._fork_server.receive()
        except Hung:
            self._orphaned = True
            self._selector.unregister(self._fork_server)
            for number in list(self._wards):
                self._ended(number, "was lost with its fork server")
            return
        for message in messages:
            if "forked" in message and (ward := self._wards.get(message["forked"])):
                ward.pid = message["pid"]
            elif "ended" in message:
                how = status_in_words(message["status"])
                self._ended(message["ended"], how if how.startswith("exited") else f"was {how}")
            elif "not_started" in message:
                self._ended(message["not_started"], f"was not started: {message['why']}")

    def _hear(self, ward: Ward) -> None:
        try:
            messages = ward.channel.receive()
        except Hung:
            with suppress(KeyError, ValueError):  # its death was just reported
                self._selector.unregister(ward.channel)
            ward.hung_at = time.monotonic()
            return
        for message in messages:
            self._note(ward, message)

    def _note(self, ward: Ward, message: Message) -> None:
        if "progress" in message:
            ward.run.take_over_progress(message["progress"])
        elif "stack" in message:
            ward.stack = message["stack"]
        elif "stack_file" in message:
            ward.stack_file = ward.channel.take_fd()
        elif "done" not in message:
            ward.run.completed = ward.run.completed or message.get("completed", False)
        else:
            ward.said_done = True
            ward.run.completed = message["completed"]
            ward.outcome, ward.afterwards = from_wire(message["done"]), from_wire(message["afterwards"])

    def _look_after(self) -> None:
        now = time.monotonic()
        for ward in list(self._wards.values()):
            run = ward.run
            extended_at = max(ward.last_sent["extended_at"], run.tether.extended_at() if run.tether else 0.0)
            if (news := {"extended_at": extended_at, "cancelled": run.cancelled}) != ward.last_sent:
                ward.last_sent = news
                ward.channel.send(news)
            ward.out_of_touch = ward.out_of_touch or run.is_out_of_touch
            ward.kill_at = min(ward.kill_at, _when_to_kill(run, now))
            if ward.pid is None or (now <= ward.kill_at and now <= ward.hung_at + GRACE_FOR_CANCELLED):
                continue
            if not (_is_over_time(run) and ward.awaits_stack(ward.pid, now)):
                kill_family(ward.pid)

    def _ended(self, number: int, how: str) -> None:
        ward = self._wards.pop(number, None)
        if ward is None:
            return
        with suppress(KeyError, ValueError):
            self._selector.unregister(ward.channel)
        with suppress(Hung):
            for message in ward.channel.receive():  # its last messages
                self._note(ward, message)
        ward.close()
        if ward.pid is not None:
            kill_family(ward.pid)  # processes that it started
        if ward.said_done:
            self._over(ward.run, ward.outcome, ward.afterwards)
        elif ward.run.lost:
            self._over(ward.run, None)
        elif ward.out_of_touch:
            self._over(ward.run, OUT_OF_TOUCH)
        elif ward.pid is None:  # it never started, or the fork server died before its report
            self._over(ward.run, Released(NOT_NOW, f"its process {how}", has_begun=self._orphaned))
        else:
            verdict = ward.run.verdict
            if isinstance(verdict, TimedOut | Stalled):
                verdict = replace(verdict, stack=ward.stack)
            self._over(ward.run, verdict or WorkerLost(f"its process {how}"))

    def _over(self, run: Run, outcome: Outcome | None, afterwards: ErrorReport | None = None) -> None:
        task = registry.get(run.claim.task)
        try:
            performed = judged(run, task, outcome)
        except BaseException as error:  # no error may end this thread
            performed = judged(run, None, WorkerLost(ErrorReport.of(error).summary))
        performed.ended_at = time.monotonic()
        performed.afterwards = afterwards
        self._done(run, performed)


def _is_over_time(run: Run) -> bool:
    return isinstance(run.verdict, TimedOut | Stalled)


def _when_to_kill(run: Run, now: float) -> float:
    if run.completed:
        return float("inf")
    if run.lost or run.is_out_of_touch or _is_over_time(run):
        return now
    return now + GRACE_FOR_CANCELLED if run.cancelled else float("inf")


# Inside a disposable process: run one handler, report its outcome, and exit.

# Seconds between two checks for progress. The next heartbeat saves it, which takes longer.
BETWEEN_PROGRESS = 0.2
_PERFORMING: list[Coroutine[Any, Any, Performed]] = []  # the coroutine of an async handler
PR_SET_PDEATHSIG = 1


class Relayed:
    """The keeper's answers about the lease, as the child relays them."""

    def __init__(self) -> None:
        self.at, self.cancelled = 0.0, False

    def extended_at(self) -> float:
        return self.at

    def is_lost(self) -> bool:
        return False  # this process is killed then

    def is_cancelled(self) -> bool:
        return self.cancelled


def runner_main(_order: Message, channel: Channel) -> int:
    """Receive one run, and run it."""
    ignore_stops()
    with suppress(Exception):  # Linux kills it when the fork server ends, even if a handler holds the interpreter
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.enable()
    first = _wait_for(channel)
    tether = Relayed()
    run = Run(from_wire(first["claim"]), granted_at=first["granted_at"], alias=first["alias"], tether=tether)
    send_dump_file(channel)
    NeededThreads(_died).start("to-child", lambda: _listen(channel, run, tether))
    task = registry.get(run.claim.task)
    if task is not None and iscoroutinefunction(task.func):
        _PERFORMING.append(performing := perform_async(run, task))
        performed = _complete(performing)
    else:
        performed = perform(run)
    outcome = performed.report.outcome if performed.report is not None else None
    _pass_progress(channel, run, run.last_progress())
    done, afterwards = to_wire(outcome), to_wire(performed.afterwards)
    channel.send({"done": done, "completed": run.completed, "afterwards": afterwards})
    _deliver(channel)
    return 0


def _died(name: str, why: str) -> None:
    os.write(2, f"pulse: thread {name!r} of a single-run process ended ({why}); the process exits\n".encode())
    os._exit(70)  # EX_SOFTWARE


def _complete(performing: Coroutine[Any, Any, Performed]) -> Performed:
    """Run a coroutine to its end. If another task raises SystemExit and stops the loop, continue."""
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
    pid, completion_sent = os.getpid(), False
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while True:
            ready = selector.select(timeout=BETWEEN_PROGRESS)
            if run.completed and not completion_sent:
                completion_sent = True
                channel.send({"completed": True})
            _pass_progress(channel, run, run.take_progress())
            try:
                messages: list[Any] = channel.receive() if ready else []
            except Hung:  # the child has ended, and its leases are lost
                os.killpg(pid, signal.SIGKILL)
            for message in messages:
                tether.at = message.get("extended_at", tether.at)
                tether.cancelled = message.get("cancelled", tether.cancelled)
                if "where" in message:
                    channel.send({"stack": _where()[:MAX_TRACEBACK]})


def _where() -> str:
    """Return the stack of the handler, which runs in the main thread."""
    main = threading.main_thread().ident or 0
    return stack_of_coroutine(_PERFORMING[0], main) if _PERFORMING else stack_of_thread(main)


def _pass_progress(channel: Channel, run: Run, progress: str | None) -> None:
    if progress is not None:
        channel.send({"progress": progress})


def _deliver(channel: Channel) -> None:
    """Wait until all messages are sent: a result may be larger than the buffer of a socket."""
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(channel, selectors.EVENT_WRITE)
        except OSError as error:  # the handler has closed all files
            _died("main", str(error))
        while channel.has_more:
            selector.select()
            channel.flush()
