"""A place for one child process. A child that died is replaced."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from .channel import Channel, Message
from .handler_stacks import dump_of
from .heartbeat import Charge
from .shared_leases import HeldLease, SharedLeases

# Seconds before the second child in a row that died young, and the longest. Shorter burns a processor on a child that
# cannot start; longer leaves slots empty.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
YOUNG = 10.0


@dataclass(slots=True)
class ChildSlot:
    index: int
    leases: Sequence[SharedLeases]  # of each shard
    charges: Sequence[Charge] = field(init=False)
    number: int = 0  # of the child in it; 0: none
    boot_id: str = ""
    pid: int | None = None
    channel: Channel | None = None
    ready: bool = False
    ended: str = ""  # why it says that it ends
    killed_for: str = ""  # why we killed it
    stuck: int = 0
    said: Message = field(default_factory=dict)  # how the child says that it is
    born_at: float = 0.0
    hung_at: float = float("inf")  # since its channel was closed without a report of its death
    relaying_at: float = float("inf")  # since it was asked to send its reports to the keeper
    is_leaving: bool = False  # it was asked to end, because it does not work
    is_draining: bool = False  # it claims no more
    failing: str = ""  # what it says that ends it
    spawn_at: float = 0.0  # the next one not before
    died_young: int = 0
    stack_file: int | None = None  # to which the child writes where its handlers are, if it is asked by a signal
    stacks: str = field(default="", repr=False)  # what it wrote before it was killed

    def __post_init__(self) -> None:
        self.charges = [Charge(one) for one in self.leases]

    def held(self) -> list[HeldLease]:
        """Return all that the child has a lease on."""
        return [held for one in self.leases for held in one.held()]

    @property
    def is_empty(self) -> bool:
        return self.number == 0

    def settle_in(self, number: int, name: str, boot_id: str, channel: Channel) -> None:
        """Make room for a new child."""
        for charge in self.charges:
            charge.shared_leases.clear(f"{name}:{boot_id}:")
            charge.progress.clear()
        self.number, self.boot_id, self.channel, self.pid = number, boot_id, channel, None
        self.ready, self.ended, self.killed_for, self.stuck, self.said = False, "", "", 0, {}
        self.born_at, self.hung_at, self.relaying_at = time.monotonic(), float("inf"), float("inf")
        self.failing, self.is_leaving, self.is_draining, self.stacks = "", False, False, ""

    def empty(self, clean: bool) -> None:
        """Note the end of the child, and when another may come."""
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
        """Whether its reports have not come through for so long, though they may come by way of us."""
        now = time.monotonic()
        unreported_since = min(one.unreported_since() for one in self.leases)
        return now - self.relaying_at > patience and now - unreported_since > patience

    def kill_for_silence(self, seconds: float) -> None:
        """End a child that shows no sign of life. Before, ask where its handlers are: one may hold the interpreter."""
        if self.pid is not None and self.stack_file is not None and not self.killed_for:
            with suppress(OSError):
                self.stacks = dump_of(self.pid, self.stack_file)
        self.kill(f"killed after {seconds:g} s of silence")

    def kill(self, reason: str) -> None:
        """End the child at once. The fork server will report its death."""
        if not self.is_empty and not self.killed_for:
            self.killed_for = reason
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
