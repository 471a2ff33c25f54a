"""The child processes of a worker: start them, read their messages, and replace those that fail."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pulse_django import conf
from pulse_django.queue.words import counters
from pulse_django.queue.words.leases import Identity, Lease
from pulse_django.queue.words.verb_results import Settled
from pulse_django.run.notify import ANY_QUEUE
from pulse_django.safe_logging import SafeLogger

from .channel import Channel, Hung, Message, from_wire, to_wire
from .child import DRAINED
from .fork_server import status_in_words
from .handler_stacks import dump_of
from .recovery import LostChild
from .shared_leases import HeldLease, OverdueHandlers, SharedLeases
from .stack_requests import PATIENCE_WITH_CHILD, StackRequests
from .worker_options import WorkerOptions

if TYPE_CHECKING:
    from .keeper import ShardLoops

logger = SafeLogger("pulse_django.worker")

# Seconds to wait for the reported death of a process that closed its channel. Then it is killed.
PATIENCE_WITH_HUNG = 0.5


class Children:
    """The children of a keeper. Its main thread uses it. ``ready`` is called when a child reports that it is ready."""

    def __init__(
        self, options: WorkerOptions, identity: Identity, selector: selectors.BaseSelector, ready: Callable[[], None]
    ) -> None:
        overdue_handlers = OverdueHandlers(options.processes)
        self.child_slots = [
            ChildSlot(index, [SharedLeases("", overdue_handlers, index) for _ in options.aliases])
            for index in range(options.processes)
        ]
        self.stop_by: float | None = None  # when the remaining children are killed
        self._options, self._identity, self._selector, self._ready = options, identity, selector, ready
        self._number = 0
        self._lines: Sequence[ShardLoops] = ()
        self._asked: dict[int, _Asked] = {}  # open requests for stacks, by job

    def serve(self, lines: Sequence[ShardLoops]) -> None:
        """Set the loops of each shard, which the children depend on."""
        self._lines = lines

    def populate(self, fork_server: Channel, now: float) -> None:
        for child in self.child_slots:
            if not child.is_empty or now < child.spawn_at or (self._options.burst and child.ended == DRAINED):
                continue
            self._number += 1
            boot_id = f"{self._identity.boot_id}.{self._number}"
            channel, theirs = Channel.pair()
            child.settle_in(self._number, self._identity.name, boot_id, channel)
            self._selector.register(channel, selectors.EVENT_READ, child)
            fork_server.send({"number": child.number, "boot_id": boot_id, "index": child.index}, [theirs.fileno()])
            theirs.close()

    def read_fork_server(self, fork_server: Channel) -> bool:
        try:
            messages = fork_server.receive()
        except Hung:
            return False
        for message in messages:
            number = message.get("forked") or message.get("ended") or message.get("not_started")
            child = next((child for child in self.child_slots if child.number == number), None)
            if child is None:
                continue
            if "forked" in message:
                child.pid = message["pid"]
            elif "ended" in message:
                self._child_ended(child, message["status"])
            else:
                logger.error("Starting a process failed: %s", message["why"])
                self._clear(child, clean=False)
        return True

    def wake(
        self, queue: str, following: str | None = None, *, but_not: ChildSlot | None = None, shard: int = 0
    ) -> bool:
        """Make a child look for jobs of this queue: the one with the fewest jobs, or all if any queue may have work.

        ``following`` is the notification for other workers, if there are more jobs than free slots. Return whether
        there is such a child. A thread of the listener calls it, too.
        """
        woken = [child for child in self.child_slots if child.ready and not child.is_draining and child is not but_not]
        if self.stop_by is not None:
            return False
        if queue != ANY_QUEUE and woken:
            woken = [min(woken, key=lambda child: len(child.held()))]
        for child in woken:
            if (channel := child.channel) is not None:
                channel.send({"wake": queue, "following": following, "shard": shard})
        return bool(woken)

    def listens(self, shard: int, hears: bool) -> None:
        """Make the children poll less often while notifications arrive. A thread of the listener calls it."""
        for child in self.child_slots:
            if (channel := child.channel) is not None and child.ready:
                channel.send({"hears": hears, "shard": shard})

    def hear(self, child: ChildSlot) -> None:
        channel = child.channel
        if channel is None:
            return
        try:
            messages = channel.receive()
        except Hung:
            with suppress(KeyError, ValueError):
                self._selector.unregister(channel)
            child.hung_at = time.monotonic()
            return
        for message in messages:
            if "progress" in message:
                child.leases[message["shard"]].progress[Lease(*message["lease"])] = message["progress"]
            elif "found" in message and (listener := self._lines[message["shard"]].listener) is not None:
                listener.found_work()
                if message["more"]:
                    self.wake(message["found"], but_not=child, shard=message["shard"])
            elif "watched" in message:
                self._lines[message["shard"]].heartbeat.watch(message["watched"])
            elif "is" in message:
                self._note(child, message["is"])
            elif "draining" in message:
                child.is_draining = True
            elif "ready" in message:
                child.ready = True
                for shard, line in enumerate(self._lines):
                    if line.listener is not None:
                        self.listens(shard, line.listener.hears)
                self._ready()
            elif "ended" in message:
                child.ended = message["ended"]
            elif "failing" in message:
                child.failing = message["failing"]
            elif "stack" in message:
                self._tell_stack(message["job"], message["stack"])
            elif "stack_file" in message:
                child.stack_file = channel.take_fd()
            elif "reports" in message:
                self._relay(channel, message)

    def _note(self, child: ChildSlot, said: Message) -> None:
        """Add the counts of a child since its last message, because they are lost when it ends."""
        for shard, (line, counts) in enumerate(zip(self._lines, said["counts"], strict=True)):
            vitals = line.heartbeat.vitals
            before = child.said["counts"][shard] if child.said else {}
            vitals.refused["settle"] += counts["refused_settles"] - before.get("refused_settles", 0)
            vitals.database_errors += counts["database_errors"] - before.get("database_errors", 0)
            fresh = counters.since(counts["limit_refusals"], before.get("limit_refusals", {}))
            vitals.limit_refusals = counters.added(vitals.limit_refusals, fresh)
        child.stuck, child.said = said["stuck"], said

    def _relay(self, channel: Channel, message: Message) -> None:
        """Settle reports for a child that cannot settle them itself."""

        def answer(settled: Settled) -> None:
            channel.send({"settled": to_wire(settled), "number": message["number"], "shard": message["shard"]})

        self._lines[message["shard"]].recovery.relay(from_wire(message["reports"]), answer)

    def _child_ended(self, child: ChildSlot, status: int) -> None:
        """Clean up after a dead child."""
        with suppress(Hung):
            self.hear(child)  # its last messages
        clean = bool(child.ended) and status == 0
        how = child.killed_for or child.failing or status_in_words(status)
        lost = len(child.held())
        for leases, line in zip(child.leases, self._lines, strict=True):
            held = tuple(leases.held())
            if clean and not held:
                continue
            line.recovery.recover(
                LostChild(
                    holder_prefix=leases.holder_prefix,
                    held=held,
                    progress=dict(leases.progress),
                    reason=how,
                    stacks=child.stacks,
                    asked_for=self.stop_by is not None and child.killed_for == "stopped",
                    at=time.monotonic(),
                )
            )
        if clean:
            log = logger.debug if self.stop_by is not None else logger.info
            log("Process %d (pid %s) ended: %s", child.number, child.pid, child.ended)
        elif child.killed_for != "stopped":
            logger.error("Process %d (pid %s) died: %s, with %d jobs", child.number, child.pid, how, lost)
        self._clear(child, clean)

    def _clear(self, child: ChildSlot, clean: bool) -> None:
        if child.channel is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(child.channel)
        child.empty(clean)

    def look_after(self, now: float) -> None:
        silence = conf.current().child_timeout.total_seconds()
        ttl = conf.current().lease_ttl.total_seconds()
        self._ask_for_stacks(now)
        for child in self.child_slots:
            if child.is_empty:
                continue
            if child.channel is not None:
                child.channel.flush()
            if child.leases[0].silence() > silence:
                child.kill_for_silence(silence)
            elif now > child.hung_at + PATIENCE_WITH_HUNG:
                child.kill("killed after it closed its channel")
            elif child.cannot_deliver(ttl):
                child.kill("killed because it could not deliver its reports")
            elif self.stop_by is not None and now > self.stop_by:
                child.kill("stopped")
            else:
                self._replace_if_useless(child, now, ttl)

    def _replace_if_useless(self, child: ChildSlot, now: float, ttl: float) -> None:
        """Stop a child that could not reach the database for the duration of a lease, although its keeper could."""
        for shard, (leases, line) in enumerate(zip(child.leases, self._lines, strict=True)):
            if (channel := child.channel) is None or child.is_leaving:
                return
            beats, database = line.heartbeat, line.heartbeat.database
            unreported_since = max(leases.unreported_since(), database.failed_at)
            cut_off_since = max(leases.cut_off_since(), database.failed_at)
            if now - unreported_since > ttl and beats.extended_at > unreported_since:
                logger.error("Process %d (pid %s) cannot deliver its reports; replacing it", child.number, child.pid)
                child.relaying_at, child.is_leaving = now, True
                channel.send({"relay": True, "drain": "it could not deliver its reports", "shard": shard})
            elif now - cut_off_since > ttl and database.answered_at > cut_off_since:
                logger.error("Process %d (pid %s) cannot reach the database; replacing it", child.number, child.pid)
                child.is_leaving = True
                channel.send({"drain": "it cannot reach the database"})

    # Requests for the stack of a handler: find the child that runs it, ask, and pass on the answer.

    def _ask_for_stacks(self, now: float) -> None:
        for shard, line in enumerate(self._lines):
            for job_id in line.heartbeat.stacks.questions():
                self._ask_for_stack(job_id, shard, line.heartbeat.stacks, now)
        for job_id, asked in list(self._asked.items()):
            if now - asked.at > PATIENCE_WITH_CHILD:
                self._tell_stack(job_id, _dump_of(asked))

    def _ask_for_stack(self, job_id: int, shard: int, requests: StackRequests, now: float) -> None:
        for child in self.child_slots:
            for held in child.leases[shard].held() if not child.is_empty else ():
                if held.lease.job_id != job_id:
                    continue
                if not held.begun or child.channel is None:
                    requests.answer(job_id, NOT_BEGUN)
                    return
                self._asked[job_id] = _Asked(child, child.pid, now, requests)
                child.channel.send({"where": job_id, "shard": shard})
                return
        requests.answer(job_id, NOT_HERE)

    def _tell_stack(self, job_id: int, text: str) -> None:
        if (asked := self._asked.pop(job_id, None)) is not None:
            asked.requests.answer(job_id, text)


# The slot of one child process. A child that died is replaced.

# Seconds to wait before a child is replaced if several in a row died early, at first and at most. Shorter pauses waste
# CPU on a child that cannot start. Longer ones leave slots empty.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
YOUNG = 10.0


@dataclass(slots=True)
class ChildSlot:
    index: int
    leases: Sequence[SharedLeases]  # of each shard
    number: int = 0  # of the current child; 0: none
    boot_id: str = ""
    pid: int | None = None
    channel: Channel | None = None
    ready: bool = False
    ended: str = ""  # the reason that the child gave for its end
    killed_for: str = ""  # the reason why the keeper killed it
    stuck: int = 0
    said: Message = field(default_factory=dict)  # the last state that the child reported
    born_at: float = 0.0
    hung_at: float = float("inf")  # when its channel was closed without a report of its death
    relaying_at: float = float("inf")  # when it was asked to send its reports to the keeper
    is_leaving: bool = False  # it was asked to end, because it does not work properly
    is_draining: bool = False  # it does not claim any more
    failing: str = ""  # the failure that it reported before its end
    spawn_at: float = 0.0  # the earliest start of the next child
    died_young: int = 0
    stack_file: int | None = None  # to which the child dumps its stacks on a signal
    stacks: str = field(default="", repr=False)  # its stacks from before it was killed

    def held(self) -> list[HeldLease]:
        """Return all leases of the child."""
        return [held for one in self.leases for held in one.held()]

    @property
    def is_empty(self) -> bool:
        return self.number == 0

    def settle_in(self, number: int, name: str, boot_id: str, channel: Channel) -> None:
        """Prepare the slot for a new child."""
        for leases in self.leases:
            leases.clear(f"{name}:{boot_id}:")
        self.number, self.boot_id, self.channel, self.pid = number, boot_id, channel, None
        self.ready, self.ended, self.killed_for, self.stuck, self.said = False, "", "", 0, {}
        self.born_at, self.hung_at, self.relaying_at = time.monotonic(), float("inf"), float("inf")
        self.failing, self.is_leaving, self.is_draining, self.stacks = "", False, False, ""

    def empty(self, clean: bool) -> None:
        """Note the end of the child, and when the next one may start."""
        now = time.monotonic()
        self.died_young = 0 if clean or now - self.born_at > YOUNG else self.died_young + 1
        pause = 0.0 if self.died_young <= 1 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.died_young - 2, 20))
        self.spawn_at = now + pause
        self.number, self.pid, self.ready = 0, None, False
        if self.channel is not None:
            self.channel.close()
        self.channel = None
        if self.stack_file is not None:
            os.close(self.stack_file)
        self.stack_file = None

    def cannot_deliver(self, patience: float) -> bool:
        """Return whether it could not deliver reports for so long, although it may send them through the keeper."""
        now = time.monotonic()
        unreported_since = min(one.unreported_since() for one in self.leases)
        return now - self.relaying_at > patience and now - unreported_since > patience

    def kill_for_silence(self, seconds: float) -> None:
        """Kill a child without a sign of life. First dump its stacks, because a handler may hold the interpreter."""
        if self.pid is not None and self.stack_file is not None and not self.killed_for:
            with suppress(OSError):
                self.stacks = dump_of(self.pid, self.stack_file)
        self.kill(f"killed after {seconds:g} s of silence")

    def kill(self, reason: str) -> None:
        """Kill the child. The fork server will report its death."""
        if not self.is_empty and not self.killed_for:
            self.killed_for = reason
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


# The answers to a request for a stack, if it cannot be read.


NOT_HERE = "The job is not running in this worker any more."
NOT_BEGUN = "The job waits for a slot of this worker."
NO_ANSWER = "Its process does not answer."
# The head of a dump that does not show which job a handler runs.
OF_ALL = "Its process does not answer: a handler holds the interpreter. All of its handlers:\n\n"


class _Asked(NamedTuple):
    """An unanswered request to a child."""

    child: ChildSlot
    pid: int | None
    at: float
    requests: StackRequests


def _dump_of(asked: _Asked) -> str:
    """Return a dump of the process's stacks, requested with a signal, which works without the interpreter."""
    child = asked.child
    if child.pid is None or child.pid != asked.pid or child.stack_file is None:
        return NOT_HERE
    with suppress(OSError):
        if found := dump_of(child.pid, child.stack_file):
            return OF_ALL + found
    return NO_ANSWER
