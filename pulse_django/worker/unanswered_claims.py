"""Claims whose answer was lost: their jobs are handed back, as soon as the database can be reached."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pulse_django import conf
from pulse_django.safe_logging import SafeLogger
from pulse_django.words.decisions import Postpone
from pulse_django.words.leases import Lease
from pulse_django.words.outcomes import Released
from pulse_django.words.verb_results import Report

from .guarded_connection import GuardedConnection

logger = SafeLogger("pulse_django.worker")

# Seconds until the second look. A claim may be committed after the first: each pause is twice the one before it.
FIRST_PAUSE = 0.1
REASON = "the answer to its claim was lost"


@dataclass(slots=True)
class UnansweredClaim:
    holder: str
    until: float  # what it was granted runs out by itself then
    look_at: float
    pause: float = FIRST_PAUSE


class UnansweredClaims:
    """A holder belongs to one claim and is known before it is sent, so what it holds can be found."""

    def __init__(self, database: GuardedConnection) -> None:
        self._database = database
        self._claims: list[UnansweredClaim] = []

    def __len__(self) -> int:
        return len(self._claims)

    def add(self, holder: str) -> None:
        """Note a claim that was sent, and of which nothing was heard."""
        now = time.monotonic()
        self._claims.append(UnansweredClaim(holder, now + conf.current().lease_ttl.total_seconds(), now))

    def next_look(self) -> float:
        """Return in how many seconds the next look is due."""
        return min((one.look_at for one in self._claims), default=float("inf")) - time.monotonic()

    def look(self, *, at_all: bool = False) -> None:
        """Hand back what claims without an answer were granted. ``at_all``: also where it is not time yet."""
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
        reports = [Report(lease, Released(reason=REASON), Postpone(Released().delay)) for lease in leases]
        settled = self._database.call(self._database.jobs.settle, reports)
        logger.warning("Returning %d jobs: %s", len(settled.accepted), REASON)
        return True
