"""The actions on the page of a job: each with its permission, its statuses and its verb.

Every verb checks the row again when it acts. A job that has moved on meanwhile is left alone, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from pulse_django import api
from pulse_django.exceptions import InvalidJob
from pulse_django.execution import resolving
from pulse_django.execution.placement import has_several_shards
from pulse_django.models import Job
from pulse_django.words.job_options import check_queue_name
from pulse_django.words.limits import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_QUEUE_NAME
from pulse_django.words.own_tasks import OWN_TASKS
from pulse_django.words.states import CLAIMABLE, Status

MOST_RUNS = 100
MAX_REASON = 500
MOST_ATTEMPTS = 2**31 - 1  # the column holds no more

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """An act that the job does not allow, though it has not moved on."""

    why: Any


def validate_queue_name(name: str) -> None:
    try:
        check_queue_name(name)
    except InvalidJob as error:
        raise forms.ValidationError(
            _("Invalid queue name: it is too long, or contains unprintable characters.")
        ) from error


class ActForm(forms.Form):
    """What every act asks: why, for the admin's log."""

    # What the page showed. Missing, or nonsense, is as good as another: the act is refused.
    attempts = forms.IntegerField(min_value=0, max_value=MOST_ATTEMPTS, widget=forms.HiddenInput)
    why = forms.CharField(label=_("why"), max_length=MAX_REASON, required=False)

    @property
    def summary(self) -> dict[str, Any]:
        """What was chosen, for the message and the log."""
        return {name: value for name, value in self.cleaned_data.items() if name != "attempts" and value != ""}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.order_fields([name for name in self.fields if name != "why"])  # what the act needs comes first

    def fit(self, job: Job) -> None:
        """Leave out what makes no sense for this job."""


class CancelledToo(forms.BooleanField):
    """Says that dead letters of cancelled workflows are meant as well."""

    def __init__(self) -> None:
        super().__init__(label=_("also if their workflow was cancelled"), required=False)


class RetryForm(ActForm):
    runs = forms.IntegerField(label=_("minimum runs"), min_value=1, max_value=MOST_RUNS, initial=1)
    cancelled_too = CancelledToo()

    def fit(self, job: Job) -> None:
        if job.batch_id is None:
            del self.fields["cancelled_too"]


class CancelForm(ActForm):
    why = forms.CharField(label=_("why"), max_length=MAX_REASON)  # stands on the job, and its handler may ask


class PostponeForm(ActForm):
    delay = forms.TypedChoiceField(
        label=_("by"),
        coerce=int,
        choices=[(300, _("5 minutes")), (3_600, _("1 hour")), (86_400, _("1 day")), (604_800, _("1 week"))],
    )


def errors_in_words(form: forms.Form) -> str:
    """Say what is wrong with a form, for a message in place of the page that held it."""
    texts = {field: " ".join(map(str, said)) for field, said in form.errors.items()}
    return "; ".join(f"{form[field].label}: {text}" if field in form.fields else text for field, text in texts.items())


class QueueName(forms.CharField):
    """Any name that a job may name: also one that begins or ends with a space."""

    default_validators = [validate_queue_name]

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=MAX_QUEUE_NAME, strip=False, **options)


class MoveForm(ActForm):
    queue = QueueName(label=_("queue"))
    priority = forms.IntegerField(label=_("priority"), min_value=LOWEST_PRIORITY, max_value=HIGHEST_PRIORITY)


def _retry(alias: str, job_id: int, data: Data) -> bool | Refused:
    how = {"runs": data["runs"], "attempt": data["attempts"], "cancelled_too": data.get("cancelled_too", False)}
    answer = resolving.retry(alias, [job_id], **how)
    if answer.of_cancelled:
        return Refused(_("Its workflow was cancelled. To retry it all the same, tick the box. Nothing was changed."))
    if answer.twins:
        return Refused(_("Another job has the unique key of this one. Nothing was changed."))
    return bool(answer.revived)


