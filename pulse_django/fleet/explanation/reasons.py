"""From facts to reasons: what stands in the way of a job, the most binding first. Nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pulse_django.words.outcomes import CANNOT_DECRYPT
from pulse_django.words.states import Status

from . import asking
from .facts import JobFacts, LimitFacts, LineFacts
from .sentences import Reason

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
    reasons = [*asked_to_stop(job), *_of_queue(job)]
    if job.is_expired:
        reasons.insert(0, Reason(code="expired", facts={"at": job.expires_at}))
    if not job.is_due:
        reasons.append(Reason(code="not-due", until=job.next_run_at))
    return reasons


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
    if not job.is_ready and not job.is_task_paused:
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


# What only a person, a deploy or a watchdog ends.
STUCK = (
    *("expired", "cancel-requested", "queue-paused", "key-paused", "task-paused", "too-heavy"),
    *("no-worker", "unknown-task", "key-missing"),
)


def in_order(reasons: list[Reason]) -> list[Reason]:
    """Sort: first what does not end by itself, then by their ends, the latest first, then what ends as others run."""

    def rank(reason: Reason) -> tuple[int, float]:
        if reason.until is not None:
            return 1, -reason.until.timestamp()
        return (0 if reason.code in STUCK else 2), 0.0

    return sorted(reasons, key=rank)


def asked_to_stop(job: JobFacts) -> list[Reason]:
    if job.cancel_requested_at is None:
        return []
    return [Reason(code="cancel-requested", facts={"at": job.cancel_requested_at})]


def _of_queue(job: JobFacts) -> Iterator[Reason]:
    queue = {"queue": job.queue}
    if job.is_paused:
        yield Reason(code="queue-paused", until=job.paused_until, facts=queue | {"reason": job.pause_reason or ""})
    if job.is_key_paused:
        facts = {"key": job.key, "reason": job.key_pause_reason or ""}
        yield Reason(code="key-paused", until=job.key_paused_until, facts=facts)
    if job.is_task_paused:
        facts = {"task": job.task, "reason": job.task_pause_reason or "", "by": job.task_paused_by or ""}
        yield Reason(code="task-paused", until=job.task_paused_until, facts=facts)
    if not job.serving:
        yield Reason(code="no-worker", facts=queue)
    elif not job.able:
        yield Reason(code="unknown-task", facts=queue | {"task": job.task, "workers": job.serving})
    if job.put_back.startswith(CANNOT_DECRYPT):
        yield Reason(code="key-missing", facts={"reason": job.put_back.partition(": ")[2]})
