"""Claim jobs: only as many as can begin soon, and in few statements if there are many."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

from pulse_django import conf
from pulse_django.queue.database.database_errors import DatabaseFault, fault_of
from pulse_django.queue.database.lane_queries import WaitingLane
from pulse_django.queue.words.lanes import NOT_AGED, Lane, levels_gained
from pulse_django.queue.words.leases import Identity, Lease
from pulse_django.run.notify import ANY_QUEUE, SILENCE, WakeUp, pass_on
from pulse_django.run.run import Run
from pulse_django.safe_logging import SafeLogger

from .guarded_connection import LONGEST_POLL, POLLS_SLOWED_BY, GuardedConnection, slowed
from .in_flight import InFlight
from .lanes import Granted, KeyedLanes, PlainLanes
from .worker_options import WorkerOptions

T = TypeVar("T")

# Seconds for which known lanes are reused while there is a backlog. If longer, a new lane with a higher priority waits.
# If shorter, searches for lanes are wasted.
LANES_KEPT = 1.0
JITTER = 0.2
# After a claim of at most FEW jobs, yield before the message to the keeper: the threads of the handlers wait for the
# interpreter.
FEW, YIELD = 4, 0.00005
LOCKED_PAUSE = 0.05  # seconds until the next try, while another session has locked jobs to make ready
# While notifications arrive, the pause between two polls is multiplied by this. If it is larger, a job whose
# notification was lost waits longer.
HEARING_SLOWS_BY = 5


class Claimer:
    def __init__(
        self,
        options: WorkerOptions,
        database: GuardedConnection,
        identity: Identity,
        in_flight: InFlight,
        start: Callable[[Sequence[Run]], None],
        found_work: Callable[[str, bool], None],
        drained: Callable[[], None],
        share_changed: Callable[[], None] | None = None,
    ) -> None:
        """``share_changed`` tells other shards that they may use more slots, although no run has ended."""
        self.database = database
        self.hears = False  # notifications arrive, and polls are only a safety net
        self.drained = False  # at the last look, nothing was due or running
        self._options, self._identity, self._in_flight = options, identity, in_flight
        self._start, self._found_work = start, found_work
        self._tell_drained, self._tell_share_changed = drained, share_changed
        self._news = Event()
        self._waits_for_slots = self._freed = False  # it waits for slots; some were freed since its last look
        self._lacks_room = self._is_away = False  # no free slots; no answer of the database to the last look
        self._woken: str | None = None
        self._woken_last: str | None = None  # until the second look is done
        self._following = WakeUpForwarder()
        self._look_again_at = float("inf")
        self._look_at = float("-inf")  # for jobs without a notification
        self._lanes: list[Lane] = []
        self._lanes_at = float("-inf")
        self._aged: Mapping[Lane, int] = NOT_AGED
        self._seen: dict[str, set[Lane]] = {}  # by queue, since this process began
        self._unanswered = UnansweredClaims(database)
        self._plain = PlainLanes(database, identity, in_flight)
        self.keyed = KeyedLanes(database, identity, in_flight, self._plain)
        self._turn = random.randrange(1_000)  # noqa: S311 - workers should not rotate in step

    def wake(self, queue: str, following: str | None = None) -> None:
        """Look for jobs at once, because there may be work in that queue. Another thread calls it.

        ``following`` is the notification for other workers, if there are more jobs than free slots here.
        """
        self._woken = queue
        self._following.add(following)
        self._news.set()

    def slot_freed(self, *, by_other_shard: bool = False) -> None:
        """Note that a slot may be free. Other threads call it often. Other shards only wake it if it lacks slots."""
        if by_other_shard and not self._lacks_room:
            return
        self._freed = True
        if self._waits_for_slots and self._in_flight.room() and self._has_wanted_slots:
            self._waits_for_slots = False
            self._news.set()

    def look_soon(self) -> None:
        """Look soon for the next due time, because a job will run again. Another thread calls it."""
        self.drained = False
        if self._waits_for_slots:
            self._news.set()

    def interrupt(self) -> None:
        self._news.set()

    def run_once(self) -> float:
        """Claim jobs for the free slots, or wait for a wake-up."""
        try:
            return self._run_once()
        except BaseException:
            self._is_away = True  # other shards need not wait for this one
            self._has_looked(wants_jobs=False)
            raise

    def _run_once(self) -> float:
        self._unanswered.look()
        self._waits_for_slots, self._freed = True, False
        if self._news.is_set() or time.monotonic() >= self._look_at:
            self._in_flight.wants_jobs = not self._is_away
        self._news.clear()
        self._lacks_room = True  # set it first: a thread that frees a slot now reads it
        self._lacks_room = not (limit := self._in_flight.room())
        if not limit:
            self._news.wait(min(self._until_poll(), self._wake_others()))
            return 0.0
        self._waits_for_slots = False
        woken, self._woken = self._woken, None
        if woken is not None:
            self._look_again_at, self._woken_last = time.monotonic() + SILENCE, woken
        self._in_flight.reserved = 0 if self._is_away else limit  # slots that the claims of other shards leave free
        pause = self._look(1 if self._is_away else limit, woken)
        self._is_away = False
        self._has_looked(wants_jobs=pause <= 0)
        self._look_at = time.monotonic() + pause
        if pause > 0 and not self._news.is_set():
            self._waits_for_slots = True
            if not (self._freed and self._has_wanted_slots):
                self._news.wait(pause)
        return 0.0

    def _has_looked(self, *, wants_jobs: bool) -> None:
        self._in_flight.reserved, self._in_flight.wants_jobs = 0, wants_jobs
        if self._tell_share_changed is not None:
            self._tell_share_changed()

    @property
    def _has_wanted_slots(self) -> bool:
        return (wanted := self.keyed.wanted_slots) is None or self._in_flight.free_slots >= wanted

    def farewell(self) -> None:
        """Look once more for claims whose answer was lost."""
        if self._unanswered:
            self._unanswered.look(at_all=True)
            self.database.hang_up()

    def _look(self, limit: int, woken: str | None) -> float:
        """Claim jobs. Return the seconds until more may be due."""
        guess = self._guess(woken)
        if guess and self._claim(limit, guess):
            return 0.0
        now, was_idle = time.monotonic(), self._in_flight.is_idle
        fresh = now - self._lanes_at > LANES_KEPT
        if fresh:
            waiting: list[WaitingLane] = self.database.call(
                self.database.jobs.waiting, self._options.queues or None, self.keyed.cursors
            )
            if any(one.due_in <= 0 and not one.ready for one in waiting):
                return 0.0 if self.database.call(self.database.jobs.promote) else LOCKED_PAUSE
            self._lanes = [one.lane for one in waiting if one.due_in <= 0]
            self._lanes_at = now
            for lane in self._lanes:
                self._seen.setdefault(lane.queue, set()).add(lane._replace(key="*" if lane.key else ""))
            self.keyed.saw(self._lanes)
            if ageing := conf.current().priority_ageing.total_seconds():
                self._aged = levels_gained({one.lane: -one.due_in for one in waiting}, ageing)
            if not self._lanes:
                return self._nothing_due([one.due_in for one in waiting], was_idle)
        if self._claim(limit, self._lanes, are_due=fresh):
            return 0.0
        if (pause := self.keyed.closed_for()) > 0:
            return min(pause, self._until_poll())
        if not fresh:
            return 0.0  # only known lanes were used, and others may have jobs
        return self._nothing_due([], was_idle)

    def _guess(self, woken: str | None) -> list[Lane]:
        """Return the lanes in which a woken worker will most likely find the job. It saves a query."""
        if not woken or self._lanes_at != float("-inf") or (self._options.queues and woken not in self._options.queues):
            return []
        # Only if the queue had a single priority lately. With several, an unknown lane could have to come first.
        lanes = self._seen.get(woken, set())
        return list(lanes) if len(lanes) == 1 and not any(lane.key for lane in lanes) else []

    def _claim(self, limit: int, lanes: Sequence[Lane], *, are_due: bool = False) -> bool:
        """Claim from these lanes. ``are_due``: they are known to have due jobs.

        A successful claim begins the next turn. While slots are collected for a heavy job, its lane stays first.
        """
        if any(lane.key for lane in lanes):  # share slots among lanes, and apply limits
            found, self._lanes = self._grant(self.keyed.claim(limit, lanes, self._turn, self._aged))
            if not self._lanes:
                self._lanes_at = float("-inf")
        else:
            self.keyed.wanted_slots = None
            found = len(self._grant(self._plain.claim(limit, lanes, self._turn, self._aged, are_due=are_due)))
            if found < limit:
                self._lanes_at = float("-inf")  # these are empty now, or the rest does not fit yet
        self._turn += found > 0
        return found > 0

    def _grant(self, claiming: Generator[Granted, None, T]) -> T:
        """Start the jobs of each claim as soon as it is answered. Return the result of all."""
        while True:
            before = self._identity.last_holder
            try:
                sent_at, claims, limit = next(claiming)
            except StopIteration as end:
                result: T = end.value
                return result
            except Exception as error:
                # After any other error, the claim was rolled back. Without a new holder, it was not sent.
                if fault_of(error) is DatabaseFault.CUT_OFF and self._identity.last_holder != before:
                    self._unanswered.add(self._identity.last_holder)
                raise
            if claims:
                self.drained = False
                self._start(self._in_flight.take(claims, sent_at))
                if len(claims) <= FEW:
                    time.sleep(YIELD)
                if self._woken_last is not None:
                    self._found_work(self._woken_last, len(claims) == limit)
                if len(claims) == limit:
                    self._wake_others()

    def _wake_others(self) -> float:
        """Notify the next workers, at most a few times a second. Return the seconds until the next try."""
        if (due_in := self._following.due_in()) > 0:
            return due_in
        following = self._following.taken()
        self.database.call(pass_on, self.database.alias, following)
        if self._following.payload == following:  # no other one came meanwhile
            self._following.payload = None
        self._found_work(ANY_QUEUE, False)  # the wake-up found work
        return float("inf")

    def _nothing_due(self, due_in: Sequence[float], was_idle: bool) -> float:
        self._lanes_at = float("-inf")
        self.drained = was_idle and self._in_flight.is_idle and not self._unanswered
        if self.drained and self._options.burst:
            self._tell_drained()
        now = time.monotonic()
        if now >= self._look_again_at:
            self._look_again_at, self._woken_last = float("inf"), None
            if self._woken is None and not any(one < self._until_poll() for one in due_in):
                self._following.payload = None  # this worker has slots for all due jobs
        self._following.between = BETWEEN_PASSING_ON
        soonest = max(0.001, min([self._unanswered.next_look(), *due_in]))
        return min(self._until_poll(), max(0.0, self._look_again_at - now), soonest)

    def _until_poll(self) -> float:
        interval = conf.current().poll_interval.total_seconds()
        if self.hears:
            interval = slowed(interval * HEARING_SLOWS_BY, self._in_flight.fleet_size, POLLS_SLOWED_BY, LONGEST_POLL)
        return interval * random.uniform(1 - JITTER, 1.0)  # noqa: S311 - no secret


# Claims whose answer was lost. Their jobs go back to the queue as soon as the database can be reached.


logger = SafeLogger("pulse_django.worker")

# Seconds until the second look, doubled each time. A claim may still be committed after the first look.
FIRST_PAUSE = 0.1
REASON = "the answer to its claim was lost"


@dataclass(slots=True)
class UnansweredClaim:
    holder: str
    until: float  # when its leases expire anyway
    look_at: float
    pause: float = FIRST_PAUSE


class UnansweredClaims:
    """Claims without an answer. The holder of a claim is known before it is sent, so its jobs can be found."""

    def __init__(self, database: GuardedConnection) -> None:
        self._database = database
        self._claims: list[UnansweredClaim] = []

    def __len__(self) -> int:
        return len(self._claims)

    def add(self, holder: str) -> None:
        """Note a claim that was sent and not answered."""
        now = time.monotonic()
        self._claims.append(UnansweredClaim(holder, now + conf.current().lease_ttl.total_seconds(), now))

    def next_look(self) -> float:
        """Return the seconds until the next look."""
        return min((one.look_at for one in self._claims), default=float("inf")) - time.monotonic()

    def look(self, *, at_all: bool = False) -> None:
        """Return the jobs of claims without an answer to the queue. ``at_all``: also before their next look is due."""
        now = time.monotonic()
        for claim in list(self._claims):
            if at_all or now >= claim.look_at:
                found = self._hand_back(claim.holder)
                claim.look_at, claim.pause = now + claim.pause, 2 * claim.pause
                if found or claim.look_at > claim.until:
                    self._claims.remove(claim)

    def _hand_back(self, holder: str) -> bool:
        leases: list[Lease] = self._database.call(self._database.jobs.leases_of, holder)
        if not leases:
            return False
        settled = self._database.call(self._database.jobs.release, leases, reason=REASON)
        logger.warning("Returning %d jobs: %s", len(settled.accepted), REASON)
        return True


# Wakes other workers if this one was woken and does not have enough free slots.

# Seconds, doubled each time while there are no free slots. Otherwise all workers of a busy fleet would pass on each
# notification.
BETWEEN_PASSING_ON, MOST_BETWEEN_PASSING_ON = 0.2, 3.2


class WakeUpForwarder:
    """Keeps the notification to pass on that wakes the most workers, and limits how often it is sent."""

    def __init__(self) -> None:
        self.payload: str | None = None
        self.passed_on_at, self.between = float("-inf"), BETWEEN_PASSING_ON

    def add(self, payload: str | None) -> None:
        """Keep the notification that wakes more workers: the one whose places come first."""
        if payload is None or self.payload is None:
            self.payload = payload or self.payload
        else:
            self.payload = min(payload, self.payload, key=lambda one: WakeUp.read(one).first)

    def due_in(self) -> float:
        """Return the seconds until it may be sent. Infinite: there is nothing to send."""
        if self.payload is None:
            return float("inf")
        return max(0.0, self.passed_on_at + self.between - time.monotonic())

    def taken(self) -> str:
        """Return the notification to send now, and double the pause before the next one."""
        assert self.payload is not None  # noqa: S101 - for the type checker: ``due_in`` was finite
        self.passed_on_at = time.monotonic()
        self.between = min(2 * self.between, MOST_BETWEEN_PASSING_ON)
        return self.payload
