"""One thing that keeps a job from starting, or says why it need not: a code, a sentence, an end and facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pulse_django.words.display import in_words, inert

MOST_SHOWN = 300  # characters of one fact in a sentence

# The codes are for programs, and do not change.
SENTENCES: Mapping[str, Any] = {
    "completed": _("It completed at %(at)s."),
    "dead-letter": _("It is a dead letter since %(at)s. Retry it to run it again."),
    "cancelled": _("It was cancelled at %(at)s."),
    "running": _("It is running on %(worker)s since %(at)s. Its lease lasts until %(until)s if it is not extended."),
    "lease-expired": _("It was running on %(worker)s, and its lease expired at %(at)s. A watchdog ends this run."),
    "cancel-requested": _("It was asked to stop at %(at)s."),
    "expired": _("It did not start before it expired at %(at)s. A watchdog cancels it."),
    "queue-paused": _("The queue %(queue)s is paused until it is resumed."),
    "queue-paused-until": _("The queue %(queue)s is paused until %(until)s."),
    "key-paused": _("The key %(key)s is paused until it is resumed."),
    "key-paused-until": _("The key %(key)s is paused until %(until)s."),
    "task-paused": _("The task %(task)s is paused until it is resumed."),
    "task-paused-until": _("The task %(task)s is paused until %(until)s."),
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

# Of these the sentence depends on whether an end is known.
_WITH_END = {code: f"{code}-until" for code in ("queue-paused", "key-paused", "task-paused", "waits-for-event")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a job does not start. ``code`` is one of the documentation; ``sentence`` is in the language of the reader."""

    code: str  # what it is, for programs
    until: datetime | None = None  # it ends by itself then; None: that is not known
    facts: Mapping[str, Any] = field(default_factory=dict)  # the names and numbers of the sentence

    @property
    def sentence(self) -> str:
        """Say it. Names that were chosen by others are shown without what moves a cursor or turns text around."""
        name = _WITH_END.get(self.code, self.code) if self.until is not None else self.code
        shown = {key: in_text(value) for key, value in self.facts.items()} | {"until": in_text(self.until)}
        parts = [str(SENTENCES[name]) % shown]
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
