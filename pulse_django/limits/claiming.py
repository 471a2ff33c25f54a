"""Claims jobs with limits for a worker: declares limits before the first claim, and keeps the marks of claims."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pulse_django import conf
from pulse_django.models import Limiter
from pulse_django.queue.capability import (
    CallFields,
    Capability,
    Group,
    Internals,
    LaneClaim,
    StepDone,
    SweepStep,
    WorkerDatabase,
)
from pulse_django.queue.claim import Slots
from pulse_django.queue.declarations import scope_of_code
from pulse_django.queue.words.lane_keys import key_of, limiter_of_queue
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from pulse_django.run.registry import Task

from . import keys as lane_keys
from .after_run import AfterLimitedRun
from .claim_limited import claim_limited
from .conditions import CONDITIONS
from .keys import declared_limits, limiters_of_claim
from .why import WhyOfLimits

# Seconds until it tries a lock of another claimer again. A claimer holds it for the duration of a statement.
CONTENDED_FOR = (0.001, 0.004)


class LimitedLanes:
    def __init__(self, database: WorkerDatabase, identity: Identity) -> None:
        self._database, self._identity = database, identity
        self._marks = LaneMarks()
        self._are_declared = False  # the limits of the code that this process has loaded

    def group_of(self, lane: Lane) -> Group:
        """Return the names of the limits that apply to jobs of the lane."""
        return limiters_of_claim(lane.queue, lane.key)

    def prepare(self) -> None:
        """Store new limits. The keeper stores those that have changed."""
        if self._are_declared:
            return
        limiters = Limiter.objects.db_manager(self._database.alias)
        if limits := declared_limits():
            self._database.call(limiters.declare_new, scope_of_code(), limits)
        self._are_declared = True

    def claim(
        self, limits: Group, lanes: Sequence[Lane], takes: Mapping[Lane, int], *, limit: int, slots: Slots
    ) -> LaneClaim:
        of_queue = limiter_of_queue(lanes[0].queue)
        limiter, queue = "" if limits[0] == of_queue else limits[0], lanes[0].queue if of_queue in limits else None
        answer = self._database.call(
            claim_limited, self._database.jobs, self._identity, limiter, lanes, takes, limit=limit, slots=slots,
            queue=queue, marks=self._marks.known,
        )  # fmt: skip
        self._marks.learn(answer.version, answer.marks)
        shut_for = answer.due_in
        if answer.is_contended:
            shut_for = random.uniform(*CONTENDED_FOR)  # noqa: S311 - no secret
        return LaneClaim(answer.claims, answer.allowed, shut_for, answer.refusal, answer.may_wait)


def share_of(lane_key: str) -> float:
    """Return the weight of a key among the lanes of one priority."""
    return conf.current().fair_weights.get(key_of(lane_key) or "", 1.0)


class ForgettingFullBuckets(SweepStep):
    name = "full buckets"
    is_housekeeping = True

    def run(self, database: WorkerDatabase) -> StepDone:
        database.call(Limiter.objects.db_manager(database.alias).forget_full_buckets)
        return StepDone()


class LaneKeyField(CallFields):
    """The lane key of a new job."""

    def is_used(self, task: Task) -> bool:
        return lane_keys.has_lane_key(task)

    def fields(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {"lane_key": lane_keys.lane_key_of_call(task, args, kwargs)}

    def waits(self, task: Task) -> bool:
        return callable(lane_keys.key_source_of(task))


CAPABILITY = Capability(
    name="limits",
    exists="EXISTS (SELECT 1 FROM pulse_django_limiter)",
    call_fields=LaneKeyField(),
    why=WhyOfLimits(),
    conditions=CONDITIONS,
    sweeps=(ForgettingFullBuckets(),),
    internals=Internals(claimer=LimitedLanes, share_of=share_of, parts=(AfterLimitedRun(),)),
)


# Seconds after the first lock of a scope until its mark is used. A claim that began before the scope had a limit, and
# took no lock, has ended by then.
SETTLES_IN = 15.0
MOST_SCOPES = 10_000


class LaneMarks:
    """The smallest tokens that runs of a limit can have, so that counting does not read runs that ended long ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[tuple[str | None, str], float] = {}  # first lock, by version and scope
        self.known: dict[str, int] = {}

    def learn(self, version: str | None, marks: Mapping[str, int]) -> None:
        """Keep the marks of a claim, for this version of the row of its limiter."""
        now = self._clock()
        if len(self._since) > MOST_SCOPES:
            self._since.clear()
            self.known.clear()
        for scope, mark in marks.items():
            if now - self._since.setdefault((version, scope), now) > SETTLES_IN:
                self.known[scope] = mark
