"""From facts to reasons: what stands in the way of a job, the most binding first. Nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pulse_django.queue.gates import gates
from pulse_django.queue.words.display import in_words, inert
from pulse_django.queue.words.outcomes import CANNOT_DECRYPT
from pulse_django.queue.words.states import Status
from pulse_django.workflows.reading import NeedFacts
from pulse_django.workflows.rules import When

from . import asking
from .facts import JobFacts, LimitFacts, LineFacts

OVER = {Status.COMPLETED: "completed", Status.DEAD_LETTERED: "dead-letter", Status.CANCELLED: "cancelled"}


def counted(number: int) -> str:
    """Spell what was counted up to a bound."""
    most = asking.COUNTED
    return f"{number:,}" if number <= most else f"{most:,}+"


def not_waiting(job: JobFacts) -> list[Reason]:
    """Explain a job that is running or over."""
    if (code := OVER.get(Status(job.status))) is not None:
        return [Reason(code=code, facts={"status": job.status, "at": job.finished_at})]
    facts = {"worker": job.locked_by, "at": job.started_at}
    if job.is_lease_expired:
        reasons = [Reason(code="lease-expired", facts=facts | {"at": job.lease_until})]
    else:
        reasons = [Reason(code="running", until=job.lease_until, facts=facts)]
    return [*reasons, *asked_to_stop(job)]


def lasting(job: JobFacts) -> list[Reason]:
    """Return what holds however many jobs run now: first what nobody but a person ends, then what ends last."""
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


def of_limit(job: JobFacts, limit: LimitFacts) -> Iterator[Reason]:
    names = {"limit": limit.name, "key": limit.key}
    full = {"held": counted(limit.held), "held_by": limit.held_by} | names
    if limit.is_closed:
        yield Reason(code="limit-closed", until=limit.closed_until, facts={"reason": limit.closed_reason} | names)
    if limit.is_half_open and limit.held:
        yield Reason(code="limit-half-open", facts=full)
    if limit.running is not None:
        yield from _full("limit-full", job.weight, limit.held, full | {"most": limit.running})
    if limit.per_key is not None:
        of_key = {"held": counted(limit.held_of_key), "most": limit.per_key, "held_by": limit.key_held_by}
        yield from _full("key-full", job.weight, limit.held_of_key, names | of_key)
    for code, tokens, next_in in (
        ("rate", limit.tokens, limit.next_in), ("key-rate", limit.key_tokens, limit.key_next_in)
    ):  # fmt: skip
        if tokens is not None and tokens < 1 and next_in is not None:
            yield Reason(code=code, until=job.now + timedelta(seconds=next_in), facts=names | {"wait": next_in})


def _full(code: str, weight: int, held: int, facts: dict[str, Any]) -> Iterator[Reason]:
    """Explain a number that has no room for a job of this weight."""
    if weight > 1:
        facts = facts | {"weight": weight}
    if weight > facts["most"]:
        yield Reason(code="too-heavy", facts=facts | {"held_by": []})
    elif held + weight > facts["most"]:
        yield Reason(code=code, facts=facts)


def momentary(job: JobFacts, line: LineFacts) -> Iterator[Reason]:
    """Return what ends as other jobs run."""
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


# What only a person, a deploy or a watchdog ends; gates as well, if it is not known when they open.
STUCK = ("cancel-requested", "too-heavy", "no-worker", "unknown-task", "key-missing")


def is_stuck(reason: Reason) -> bool:
    return reason.until is None and (reason.code in STUCK or any(gate.code == reason.code for gate in gates()))


def in_order(reasons: list[Reason]) -> list[Reason]:
    """Sort: first what does not end by itself, then by their ends, the latest first, then what ends as others run."""

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


# From needs to reasons: what a WAITING job waits for, first what only a person ends. Nothing is read here.


MOST_NEEDS = 1_000  # that are looked at
MOST_NAMED = 10

_OF_BATCH = {When.CLOSED: "waits-for-batch", When.ENDED: "waits-for-end", When.DEAD: "waits-for-dead-letter"}


def reasons_of(needs: Sequence[NeedFacts], paused: asking.PausedBatch | None) -> list[Reason]:
    """Explain a job by the needs of it that are not met, and by its batch if that is paused."""
    found = []
    if paused is not None:
        found.append(Reason(code="batch-paused", facts={"batch": paused.id, "name": paused.name}))
    if held_by := [job_id for need in needs for job_id in need.held_by]:
        found.append(Reason(code="held-by-dead-letter", facts=_named(held_by)))
    found += _of_batches(needs)
    found += [
        Reason(code="waits-for-event", until=need.until, facts={"event": need.event})
        for need in needs
        if need.event is not None
    ][:MOST_NAMED]
    if jobs := [need.job for need in needs if need.job is not None and not need.held_by]:
        found.append(Reason(code="waits-for-jobs", facts=_named(jobs)))
    return found or [Reason(code="needs-met")]


def _of_batches(needs: Sequence[NeedFacts]) -> Iterator[Reason]:
    for need in [need for need in needs if need.batch is not None][:MOST_NAMED]:
        code = _OF_BATCH[When(need.moment)] if need.is_sealed else "batch-not-sealed"
        yield Reason(code=code, facts={"batch": need.batch, "name": need.name})


def _named(jobs: Sequence[int]) -> dict[str, Any]:
    return {"jobs": list(jobs[:MOST_NAMED]), "more": max(0, len(jobs) - MOST_NAMED)}


# One thing that keeps a job from starting, or says why it need not: a code, a sentence, an end and facts.


MOST_SHOWN = 300  # characters of one fact in a sentence

# The codes are for programs, and do not change.
_SENTENCES: Mapping[str, Any] = {
    "completed": _("It completed at %(at)s."),
    "dead-letter": _("It is a dead letter since %(at)s. Retry it to run it again."),
    "cancelled": _("It was cancelled at %(at)s."),
    "running": _("It is running on %(worker)s since %(at)s. Its lease lasts until %(until)s if it is not extended."),
    "lease-expired": _("It was running on %(worker)s, and its lease expired at %(at)s. A watchdog ends this run."),
    "cancel-requested": _("It was asked to stop at %(at)s."),
    "no-worker": _("No live worker serves the queue %(queue)s."),
    "unknown-task": _("No live worker of the queue %(queue)s knows the task %(task)s."),
    "key-missing": _("The worker that claimed it last could not decrypt it and put it back."),
    "waits-for-jobs": _("It waits for jobs that are not done: %(jobs)s."),
    "held-by-dead-letter": _("It needs dead letters: %(jobs)s. Retry them, and it goes on when they are done."),
    "waits-for-batch": _("It waits until all jobs of the workflow %(name)s (#%(batch)s) are done."),
    "waits-for-end": _("It waits until all jobs of the workflow %(name)s (#%(batch)s) are over or dead letters."),
    "waits-for-dead-letter": _(
        "It runs when the first job of the workflow %(name)s (#%(batch)s) becomes a dead letter."
    ),
    "batch-not-sealed": _(
        "It waits for the workflow %(name)s (#%(batch)s), which is not sealed: jobs may still be added to it."
    ),
    "batch-paused": _("Its workflow %(name)s (#%(batch)s) is paused until it is resumed."),
    "waits-for-event": _("It waits for the event %(event)s."),
    "waits-for-event-until": _("It waits for the event %(event)s, until %(until)s at the latest."),
    "needs-met": _("All that it needs is done. A worker puts it in line within a moment."),
    "not-due": _("It is not due before %(until)s."),
    "limit-closed": _("The limit %(limit)s is closed until %(until)s."),
    "limit-half-open": _("The limit %(limit)s lets one job at a time run to see whether it succeeds, and one runs."),
    "limit-full": _("The limit %(limit)s is full: %(held)s of %(most)s jobs are running."),
    "key-full": _("The limit %(limit)s is full for the key %(key)s: %(held)s of %(most)s jobs are running."),
    "too-heavy": _("It weighs %(weight)s, and the limit %(limit)s allows %(most)s. Raise the limit."),
    "rate": _("The limit %(limit)s has used up its rate. The next job may start in %(wait)s."),
    "key-rate": _("The limit %(limit)s has used up its rate for the key %(key)s. The next job may start in %(wait)s."),
    "not-ready": _("Its time has come. A worker puts it in line within a moment."),
    "set-aside": _("The pause of the task %(task)s is over. A watchdog puts the job in line within a moment."),
    "workers-busy": _("All %(slots)s slots of the workers that can run it are in use."),
    "waits-for-slots": _("It weighs %(weight)s. No worker that can run it has so many free slots: %(free)s at most."),
    "behind": _("It waits in line. Jobs before it: %(jobs)s."),
    "expires": _("It is cancelled if it has not started by %(until)s."),
    "free": _("Nothing stands in its way. It starts within a moment."),
}
REASON = _("Reason: %(reason)s.")
BY = _("Paused by: %(by)s.")
MORE = _("And %(more)s more.")
HELD_BY = _("Running: %(jobs)s.")
WEIGHS = _("It weighs %(weight)s, and each job counts as much as it weighs.")


def sentences() -> Mapping[str, Any]:
    """Return the sentence of each code, and of some another one if it is known when they end: ``code-until``."""
    of_gates = {gate.code: gate.sentence for gate in gates()}
    until = {f"{gate.code}-until": gate.sentence_until for gate in gates() if gate.sentence_until}
    return {**_SENTENCES, **of_gates, **until}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a job does not start. ``code`` is one of the documentation; ``sentence`` is in the language of the reader."""

    code: str  # what it is, for programs
    until: datetime | None = None  # it ends by itself then; None: that is not known
    facts: Mapping[str, Any] = field(default_factory=dict)  # the names and numbers of the sentence

    @property
    def sentence(self) -> str:
        """Say it. Names that were chosen by others are shown without what moves a cursor or turns text around."""
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
    """Return how a sentence shows a fact."""
    match value:
        case datetime():
            local = timezone.localtime(value) if timezone.is_aware(value) else value
            return f"{local:%Y-%m-%d %H:%M:%S %Z}".rstrip()
        case float():
            return in_words(value)
        case list():
            return ", ".join(f"#{one}" for one in value)
    return inert(str(value), MOST_SHOWN)