def _cancel(alias: str, job_id: int, data: Data) -> bool:
    answer = Job.objects.db_manager(alias).request_cancel([job_id], reason=data["why"], attempt=data["attempts"])
    return bool(answer.cancelled or answer.asked)


def _run_now(alias: str, job_id: int, data: Data) -> bool:
    return bool(resolving.run_now(alias, [job_id], attempt=data["attempts"]).changed)


def _postpone(alias: str, job_id: int, data: Data) -> bool:
    delay = timedelta(seconds=data["delay"])
    jobs = Job.objects.db_manager(alias)
    return bool(jobs.reschedule([job_id], delay=delay, attempt=data["attempts"]).changed)


def _move(alias: str, job_id: int, data: Data) -> bool:
    jobs = Job.objects.db_manager(alias)
    moved = jobs.move([job_id], queue=data["queue"], priority=data["priority"], attempt=data["attempts"])
    return bool(moved.changed)


def _release(alias: str, job_id: int, data: Data) -> bool:
    reason = data["why"] or "taken from its worker by an operator"
    return bool(api.release(job_id, reason=reason, attempt=data["attempts"], using=_named(alias)).accepted)


def _named(alias: str) -> str | None:
    """Name a shard to a call that finds the only one by itself."""
    return alias if has_several_shards() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One button."""

    name: str
    label: Any
    says: Any  # what it does, for hovering and for screen readers
    done: Any  # for the message, and the log of the admin
    permission: str
    statuses: tuple[Status, ...]
    do: Callable[[str, int, Data], bool | Refused]  # whether the job had not moved on
    form: type[ActForm] = ActForm

    def form_for(self, job: Job, data: Any = None) -> ActForm:
        initial = {"queue": job.queue, "priority": job.priority, "attempts": job.attempts}
        form = self.form(data, initial=initial, prefix=self.name)
        form.fit(job)
        return form


ACTS: tuple[Act, ...] = (
    Act(
        name="retry",
        label=_("Retry"),
        says=_("Retry this dead letter, with its history and this many more runs"),
        done=_("Retried"),
        permission="retry_job",
        statuses=(Status.DEAD_LETTERED,),
        do=_retry,
        form=RetryForm,
    ),
    Act(
        name="run-now",
        label=_("Run now"),
        says=_("Make the job due immediately"),
        done=_("Made due"),
        permission="schedule_job",
        statuses=CLAIMABLE,
        do=_run_now,
    ),
    Act(
        name="postpone",
        label=_("Postpone"),
        says=_("Delay the job, counted from now"),
        done=_("Postponed"),
        permission="schedule_job",
        statuses=CLAIMABLE,
        do=_postpone,
        form=PostponeForm,
    ),
    Act(
        name="move",
        label=_("Move"),
        says=_("Move the job to another queue, or change its priority"),
        done=_("Moved"),
        permission="schedule_job",
        statuses=CLAIMABLE,
        do=_move,
        form=MoveForm,
    ),
    Act(
        name="cancel",
        label=_("Cancel"),
        says=_("Cancel the job if it is waiting; if it is running, ask its handler to stop"),
        done=_("Cancelled, or asked to stop"),
        permission="cancel_job",
        statuses=(Status.WAITING, *CLAIMABLE, Status.RUNNING),
        do=_cancel,
        form=CancelForm,
    ),
    Act(
        name="release",
        label=_("Take away from worker"),
        says=_("End the lease now. The attempt counts. The handler may still be running, but its report is rejected"),
        done=_("Taken away from worker"),
        permission="cancel_job",
        statuses=(Status.RUNNING,),
        do=_release,
    ),
)


def named(name: str) -> Act | None:
    return next((act for act in ACTS if act.name == name), None)


def fitting(job: Job) -> list[Act]:
    """Return what can be done to a job as it stands."""
    acts = [act for act in ACTS if job.status in act.statuses]
    return [act for act in acts if act.do is not _retry] if job.task in OWN_TASKS else acts
