"""Acts of operators on jobs, for one job, a selection, a group of errors, a filter and the commands.

Every act checks each row again when it changes it. A job that has changed since is skipped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from django import forms
from django.db.models import Q
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from pulse_django import api
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Job
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words.bounds import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_QUEUE_NAME
from pulse_django.queue.words.job_options import QUEUE_NAME
from pulse_django.queue.words.states import CLAIMABLE, TERMINAL, Status
from pulse_django.run import make_due
from pulse_django.shards.placement import has_several_shards

from .arguments import MAX_PER_MINUTE
from .preview import has_status

LIVE = (Status.WAITING, Status.PENDING, Status.RETRYING, Status.RUNNING)
MOST_RUNS = 100
MAX_REASON = 500
MOST_ATTEMPTS = 2**31 - 1  # the maximum of the column
# Bounds and defaults of a retry that starts with a few jobs, at most one chunk: minutes for them, and the rate after.
MOST_FIRST, MOST_PATIENCE = 500, 1_440
PATIENCE, PER_MINUTE = 30, 60

Given = Mapping[str, Any]  # the data of the form or the command, as JSON
Answer = Mapping[str, Collection[int]]  # ids of jobs by result


class ActForm(forms.Form):
    """The form of an act, with a reason for the admin's log. With ``job``, the form is on the page of that job."""

    # When the page counted or listed the jobs. Those that ended later are left out.
    asked_at = forms.DateTimeField(widget=forms.HiddenInput, required=False)
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON, required=False)
    of_many: tuple[str, ...] = ()  # fields that the page of a job does not have

    def __init__(self, data: Any = None, *, job: Job | None = None, **options: Any) -> None:
        if job is not None:
            options["initial"] = {"queue": job.queue, "priority": job.priority, "attempts": job.attempts}
        super().__init__(data, **options)
        if job is not None:
            # The number that the page showed. With an invalid, missing or old number, the act is refused.
            hidden = forms.IntegerField(min_value=0, max_value=MOST_ATTEMPTS, widget=forms.HiddenInput)
            self.fields = {"attempts": hidden, **self.fields}
            for name in ("asked_at", *self.of_many):
                del self.fields[name]
            if job.batch_id is None:
                self.fields.pop("cancelled_too", None)
        self.order_fields([name for name in self.fields if name != "reason"])  # the reason is the last field

    def clean_asked_at(self) -> str:
        at = self.cleaned_data["asked_at"]
        return at.isoformat() if at else ""

    def done_in_words(self, done: Any) -> str:
        """Return what was done with which values, for the message and the log."""
        details = []
        for name, value in self.cleaned_data.items():
            if name not in ("attempts", "asked_at", "confirmed") and value not in ("", None) and value is not False:
                field = self.fields[name]
                label, shown = (
                    str(field.label).partition(" (")[0],
                    dict(getattr(field, "choices", ())).get(value, value),
                )
                details.append(label if value is True else f"{label} {shown}")
        return f"{done}: {', '.join(details)}" if details else str(done)


def errors_in_words(form: forms.Form) -> str:
    """Return the errors of a form as one text, for a message on another page."""
    texts = {field: " ".join(map(str, said)) for field, said in form.errors.items()}
    return "; ".join(f"{form[field].label}: {text}" if field in form.fields else text for field, text in texts.items())


def validate_queue_name(name: str) -> None:
    try:
        QUEUE_NAME.check("queue", name)
    except InvalidJob as error:
        raise forms.ValidationError(
            _("Invalid queue name: it is too long, or contains unprintable characters.")
        ) from error


class QueueName(forms.CharField):
    """A field for any valid name of a queue, including names that begin or end with a space."""

    default_validators = [validate_queue_name]

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=MAX_QUEUE_NAME, strip=False, **options)


class RetryForm(ActForm):
    runs = forms.IntegerField(label=_("minimum runs"), min_value=1, max_value=MOST_RUNS, initial=1)
    per_minute = forms.IntegerField(
        label=_("Maximum jobs per minute (empty: no limit)"), min_value=1, max_value=MAX_PER_MINUTE, required=False
    )
    first = forms.IntegerField(
        label=_("jobs to retry first (empty: all at once)"), min_value=1, max_value=MOST_FIRST, required=False
    )
    patience = forms.IntegerField(
        label=_("maximum minutes for these jobs"), min_value=1, max_value=MOST_PATIENCE, required=False
    )
    cancelled_too = forms.BooleanField(label=_("also if their workflow was cancelled"), required=False)
    of_many = ("per_minute", "first", "patience")

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if given.get("first"):
            given |= {
                "patience": given.get("patience") or PATIENCE,
                "per_minute": given.get("per_minute") or PER_MINUTE,
            }
        return given


