"""Explain why a job does not run: the reasons, its position, and when it may start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pulse_django.health.snapshot import to_json
from pulse_django.queue.capability import Bound
from pulse_django.queue.database.read_only import read_only
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.states import CLAIMABLE, Status
from pulse_django.shards.placement import locate

from . import asking, reasons
from .asking import starts_in
from .facts import JobFacts
from .reasons import Reason as Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The reasons that a job does not run, at one instant."""

    job_id: int  # of the job, in its database
    status: Status  # of the job
    now: datetime  # by the server's clock
    reasons: Sequence[Reason]  # at least one, the most important first
    position: int | None = None  # due jobs before it, in its lane or with a higher priority; None: it is not due
    is_more: bool = False  # there are more jobs before it than were counted
    starts_in: tuple[timedelta, timedelta] | None = None  # minimum and maximum; None: unknown

    @property
    def is_blocked(self) -> bool:
        """Whether something prevents the job from starting."""
        waits = self.status in CLAIMABLE or self.status is Status.WAITING
        return waits and self.reasons[0].code not in ("free", "expires", "needs-met")

    @property
    def place(self) -> str:
        """The position as text: ``10,000+`` if there are more than were counted, "" without a position."""
        return "" if self.position is None else reasons.counted(self.position + self.is_more)

    @property
    def span(self) -> list[str]:
        """The minimum and the maximum of ``starts_in`` as text, or [] if it is unknown."""
        return [in_words(one.total_seconds()) for one in self.starts_in or ()]

    def to_json(self) -> dict[str, Any]:
        said: dict[str, Any] = to_json({name: getattr(self, name) for name in self.__slots__})
        return said | {"job": said.pop("job_id"), "reasons": [to_json(reason.to_json()) for reason in self.reasons]}


def explain(job_id: int | str, *, using: str | None = None) -> Explanation:
    """Explain why a job does not run: the reasons, its position, and when it may start. Read-only.

    Raises ``Job.DoesNotExist``.
    """
    where = locate(job_id, using)
    with read_only(where.alias):
        return explained(where.alias, where.id)


def explained(alias: str, job_id: int) -> Explanation:
    """Explain a job in the current transaction, if there is one. This takes at most five statements."""
    job = asking.job(alias, job_id)
    if job.status == Status.WAITING:
        waits = [reason for one in reasons.whys() for reason in one.of_waiting(alias, job)]
        return _explanation(job, [*reasons.asked_to_stop(job), *waits])
    if not job.waits:
        return _explanation(job, reasons.not_waiting(job))
    found = reasons.lasting(job)
    bounds = [bound for one in reasons.whys() for bound in one.bounds(alias, job)]
    if not job.is_due or job.is_expired:
        lasting = {code for one in reasons.whys() for code in one.closed}
        closed = [reason for bound in bounds for reason in bound.reasons(job) if reason.code in lasting]
        return _explanation(job, reasons.in_order([*found, *closed]) + reasons.note(job))
    return _in_line(alias, job, bounds, found)


def _in_line(alias: str, job: JobFacts, bounds: Sequence[Bound], found: list[Reason]) -> Explanation:
    """Explain a job that is due."""
    line = asking.line(alias, job)
    for bound in bounds:
        found += bound.reasons(job)
    found = reasons.in_order([*found, *reasons.momentary(job, line)])
    ahead = line.higher + line.own
    is_stuck = any(reasons.is_stuck(reason) for reason in found)
    return _explanation(
        job,
        (found or [Reason(code="free")]) + reasons.note(job),
        position=min(ahead, reasons.COUNTED),
        is_more=ahead > reasons.COUNTED,
        starts_in=None if is_stuck else starts_in(job, found, line, asking.pace(alias, job), bounds),
    )


def _explanation(job: JobFacts, found: list[Reason], **place: Any) -> Explanation:
    return Explanation(job_id=job.id, status=Status(job.status), now=job.now, reasons=found, **place)
