"""Extends the leases of all children of a worker: one statement for a beat, however many there are."""

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
# Beats come up to this share early, so that the hosts of a fleet do not beat in step. Never late.
JITTER = 0.2
# Seconds between two looks at what is held: a lease shorter than those before it must not wait for their beat.
TICK = 0.1
# The same while nothing is held. Looking costs more than anything else that an idle worker does. A shorter lease than
# the second was seen: one like it could expire before the next look.
IDLE_TICK, SHORT_LEASE = 0.25, 1.0
# After a beat that had to leave out a locked row, until that row is looked at again.
PAUSE_BEFORE_SKIPPED = 0.1
# For how long the progress of a job is written each second after it was said that somebody looks at it: for longer than
# a page may go without being made anew (``changes_in``), which says it again.
WATCHED_FOR, BETWEEN_WATCHED = 40.0, 1.0


Beaten = list[tuple[SharedLeases, HeldLease]]  # of a child


@dataclass(slots=True)
class Vitals:
    """How the beats of this worker fared since it started. A lease has to outlive the delay of its next beat."""

    beats: int = 0
    failures: int = 0
    delays: Histogram = field(default_factory=Histogram)  # from when a beat was due to its answer, failures included
    refused: Counter[str] = field(default_factory=Counter)  # writes of runs that had lost their lease, by verb
    database_errors: int = 0  # of children; the keeper's own stand on its lines
    limit_refusals: Counters = field(default_factory=dict)  # claims that brought nothing, by limit and reason

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
        self._looked_at = time.monotonic()  # at what is held
        self._shortest = float("inf")  # lease that was held so far
        self._present_at = float("-inf")
        self.standing: Standing | None = None  # among the workers of the fleet, as it was lately
        self._skipped: Beaten = []
        self._watched: dict[int, float] = {}  # until when, by job; other threads add some
        self._watched_at = 0.0
        self.extended_at = float("-inf")  # by the monotonic clock: when a beat last extended a lease
        self.failing_since = 0.0  # 0: beats do not fail
        self.recovered_at = float("-inf")  # when they were written again, after a third of a lease

    @property
    def fleet_size(self) -> int:
        """How many live workers serve the same queues, this one included."""
        return 1 if self.standing is None else self.standing.total

    def run_once(self) -> float:
        """Beat if it is time. Return for how long to wait until the next look."""
        now = time.monotonic()
        children = self._leases_of_children()
        shortest = min((child.shortest_ttl() for child in children), default=float("inf"))
        self._shortest = min(self._shortest, shortest)
        interval = min(shortest / BEATS_PER_LEASE, conf.current().heartbeat_interval.total_seconds())
        if shortest == float("inf"):
            self._idle = True
        elif self._idle or self._due_at > now + interval:
            self._due_at = self._looked_at + _early(interval)  # what is held was granted since the last look
            self._idle = False
        self._looked_at = now
        if not self._idle and now >= self._due_at:
            for child in children:
                child.forget_progress()
            # Without leases that were answered as lost and are not released yet: each loss is counted once.
            self._beat([(child, held) for child in children for held in child.held() if not child.is_marked_lost(held)])
            # A second look at rows that were locked is no beat of its own, and is not late.
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
            for child in children:  # one that was born since then knows it soon, too
                child.note_standing(self.standing.rank, self.standing.total)
        tick = IDLE_TICK if self._idle and self._shortest >= SHORT_LEASE else TICK
        return PAUSE_BEFORE_SKIPPED if self._skipped else min(tick, interval / 2)

    def watch(self, job_id: int) -> None:
        """Take that somebody looks at a job, if it is one of this worker's."""
        if any(held.lease.job_id == job_id for child in self._leases_of_children() for held in child.held()):
            self._watched[job_id] = time.monotonic() + WATCHED_FOR

    def _save_watched(self, children: Sequence[SharedLeases], now: float) -> None:
        """Beat for jobs that somebody looks at, if there is something new to see."""
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
        """Say that this worker stops."""
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
            self.recovered_at = now  # leases may have run out, if the beat before is long ago
        if beat.alive:
            self.extended_at = now
        self._skipped = [one for one in beaten if one[1].lease in beat.skipped]
        self._give_back(self._skipped, progress)
        for child in {id(child): child for child, _ in beaten}.values():
            mine = [held for other, held in beaten if other is child]
            child.extended([held for held in mine if held.lease in beat.alive], sent_at)
            child.lost(lost := [held for held in mine if held.lease in beat.lost])
            # A beat that met its own run's settle was not refused; if that settle was, it is counted there.
            self.vitals.refused["heartbeat"] += sum(not child.is_ending(held) for held in lost)
            child.cancelled([held for held in mine if held.lease in beat.cancelled])

    def _give_back(self, beaten: Beaten, progress: dict[Lease, str]) -> None:
        for child, held in beaten:
            if held.lease in progress:
                child.progress.setdefault(held.lease, progress[held.lease])

    def _tell_presence(self, now: float, presence: Callable[[], Presence]) -> None:
        """Say now and then that this worker lives; and where the handlers are of which operators asked."""
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
