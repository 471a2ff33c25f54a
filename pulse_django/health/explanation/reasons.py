"""Derive the reasons that a job does not run from facts, the most important first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pulse_django.queue.capability import Why, installed
from pulse_django.queue.gates import gates
from pulse_django.queue.words.display import in_words, inert
from pulse_django.queue.words.outcomes import CANNOT_DECRYPT
from pulse_django.queue.words.states import Status

from .facts import JobFacts, LineFacts

COUNTED = 10_000  # jobs of each kind, at most
OVER = {Status.COMPLETED: "completed", Status.DEAD_LETTERED: "dead-letter", Status.CANCELLED: "cancelled"}


def counted(number: int) -> str:
    """Return a bounded count as text."""
    return f"{number:,}" if number <= COUNTED else f"{COUNTED:,}+"


def not_waiting(job: JobFacts) -> list[Reason]:
    """Explain a job that is running or has ended."""
    if (code := OVER.get(Status(job.status))) is not None:
        return [Reason(code=code, facts={"status": job.status, "at": job.finished_at})]
    facts = {"worker": job.locked_by, "at": job.started_at}
    if job.is_lease_expired:
        reasons = [Reason(code="lease-expired", facts=facts | {"at": job.lease_until})]
    else:
        reasons = [Reason(code="running", until=job.lease_until, facts=facts)]
    return [*reasons, *asked_to_stop(job)]


def lasting(job: JobFacts) -> list[Reason]:
    """Return the reasons that do not depend on other running jobs."""
    reasons = [*_of_gates(job), *asked_to_stop(job), *_of_workers(job)]
    if not job.is_due:
        reasons.append(Reason(code="not-due", until=job.next_run_at))
    return reasons


def _of_gates(job: JobFacts) -> Iterator[Reason]:
    names = {"queue": job.queue, "task": job.task, "key": job.key, "at": job.expires_at}
    for gate in job.shut:
        facts = {name: names[name] for one in gates() if one.code == gate.code for name in one.about}
        facts |= {name: text for name, text in (("reason", gate.reason), ("by", gate.shut_by)) if text}
        yield Reason(code=gate.code, until=gate.opens_at, facts=facts)


def momentary(job: JobFacts, line: LineFacts) -> Iterator[Reason]:
    """Return the reasons that end as other jobs run."""
    held = {gate.code for gate in gates() if gate.of_tasks}
    if not job.is_ready and held.isdisjoint(gate.code for gate in job.shut):
        yield Reason(code="set-aside", facts={"task": job.task}) if job.is_ready is None else Reason(code="not-ready")
    if job.able and not job.free:
        yield Reason(code="workers-busy", facts={"slots": job.slots})
    elif job.able and not job.has_room:
        yield Reason(code="waits-for-slots", facts={"weight": job.weight, "free": job.roomiest})
    if ahead := line.higher + line.own:
        facts = {"jobs": counted(ahead), "higher": counted(line.higher), "lane": counted(line.own)}
        yield Reason(code="behind", facts=facts)


def note(job: JobFacts) -> list[Reason]:
    if job.expires_at is None or job.is_expired:
        return []
    return [Reason(code="expires", until=job.expires_at)]


# Reasons that only a person, a deploy or a watchdog ends. So do gates, if their opening time is unknown.
STUCK = ("cancel-requested", "no-worker", "unknown-task", "key-missing")


def is_stuck(reason: Reason) -> bool:
    stuck = {*STUCK, *(gate.code for gate in gates()), *(code for one in whys() for code in one.stuck)}
    return reason.until is None and reason.code in stuck


def whys() -> list[Why]:
    """Return the reasons of capabilities."""
    return [one.why for one in installed() if one.why is not None]


def in_order(reasons: list[Reason]) -> list[Reason]:
    """Sort reasons: those that do not end by themselves, then by end, latest first, then those of running jobs."""

    def rank(reason: Reason) -> tuple[int, float]:
        if reason.until is not None:
            return 1, -reason.until.timestamp()
        return (0 if is_stuck(reason) else 2), 0.0

    return sorted(reasons, key=rank)


def asked_to_stop(job: JobFacts) -> list[Reason]:
    if job.cancel_requested_at is None:
        return []
    return [Reason(code="cancel-requested", facts={"at": job.cancel_requested_at})]


def _of_workers(job: JobFacts) -> Iterator[Reason]:
    queue = {"queue": job.queue}
    if not job.serving:
        yield Reason(code="no-worker", facts=queue)
    elif not job.able:
        yield Reason(code="unknown-task", facts=queue | {"task": job.task, "workers": job.serving})
    if job.put_back.startswith(CANNOT_DECRYPT):
        yield Reason(code="key-missing", facts={"reason": job.put_back.partition(": ")[2]})


# One reason: a code, a sentence, an end and facts.


MOST_SHOWN = 300  # characters of one fact in a sentence

# The codes are for programs, and do not change.
_SENTENCES: Mapping[str, Any] = {
    "completed": _("It completed at %(at)s."),
    "dead-letter": _("It has been a dead letter since %(at)s. Retry it to run it again."),
    "cancelled": _("It was cancelled at %(at)s."),
    "running": _("It has been running on %(worker)s since %(at)s. Its lease lasts until %(until)s if not extended."),
    "lease-expired": _("It was running on %(worker)s, and its lease expired at %(at)s. A watchdog ends this run."),
    "cancel-requested": _("It was asked to stop at %(at)s."),
    "no-worker": _("No live worker serves the queue %(queue)s."),
    "unknown-task": _("No live worker of the queue %(queue)s has the task %(task)s."),
    "key-missing": _("The worker that claimed it last could not decrypt it and put it back."),
    "not-due": _("It is not due before %(until)s."),
    "not-ready": _("It is due. A worker makes it ready within a moment."),
    "set-aside": _("The pause of the task %(task)s is over. A watchdog makes the job ready within a moment."),
    "workers-busy": _("All %(slots)s slots of the workers that can run it are in use."),
    "waits-for-slots": _("It weighs %(weight)s. No worker that can run it has so many free slots: at most %(free)s."),
    "behind": _("It waits for its turn. Jobs before it: %(jobs)s."),
    "expires": _("It is cancelled if it has not started by %(until)s."),
    "free": _("Nothing prevents it from running. It starts within a moment."),
}
REASON = _("Reason: %(reason)s.")
BY = _("Paused by: %(by)s.")
MORE = _("And %(more)s more.")
HELD_BY = _("Running: %(jobs)s.")
WEIGHS = _("It weighs %(weight)s, and each job counts by its weight.")


def sentences() -> Mapping[str, Any]:
    """Return the sentences by code. Some codes have a second one for a known end: ``code-until``."""
    of_gates = {gate.code: gate.sentence for gate in gates()}
    until = {f"{gate.code}-until": gate.sentence_until for gate in gates() if gate.sentence_until}
    of_others = {code: sentence for one in whys() for code, sentence in one.sentences.items()}
    return {**_SENTENCES, **of_gates, **until, **of_others}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a job does not start. ``code`` is documented. ``sentence`` is in the language of the reader."""

    code: str  # the name of the reason, for programs
    until: datetime | None = None  # when it ends by itself; None: unknown
    facts: Mapping[str, Any] = field(default_factory=dict)  # names and numbers in the sentence

    @property
    def sentence(self) -> str:
        """The reason as a sentence. Names are shown without control characters and marks of direction."""
        said = sentences()
        name = until if self.until is not None and (until := f"{self.code}-until") in said else self.code
        shown = {key: in_text(value) for key, value in self.facts.items()} | {"until": in_text(self.until)}
        parts = [str(said[name]) % shown]
        if self.facts.get("weight", 1) > 1 and self.facts.get("held_by"):
            parts.append(str(WEIGHS) % {"weight": shown["weight"]})
        if self.facts.get("more"):
            parts.append(str(MORE) % {"more": shown["more"]})
        if self.facts.get("reason"):
            parts.append(str(REASON) % {"reason": shown["reason"].rstrip(".")})
        if self.facts.get("by"):
            parts.append(str(BY) % {"by": shown["by"]})
        if self.facts.get("held_by"):
            parts.append(str(HELD_BY) % {"jobs": shown["held_by"]})
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "sentence": self.sentence, "until": self.until, "facts": dict(self.facts)}


def in_text(value: Any) -> str:
    """Return a fact as text for a sentence."""
    match value:
        case datetime():
            local = timezone.localtime(value) if timezone.is_aware(value) else value
            return f"{local:%Y-%m-%d %H:%M:%S %Z}".rstrip()
        case float():
            return in_words(value)
        case list():
            return ", ".join(f"#{one}" for one in value)
    return inert(str(value), MOST_SHOWN)
