"""The leases of a child, in memory that it shares with its keeper.

The child writes an entry for each of its leases. The keeper reads the entries, extends the leases, and writes its
answer into the other half of the same entry. No messages are needed: a child that gets no CPU time for a minute still
finds its leases extended, and a child that was killed leaves a list of its leases and of the runs that had begun.

Each half of an entry has one writer. It contains the lease that it is about, and the reader compares that. So an answer
about an old lease is never used for the next lease in the same entry.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pulse_django.queue.words.leases import Claim, Lease

CAPACITY = 2_048  # leases of one child: running, waiting and unreported; more could not be settled in time

_WORDS = 10  # of eight bytes, for one entry
_HEADER = 8  # words
_ALIVE_AT, _USED, _UNREPORTED_SINCE, _CUT_OFF_SINCE, _FLEET_SIZE, _RANK = range(6)
# The child's half, and the keeper's.
_STATE, _JOB, _SERIAL, _ATTEMPT, _TTL = range(5)
_CHILDS_HALF = struct.Struct("qqqd")  # without the state
_FREE, _WAITING, _BEGUN = range(3)  # waiting: its handler was not called yet
_ENDING = 4  # added to one of these: its end is being reported
_ANSWERED_JOB, _ANSWERED_SERIAL, _ANSWERED_ATTEMPT, _NEWS, _EXTENDED_AT = range(5, 10)
_LOST, _CANCELLED = 1, 2


@dataclass(frozen=True, slots=True)
class HeldLease:
    """An entry, as the keeper reads it."""

    index: int
    lease: Lease
    begun: bool
    ttl: float
    serial: int


class SharedLeases:
    """The leases of a child. The keeper creates it before it has children, so that they inherit it."""

    def __init__(
        self, holder_prefix: str = "", overdue_handlers: OverdueHandlers | None = None, index: int = 0
    ) -> None:
        """``index`` is the index of the child in its worker."""
        self.overdue_handlers, self.index = overdue_handlers or OverdueHandlers(), index
        self._memory = mmap.mmap(-1, (_HEADER + CAPACITY * _WORDS) * 8)
        self.progress: dict[Lease, str] = {}  # only in the keeper, for its next heartbeat: the latest of each lease
        self._whole = memoryview(self._memory).cast("q")
        self._real = memoryview(self._memory).cast("d")
        self.clear(holder_prefix)

    def clear(self, holder_prefix: str) -> None:
        """Reset it for a new child, whose holders begin with this prefix."""
        self.holder_prefix, standing = holder_prefix, self.standing
        for position in range(len(self._whole)):
            self._whole[position] = 0
        self.note_standing(*standing)
        self.progress.clear()
        self._free = list(range(CAPACITY - 1, -1, -1))
        self._used = 0
        self.overdue_handlers.clear(self.index)
        self.live()

    # Called by the child

    @property
    def room(self) -> int:
        return len(self._free)

    def hold(self, claim: Claim, ttl: float) -> Entry:
        """Add a granted lease. From now on, the keeper extends it."""
        index = self._free.pop()
        at, (job_id, holder, attempt) = _HEADER + index * _WORDS, claim.lease
        serial = int(holder[len(self.holder_prefix) :])
        _CHILDS_HALF.pack_into(self._memory, (at + _JOB) * 8, job_id, serial, attempt, ttl)
        self._whole[at] = _WAITING  # last: now the entry is valid
        if index >= self._used:
            self._used = self._whole[_USED] = index + 1
        return Entry(self, at, job_id, serial, attempt)

    def live(self) -> None:
        """Record a sign of life."""
        self._real[_ALIVE_AT] = time.monotonic()

    @property
    def fleet_size(self) -> int:
        """Return how many live workers serve the same queues. 0: the keeper does not know it yet."""
        return self._whole[_FLEET_SIZE]

    @property
    def standing(self) -> tuple[int, int]:
        """Return the position of this worker among these, and their number."""
        return self._whole[_RANK], self._whole[_FLEET_SIZE]

    def note_failures(self, *, unreported_since: float, cut_off_since: float) -> None:
        """Record since when reports fail, and since when claims have no connection. 0: no failure."""
        self._real[_UNREPORTED_SINCE], self._real[_CUT_OFF_SINCE] = unreported_since, cut_off_since

    # Called by the keeper

    def unreported_since(self) -> float:
        """Return since when the child's reports fail, by the monotonic clock. Infinite: they do not."""
        return self._real[_UNREPORTED_SINCE] or float("inf")

    def cut_off_since(self) -> float:
        """Return since when the child's claims have no connection. Infinite: they have one."""
        return self._real[_CUT_OFF_SINCE] or float("inf")

    def note_standing(self, rank: int, workers: int) -> None:
        """Record for the child how many live workers serve the same queues, and the position of this one."""
        self._whole[_RANK], self._whole[_FLEET_SIZE] = rank, workers

    def silence(self) -> float:
        """Return the seconds since the child's last sign of life."""
        return time.monotonic() - self._real[_ALIVE_AT]

    def held(self) -> Iterator[HeldLease]:
        """Yield the current leases of the child."""
        words, prefix = self._whole, self.holder_prefix
        for index in range(words[_USED]):
            at = _HEADER + index * _WORDS
            state = words[at]
            if state != _FREE:  # a lease is held until its report is answered
                serial = words[at + _SERIAL]
                lease = Lease(words[at + _JOB], f"{prefix}{serial}", words[at + _ATTEMPT])
                yield HeldLease(index, lease, bool(state & _BEGUN), self._real[at + _TTL], serial)

    def forget_progress(self) -> None:
        """Drop progress of runs that ended before a heartbeat could save it: their reports saved it."""
        known = list(self.progress)
        held = {one.lease for one in self.held()} if known else set()
        for lease in known:
            if lease not in held:
                self.progress.pop(lease, None)

    def shortest_ttl(self) -> float:
        """Return the shortest TTL of the leases. Infinite: there are none."""
        words, ttls, shortest = self._whole, self._real, float("inf")
        for index in range(words[_USED]):
            at = _HEADER + index * _WORDS
            if words[at] and ttls[at + _TTL] < shortest:
                shortest = ttls[at + _TTL]
        return shortest

    def extended(self, held: Sequence[HeldLease], sent_at: float) -> None:
        """Record that a heartbeat, sent at ``sent_at`` of the monotonic clock, extended these leases."""
        for one in held:
            at = self._address(one)
            self._name(at, one)
            self._real[at + _EXTENDED_AT] = sent_at  # last: until then, the answer has no effect

    def lost(self, held: Sequence[HeldLease]) -> None:
        """Record that these leases are lost."""
        self._tell(held, _LOST)

    def is_marked_lost(self, held: HeldLease) -> bool:
        """Return whether this lease is already recorded as lost, so that it is not extended any more."""
        at = self._address(held)
        return self._is_named(at, held) and bool(self._whole[at + _NEWS] & _LOST)

    def is_ending(self, held: HeldLease) -> bool:
        """Return whether its holder is reporting its end or has dropped it. Then a missed heartbeat means nothing."""
        words, at, lease = self._whole, self._address(held), held.lease
        state, *names = words[at + _STATE], words[at + _JOB], words[at + _SERIAL], words[at + _ATTEMPT]
        return state == _FREE or bool(state & _ENDING) or names != [lease.job_id, held.serial, lease.attempt]

    def cancelled(self, held: Sequence[HeldLease]) -> None:
        """Record that these jobs were asked to stop."""
        self._tell(held, _CANCELLED)

    def _tell(self, held: Sequence[HeldLease], news: int) -> None:
        for one in held:
            at = self._address(one)
            self._name(at, one)
            self._whole[at + _NEWS] |= news

    def _name(self, at: int, held: HeldLease) -> None:
        """Write the lease that this half is about, and clear the answer about another lease."""
        if not self._is_named(at, held):
            words, lease = self._whole, held.lease
            self._real[at + _EXTENDED_AT] = 0.0
            words[at + _NEWS] = 0
            words[at + _ANSWERED_JOB] = lease.job_id
            words[at + _ANSWERED_SERIAL] = held.serial
            words[at + _ANSWERED_ATTEMPT] = lease.attempt

    def _is_named(self, at: int, held: HeldLease) -> bool:
        words, lease = self._whole, held.lease
        said = (words[at + _ANSWERED_JOB], words[at + _ANSWERED_SERIAL], words[at + _ANSWERED_ATTEMPT])
        return said == (lease.job_id, held.serial, lease.attempt)

    @staticmethod
    def _address(held: HeldLease) -> int:
        return _HEADER + held.index * _WORDS


