"""The actions on the page of a workflow: each is a form, and leaves an entry in the log of the admin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.jobs.actions import MAX_REASON, MOST_RUNS, CancelledToo
from pulse_django.console.twins import sentences_about_left
from pulse_django.fleet.workflows import BatchFacts
from pulse_django.fleet.workflows.facts import HELD, OPEN, PAUSED
from pulse_django.operations.workflows import retry_dead_letters
from pulse_django.words.display import inert
from pulse_django.workflows.batches import Batch, send_event

Data = Mapping[str, Any]
CANCEL = "cancel"


class ActForm(forms.Form):
    def __init__(self, *args: Any, events: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.offer(events)

    def offer(self, events: Sequence[str]) -> None:
        """Let one of these events be chosen, if the act is about events."""


class CancelForm(ActForm):
    why = forms.CharField(label=_("why"), max_length=MAX_REASON)  # stands on each of its jobs


class RetryForm(ActForm):
    runs = forms.IntegerField(label=_("minimum runs"), min_value=1, max_value=MOST_RUNS, initial=1)
    cancelled_too = CancelledToo()


class ApproveForm(ActForm):
    """Only events that a job of the workflow waits for."""

    event = forms.ChoiceField(label=_("event"))

    def offer(self, events: Sequence[str]) -> None:
        self.fields["event"].choices = [(one, inert(one)) for one in events]  # type: ignore[attr-defined]


def _cancel(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    if not Batch(batch.id, alias).cancel(reason=data["why"]):
        return ""
    return gettext("Cancelled: %(reason)s") % {"reason": data["why"]}


def _retry(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    answer = retry_dead_letters(alias, batch.id, runs=data["runs"], cancelled_too=data["cancelled_too"])
    if not answer.revived and not answer.twins and not answer.of_cancelled:
        return ""
    said = ngettext("%(count)d dead letter retried.", "%(count)d dead letters retried.", answer.revived)
    said %= {"count": answer.revived}
    more = f" {gettext('There are more: do it again.')}" if answer.has_more else ""
    return f"{said}{sentences_about_left(answer.twins, answer.of_cancelled)}{more}"


def _approve(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    event = data["event"]
    is_new = send_event(event, {"by": by}, by=by, using=alias)
    return gettext("Event sent: %(event)s") % {"event": event} if is_new else ""


def _pause(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    return gettext("Paused") if Batch(batch.id, alias).pause() else ""


def _resume(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    return gettext("Resumed") if Batch(batch.id, alias).resume() else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One button."""

    name: str
    label: Any
    says: Any
    permission: str
    fits: Callable[[BatchFacts], bool]
    do: Callable[[str, BatchFacts, Data, str], str]  # returns what was done, for the message and the log
    form: type[ActForm] = ActForm

    def form_for(self, batch: BatchFacts, data: Any = None) -> ActForm:
        return self.form(data, prefix=self.name, events=events_of(batch))


def events_of(batch: BatchFacts) -> list[str]:
    """Return the events that jobs of the batch wait for, each once."""
    return list(dict.fromkeys(one.event for one in batch.events if one.event is not None))


ACTS = (
    Act(
        name="approve",
        label=_("Send an event"),
        says=_("Say that this event happened, in your name. Jobs that wait for it go on"),
        permission="schedule_job",
        fits=lambda batch: bool(batch.events),
        do=_approve,
        form=ApproveForm,
    ),
    Act(
        name="retry",
        label=_("Retry its dead letters"),
        says=_("Retry all dead letters of this workflow and of those within it, with this many more runs each"),
        permission="retry_job",
        fits=lambda batch: bool(batch.progress.dead) and batch.closed_at is None,
        do=_retry,
        form=RetryForm,
    ),
    Act(
        name="pause",
        label=_("Pause"),
        says=_("Start no job of this workflow and of those within it. Those that run go on"),
        permission="schedule_job",
        fits=lambda batch: batch.state in (OPEN, HELD),
        do=_pause,
    ),
    Act(
        name="resume",
        label=_("Resume"),
        says=_("Let jobs of this workflow and of those within it start again"),
        permission="schedule_job",
        fits=lambda batch: batch.state == PAUSED,
        do=_resume,
    ),
    Act(
        name=CANCEL,
        label=_("Cancel all"),
        says=_("Cancel all jobs of this workflow and of those within it; ask the handlers of running ones to stop"),
        permission="cancel_job",
        fits=lambda batch: batch.closed_at is None and batch.cancelled_at is None,
        do=_cancel,
        form=CancelForm,
    ),
)


def named(name: str) -> Act | None:
    return next((act for act in ACTS if act.name == name), None)
