"""What an operator may do to one job from its page: each act with its permission, its statuses and its verb.

Every verb looks at the row once more when it acts. What has moved on meanwhile is left alone, and told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.db import router
from django.utils.translation import gettext_lazy as _

from .. import api
from ..models import Job
from ..newjob import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_QUEUE_NAME
from ..states import CLAIMABLE, Status
from ..wakeups import ANY_QUEUE, wake_workers

MOST_RUNS = 100
MAX_REASON = 500

Data = Mapping[str, Any]


class RetryForm(forms.Form):
    runs = forms.IntegerField(label=_("runs, at least"), min_value=1, max_value=MOST_RUNS, initial=1)


class CancelForm(forms.Form):
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)


class PostponeForm(forms.Form):
    delay = forms.TypedChoiceField(
        label=_("by"),
        coerce=int,
        choices=[(300, _("5 minutes")), (3_600, _("1 hour")), (86_400, _("1 day")), (604_800, _("1 week"))],
    )


class MoveForm(forms.Form):
    queue = forms.CharField(label=_("queue"), max_length=MAX_QUEUE_NAME)
    priority = forms.IntegerField(label=_("priority"), min_value=LOWEST_PRIORITY, max_value=HIGHEST_PRIORITY)


def _retry(job_id: int, data: Data) -> bool:
    return bool(api.retry(job_id, runs=data["runs"]).revived)


def _cancel(job_id: int, data: Data) -> bool:
    answer = api.cancel(job_id, reason=data["reason"])
    return bool(answer.cancelled or answer.asked)


def _run_now(job_id: int, data: Data) -> bool:
    changed = bool(Job.objects.reschedule([job_id]).changed)
    if changed:
        wake_workers(router.db_for_write(Job), [ANY_QUEUE])
    return changed


def _postpone(job_id: int, data: Data) -> bool:
    return bool(Job.objects.reschedule([job_id], delay=timedelta(seconds=data["delay"])).changed)


def _move(job_id: int, data: Data) -> bool:
    return bool(Job.objects.move([job_id], queue=data["queue"], priority=data["priority"]).changed)


def _release(job_id: int, data: Data) -> bool:
    return bool(api.release(job_id, reason="taken from its worker by an operator").accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One button."""

    name: str
    label: Any
    says: Any  # what it does, for whoever hovers or hears the page
    done: Any  # for the message, and the log of the admin
    permission: str
    statuses: tuple[Status, ...]
    do: Callable[[int, Data], bool]  # whether the job had not moved on
    form: type[forms.Form] = forms.Form

    def form_for(self, job: Job, data: Any = None) -> forms.Form:
        initial = {"queue": job.queue, "priority": job.priority}
        return self.form(data, initial=initial, prefix=self.name)


ACTS: tuple[Act, ...] = (
    Act(
        name="retry",
        label=_("Retry"),
        says=_("Revive this dead letter, with its history and so many more runs"),
        done=_("Retried"),
        permission="retry_job",
        statuses=(Status.DEAD_LETTERED,),
        do=_retry,
        form=RetryForm,
    ),
    Act(
        name="run-now",
        label=_("Run now"),
        says=_("Do not wait for its time"),
        done=_("Made due"),
        permission="schedule_job",
        statuses=CLAIMABLE,
        do=_run_now,
    ),
    Act(
        name="postpone",
        label=_("Postpone"),
        says=_("Let it run later, counted from now"),
        done=_("Postponed"),
        permission="schedule_job",
        statuses=CLAIMABLE,
        do=_postpone,
        form=PostponeForm,
    ),
    Act(
        name="move",
        label=_("Move"),
        says=_("Let it wait in another queue, or with another priority"),
        done=_("Moved"),
        permission="schedule_job",
        statuses=CLAIMABLE,
        do=_move,
        form=MoveForm,
    ),
    Act(
        name="cancel",
        label=_("Cancel"),
        says=_("Cancel it if it waits; if it runs, ask its handler to stop"),
        done=_("Cancelled, or asked to stop"),
        permission="cancel_job",
        statuses=(*CLAIMABLE, Status.RUNNING),
        do=_cancel,
        form=CancelForm,
    ),
    Act(
        name="release",
        label=_("Take from its worker"),
        says=_(
            "End its lease now. The attempt counts, and its handler may still be at work: what it reports is refused"
        ),
        done=_("Taken from its worker"),
        permission="cancel_job",
        statuses=(Status.RUNNING,),
        do=_release,
    ),
)


def named(name: str) -> Act | None:
    return next((act for act in ACTS if act.name == name), None)


def fitting(job: Job) -> list[Act]:
    """Return what can be done to a job as it stands."""
    return [act for act in ACTS if job.status in act.statuses]