class Entry:
    """The entry of one lease, for its holder: the tether of its run."""

    __slots__ = ("_at", "_attempt", "_job", "_serial", "_shared_leases")

    def __init__(self, shared_leases: SharedLeases, at: int, job_id: int, serial: int, attempt: int) -> None:
        self._shared_leases, self._at = shared_leases, at
        self._job, self._serial, self._attempt = job_id, serial, attempt

    def begin(self) -> None:
        """Note that the handler will be called. If this process dies from now on, the attempt counts."""
        self._shared_leases._whole[self._at] = _BEGUN

    def end(self) -> None:
        """Note that the end will be reported. The lease may be gone before the answer arrives."""
        if self._at >= 0:
            self._shared_leases._whole[self._at] |= _ENDING

    def drop(self) -> None:
        """Remove the lease."""
        if self._at >= 0:
            self._shared_leases._whole[self._at] = _FREE
            self._shared_leases._free.append((self._at - _HEADER) // _WORDS)
            self._at = -1

    def extended_at(self) -> float:
        """Return the instant of the last heartbeat that extended the lease. 0: none yet."""
        if self._at < 0:
            return 0.0
        # Check the lease of this half first: if it is ours, the value that is read next is about it, too.
        return self._shared_leases._real[self._at + _EXTENDED_AT] if self._is_answered() else 0.0

    def is_lost(self) -> bool:
        return self._news(_LOST)

    def is_cancelled(self) -> bool:
        return self._news(_CANCELLED)

    def _news(self, kind: int) -> bool:
        return self._at >= 0 and self._is_answered() and bool(self._shared_leases._whole[self._at + _NEWS] & kind)

    def _is_answered(self) -> bool:
        words, at = self._shared_leases._whole, self._at
        return (
            words[at + _ANSWERED_JOB] == self._job
            and words[at + _ANSWERED_SERIAL] == self._serial
            and words[at + _ANSWERED_ATTEMPT] == self._attempt
        )


# Jobs whose handlers go on after their deadlines, in memory that all children of a worker share.
#
# A thread past its deadline cannot be stopped, and its job is retried. The retry must not begin in the same worker
# while the thread still runs. Each child writes only its own part, and reads all parts.


_NOBODY = 0


class OverdueHandlers:
    """The overdue jobs. The keeper creates it before it has children, so that they inherit it."""

    def __init__(self, children: int = 1, capacity: int = CAPACITY) -> None:
        """``capacity``: jobs of a child, as many as its leases, because a handler may have a whole chunk."""
        self._children, self._size = children, 1 + capacity  # the first element is the count
        self._words = memoryview(mmap.mmap(-1, children * self._size * 8)).cast("q")

    def __contains__(self, job_id: int) -> bool:
        return any(
            self._words[child * self._size] and job_id in self._words[self._part_of(child)].tolist()
            for child in range(self._children)
        )

    def add(self, child: int, job_id: int) -> None:
        if self._replace(child, _NOBODY, job_id):
            self._words[child * self._size] += 1

    def remove(self, child: int, job_id: int) -> None:
        if self._replace(child, job_id, _NOBODY):
            self._words[child * self._size] -= 1

    def clear(self, child: int) -> None:
        """Clear the part of a child that has ended."""
        for position in range(child * self._size, (child + 1) * self._size):
            self._words[position] = _NOBODY

    def _replace(self, child: int, old: int, new: int) -> bool:
        part = self._words[self._part_of(child)]
        try:
            part[part.tolist().index(old)] = new
        except ValueError:  # it is not there
            return False
        return True

    def _part_of(self, child: int) -> slice:
        return slice(child * self._size + 1, (child + 1) * self._size)