class ReasonForm(ActForm):
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)  # stored in the job, and its handler can read it


class PostponeForm(ActForm):
    delay = forms.TypedChoiceField(
        label=_("by"),
        coerce=int,
        choices=[(300, _("5 minutes")), (3_600, _("1 hour")), (86_400, _("1 day")), (604_800, _("1 week"))],
    )


class MoveForm(ActForm):
    queue = QueueName(label=_("queue"))
    priority = forms.IntegerField(
        label=_("priority (empty: unchanged)"), min_value=LOWEST_PRIORITY, max_value=HIGHEST_PRIORITY, required=False
    )


class DeleteForm(ReasonForm):
    confirmed = forms.BooleanField(label=_("delete them permanently"))


def _retry(alias: str, ids: Collection[int], given: Given) -> Answer:
    """Retry these jobs, after ``met`` jobs that were retried before."""
    gap = timedelta(minutes=1) / given["per_minute"] if given.get("per_minute") else timedelta()
    retried = make_due.retry(
        alias,
        ids,
        runs=given.get("runs", 1),
        delay=given.get("delay", timedelta()) + gap * given.get("met", 0),
        gap=gap,
        attempt=given.get("attempts"),
        cancelled_too=given.get("cancelled_too", False),
    )
    return _answer(retried)


def _cancel(alias: str, ids: Collection[int], given: Given) -> Answer:
    jobs = Job.objects.db_manager(alias)
    return _answer(jobs.request_cancel(ids, reason=given["reason"], attempt=given.get("attempts")))


def _run_now(alias: str, ids: Collection[int], given: Given) -> Answer:
    return _answer(make_due.run_now(alias, ids, attempt=given.get("attempts")))


def _postpone(alias: str, ids: Collection[int], given: Given) -> Answer:
    delay = timedelta(seconds=given["delay"])
    return _answer(Job.objects.db_manager(alias).reschedule(ids, delay=delay, attempt=given.get("attempts")))


def _move(alias: str, ids: Collection[int], given: Given) -> Answer:
    chosen = {name: given[name] for name in ("queue", "priority")}
    return _answer(Job.objects.db_manager(alias).move(ids, **chosen, attempt=given.get("attempts")))


def _answer(result: Any) -> Answer:
    return {one.name: getattr(result, one.name) for one in fields(result)}


def _release(alias: str, ids: Collection[int], given: Given) -> Answer:
    reason = given["reason"] or "taken from its worker by an operator"
    using = alias if has_several_shards() else None
    done = [one for one in ids if api.release(one, reason=reason, attempt=given["attempts"], using=using).accepted]
    return {"changed": done}


