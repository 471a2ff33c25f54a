"""Extends the leases of all children of a worker, with one statement for each heartbeat."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pulse_django import conf
from pulse_django.models import Worker
from pulse_django.queue.database.database_errors import DatabaseFault, fault_of
from pulse_django.queue.database.workers import Presence, Standing
from pulse_django.queue.words.counters import Counters, Histogram
from pulse_django.queue.words.leases import Lease
from pulse_django.safe_logging import SafeLogger

from .guarded_connection import LONGEST_PRESENCE, PRESENCE_SLOWED_BY, GuardedConnection, slowed
from .shared_leases import HeldLease, SharedLeases
from .stack_requests import StackRequests

logger = SafeLogger("pulse_django.heartbeat")

BEATS_PER_LEASE = 3
# Heartbeats come up to this share early, and never late, so that hosts do not send them at the same time.
JITTER = 0.2
# Seconds between two checks of the leases: a new lease may be shorter than the others and need an earlier heartbeat.
TICK = 0.1
# The same without leases. These checks are the most expensive work of an idle worker. IDLE_TICK is used only if no
# lease was shorter than SHORT_LEASE so far, because such a lease could expire before the next check.
IDLE_TICK, SHORT_LEASE = 0.25, 1.0
# Seconds after a heartbeat that skipped a locked row, until it is tried again.
PAUSE_BEFORE_SKIPPED = 0.1
# For how long the progress of a watched job is saved each second. It must be longer than the time after which a page is
# built again (``changes_in``), which renews it.
WATCHED_FOR, BETWEEN_WATCHED = 40.0, 1.0


Beaten = list[tuple[SharedLeases, HeldLease]]  # (leases of a child, lease)


@dataclass(slots=True)
class Vitals:
    """Counters of the heartbeats of this worker since its start. A lease must outlast the delay of a heartbeat."""

    beats: int = 0
    failures: int = 0
    delays: Histogram = field(default_factory=Histogram)  # from its due time to its answer, failed tries included
    refused: Counter[str] = field(default_factory=Counter)  # refused writes of runs that had lost their lease, by verb
    database_errors: int = 0  # of children; the connections of the keeper count their own
    limit_refusals: Counters = field(default_factory=dict)  # claims without jobs, by limit and reason

    def to_json(self) -> dict[str, Any]:
        beats = {"beats": self.beats, "beat_failures": self.failures, "beat_delays": self.delays.to_json()}
        refused = {"refused": dict(self.refused), "limit_refusals": self.limit_refusals}
        return beats | refused | {"database_errors": self.database_errors}


class Heartbeat:
    def __init__(
        self,
        database: GuardedConnection,
        children: Callable[[], Sequence[SharedLeases]],
        presence: Callable[[], Presence] | None = None,
    ) -> None:
        self.database = database
        self.vitals = Vitals()
        self._leases_of_children, self._presence, self.stacks = children, presence, StackRequests()
        self._due_at = 0.0
        self._idle = True
        self._looked_at = time.monotonic()  # last check of the leases
        self._shortest = float("inf")  # the shortest lease so far
        self._present_at = float("-inf")
        self.standing: Standing | None = None  # the latest known position in the fleet
        self._skipped: Beaten = []
        self._watched: dict[int, float] = {}  # until when, by job; other threads add jobs
        self._watched_at = 0.0
        self.extended_at = float("-inf")  # the last heartbeat that extended a lease, by the monotonic clock
        self.failing_since = 0.0  # 0: heartbeats do not fail
        self.recovered_at = float("-inf")  # the first success after failures for a third of a lease

    @property
    def fleet_size(self) -> int:
        """Return how many live workers serve the same queues, including this one."""
        return 1 if self.standing is None else self.standing.total

    def run_once(self) -> float:
        """Send a heartbeat if it is due. Return the seconds until the next check."""
        now = time.monotonic()
        children = self._leases_of_children()
        shortest = min((child.shortest_ttl() for child in children), default=float("inf"))
        self._shortest = min(self._shortest, shortest)
        interval = min(shortest / BEATS_PER_LEASE, conf.current().heartbeat_interval.total_seconds())
        if shortest == float("inf"):
            self._idle = True
        elif self._idle or self._due_at > now + interval:
            self._due_at = self._looked_at + _early(interval)  # the leases were granted since the last check
            self._idle = False
        self._looked_at = now
        if not self._idle and now >= self._due_at:
            for child in children:
                child.forget_progress()
            # Leave out leases that are known as lost and not released yet, so that each loss is counted once.
            self._beat([(child, held) for child in children for held in child.held() if not child.is_marked_lost(held)])
            # A second try for locked rows does not count as a heartbeat, and is not late.
            self.vitals.beats += 1
            self.vitals.delays.add(time.monotonic() - self._due_at)
            self._due_at = now + _early(interval)
        elif self._skipped:
            self._beat(self._skipped)
        elif self._watched and now >= self._watched_at + BETWEEN_WATCHED:
            self._watched_at = now
            self._save_watched(children, now)
        if self._presence is not None:
            self._tell_presence(now, self._presence)
        if self.standing is not None:
            for child in children:  # new children soon get it, too
                child.note_standing(self.standing.rank, self.standing.total)
        tick = IDLE_TICK if self._idle and self._shortest >= SHORT_LEASE else TICK
        return PAUSE_BEFORE_SKIPPED if self._skipped else min(tick, interval / 2)

    def watch(self, job_id: int) -> None:
        """Note that a user is watching a job, if this worker has it."""
        if any(held.lease.job_id == job_id for child in self._leases_of_children() for held in child.held()):
            self._watched[job_id] = time.monotonic() + WATCHED_FOR

    def _save_watched(self, children: Sequence[SharedLeases], now: float) -> None:
        """Send a heartbeat for watched jobs with new progress."""
        for job_id, until in list(self._watched.items()):
            if now > until:
                del self._watched[job_id]
        self._beat(
            [
                (child, held)
                for child in children
                if child.progress
                for held in child.held()
                if held.lease.job_id in self._watched
                and held.lease in child.progress
                and not child.is_marked_lost(held)
            ]
        )

    def farewell(self) -> None:
        """Record that this worker stops."""
        if self._presence is not None:
            said = self._presence()
            self.database.call(Worker.objects.db_manager(self.database.alias).farewell, said.name, said.boot_id)

    def _beat(self, beaten: Beaten) -> None:
        leases = [held.lease for _, held in beaten]
        if not leases:
            self._skipped = []
            return
        taken = {held.lease: child.progress.pop(held.lease, None) for child, held in beaten}
        progress = {lease: saved for lease, saved in taken.items() if saved is not None}
        sent_at = time.monotonic()
        try:
            beat = self.database.call(self.database.jobs.heartbeat, leases, progress)
        except Exception as error:
            self.vitals.failures += 1
            if fault_of(error) is not DatabaseFault.MISTAKE:
                self.failing_since = self.failing_since or sent_at
            self._give_back(beaten, progress)
            raise
        now, since, self.failing_since = time.monotonic(), self.failing_since, 0.0
        if since and now - since >= conf.current().lease_ttl.total_seconds() / BEATS_PER_LEASE:
            self.recovered_at = now  # leases may have expired, if the last heartbeat is long ago
        if beat.alive:
            self.extended_at = now
        self._skipped = [one for one in beaten if one[1].lease in beat.skipped]
        self._give_back(self._skipped, progress)
        for child in {id(child): child for child, _ in beaten}.values():
            mine = [held for other, held in beaten if other is child]
            child.extended([held for held in mine if held.lease in beat.alive], sent_at)
            child.lost(lost := [held for held in mine if held.lease in beat.lost])
            # A lease that is missing because its run was just settled does not count. A refused settle counts itself.
            self.vitals.refused["heartbeat"] += sum(not child.is_ending(held) for held in lost)
            child.cancelled([held for held in mine if held.lease in beat.cancelled])

    def _give_back(self, beaten: Beaten, progress: dict[Lease, str]) -> None:
        for child, held in beaten:
            if held.lease in progress:
                child.progress.setdefault(held.lease, progress[held.lease])

    def _tell_presence(self, now: float, presence: Callable[[], Presence]) -> None:
        """Record regularly that this worker is alive. Also answer requests for stacks."""
        settings, workers = conf.current(), Worker.objects.db_manager(self.database.alias)
        interval = settings.heartbeat_interval.total_seconds()
        if self._idle:
            longest = LONGEST_PRESENCE * settings.lease_ttl.total_seconds()
            interval = slowed(interval, self.fleet_size, PRESENCE_SLOWED_BY, longest)
        if now - self._present_at >= interval:
            self._present_at = now
            self.standing = self.database.call(workers.note, presence(), settings.worker_silence)
            if self.standing.stack_wanted is not None:
                self.stacks.ask(self.standing.stack_wanted)
        for job_id, text in self.stacks.answers():
            said = presence()
            self.database.call(workers.answer_stack, said.name, said.boot_id, job_id, text)


def _early(interval: float) -> float:
    return interval * random.uniform(1 - JITTER, 1.0)  # noqa: S311 - no secret