def _delete(alias: str, ids: Collection[int], given: Given) -> Answer:
    """Delete those jobs that have ended and that no job needs. With ``asked_at``, leave out those that ended later."""
    asked_at = parse_datetime(given.get("asked_at") or "")
    deleted = set(Job.objects.db_manager(alias).prune_these(ids, ended_by=asked_at))
    left = set(ids) - deleted
    needed = set(Job.objects.using(alias).filter(pk__in=left).holding().values_list("pk", flat=True)) if left else set()
    return {"deleted": deleted, "left": left - needed, "needed": needed}


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One action of an operator. Its texts are translated for each reader."""

    name: str
    label: Any = ""  # of the button on the page of a job; empty: no button
    says: Any = ""  # its effect, for hovering and for screen readers
    label_of_all: Any = ""  # of the button for all that match; empty: no button
    says_of_all: Any = ""
    done: Any = ""  # for the message, and the log of the admin
    permission: str = ""
    statuses: tuple[Status, ...] = ()
    form: type[ActForm] = ActForm
    do: Callable[[str, Collection[int], Given], Answer]
    answers: Mapping[str, Any] = field(default_factory=dict)  # the possible results for a job, as text
    changes: tuple[str, ...] = ("changed",)  # the answers of jobs that were changed
    missed: str = "moved_on"  # the answer of jobs that no longer matched
    refusals: Mapping[str, Any] = field(default_factory=dict)  # why a job was skipped that still matched
    when: Q = field(default_factory=Q)  # which jobs of these statuses a press on all that match changes
    # Its statement commits by itself. If a worker dies after it, the changed jobs are counted as "no longer matched".
    commits_by_itself: bool = False

    def matching(self, jobs: JobQuerySet[Job], asked_at: str = "") -> JobQuerySet[Job]:
        """Return those of these jobs that the act can change. With ``asked_at``, leave out those that ended later."""
        found = jobs.filter(has_status(self.statuses), self.when)
        if asked_at and set(self.statuses) <= set(TERMINAL):
            found = found.filter(finished_at__lte=parse_datetime(asked_at))
        return found

    def counts(self, answer: Answer, chosen: int) -> dict[str, int]:
        """Return the number of jobs for each result. Chosen jobs without a result no longer matched."""
        counts = {name: len(answer.get(name, ())) for name in self.answers}
        return counts | {self.missed: counts[self.missed] + chosen - sum(counts.values())}

    def in_words(self, counts: Mapping[str, int]) -> str:
        """Return the number of jobs for each result, as text."""
        first = self.changes[0]
        said = f"{counts.get(first, 0)} {self.answers[first]}"
        if counts.get(self.missed):
            said += f", {counts[self.missed]} {self.answers[self.missed]}"
        others = [name for name in self.answers if name not in (first, self.missed) and counts.get(name)]
        return " ".join([f"{said}.", *(f"{counts[name]} {self.answers[name]}." for name in others)])


_MOVED_ON = _("no longer matched")

ACTS: Mapping[str, Act] = {
    act.name: act
    for act in (
        Act(
            name="retry",
            label=_("Retry"),
            says=_("Retry this dead letter, with its history and this many more runs"),
            label_of_all=_("Retry all that match"),
            says_of_all=_(
                "Retry all dead letters that match, with this many more runs each; or a few first, and the others only "
                "if none of these dies"
            ),
            done=_("Retried"),
            permission="pulse_retry_jobs",
            statuses=(Status.DEAD_LETTERED,),
            form=RetryForm,
            do=_retry,
            answers={
                "revived": _("retried"),
                "moved_on": _MOVED_ON,
                "key_taken": _("left: another job has the unique key"),
                "of_cancelled": _("left: the workflow was cancelled"),
            },
            changes=("revived",),
            refusals={
                "of_cancelled": _("Its workflow was cancelled. To retry it anyway, tick the box. Nothing was changed."),
                "key_taken": _("Another job has the unique key of this one. Nothing was changed."),
            },
        ),
        Act(
            name="run-now",
            label=_("Run now"),
            says=_("Make the job due immediately"),
            label_of_all=_("Run all that match now"),
            says_of_all=_("Make all waiting jobs that match due immediately"),
            done=_("Made due"),
            permission="pulse_schedule_jobs",
            statuses=CLAIMABLE,
            do=_run_now,
            answers={"changed": _("made due"), "moved_on": _MOVED_ON},
            # A job that is already due would lose its position among jobs of its priority.
            when=Q(next_run_at__gt=StatementTimestamp()),
        ),
        Act(
            name="postpone",
            label=_("Postpone"),
            says=_("Delay the job, counted from now"),
            done=_("Postponed"),
            permission="pulse_schedule_jobs",
            statuses=CLAIMABLE,
            form=PostponeForm,
            do=_postpone,
        ),
        Act(
            name="move",
            label=_("Move"),
            says=_("Move the job to another queue, or change its priority"),
            label_of_all=_("Move all that match"),
            says_of_all=_("Move all waiting jobs that match to another queue"),
            done=_("Moved"),
            permission="pulse_schedule_jobs",
            statuses=CLAIMABLE,
            form=MoveForm,
            do=_move,
            answers={"changed": _("moved"), "moved_on": _MOVED_ON},
        ),
        Act(
            name="cancel",
            label=_("Cancel"),
            says=_("Cancel the job if it is waiting; if it is running, ask its handler to stop"),
            label_of_all=_("Cancel all that match"),
            says_of_all=_("Cancel all waiting jobs that match; ask the handlers of running ones to stop"),
            done=_("Cancelled, or asked to stop"),
            permission="pulse_cancel_jobs",
            statuses=LIVE,
            form=ReasonForm,
            do=_cancel,
            answers={"cancelled": _("cancelled"), "asked": _("asked to stop"), "refused": _MOVED_ON},
            changes=("cancelled", "asked"),
            missed="refused",
            when=Q(cancel_requested_at__isnull=True),
        ),
        Act(
            name="release",
            label=_("Take away from worker"),
            says=_(
                "End the lease now. The attempt counts. The handler may still be running, but its report is rejected"
            ),
            done=_("Taken away from worker"),
            permission="pulse_cancel_jobs",
            statuses=(Status.RUNNING,),
            do=_release,
        ),
        Act(
            name="delete",
            label_of_all=_("Delete all that match"),
            says_of_all=_("Permanently delete all ended jobs and dead letters that match, with their attempts"),
            done=_("Deleted"),
            permission="pulse_delete_jobs",
            statuses=tuple(TERMINAL),
            form=DeleteForm,
            do=_delete,
            answers={
                "deleted": _("deleted"),
                "left": _("no longer matched or locked"),
                "needed": _("left: needed by other jobs"),
            },
            changes=("deleted",),
            missed="left",
            commits_by_itself=True,
        ),
    )
}
