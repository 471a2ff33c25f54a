"""What can be done to all jobs that match: the verbs of the mass commands, each with its form and its permission."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from pulse_django.console.jobs.actions import MAX_REASON, MOST_RUNS, CancelledToo, QueueName
from pulse_django.execution import resolving
from pulse_django.models import Job
from pulse_django.operations.arguments import MAX_PER_MINUTE
from pulse_django.operations.preview import Selection, has_status
from pulse_django.operations.verbs import LIVE, CancelMany, prune_counted
from pulse_django.store.querysets import JobQuerySet
from pulse_django.store.sql_functions import StatementTimestamp
from pulse_django.words.limits import HIGHEST_PRIORITY, LOWEST_PRIORITY
from pulse_django.words.states import CLAIMABLE, Status

MOST_FIRST = 500  # one chunk
MOST_PATIENCE = 1_440  # minutes

Counts = Mapping[str, int]
Given = Mapping[str, Any]  # what the form said, as JSON


class RetryForm(forms.Form):
    runs = forms.IntegerField(label=_("minimum runs"), min_value=1, max_value=MOST_RUNS, initial=1)
    per_minute = forms.IntegerField(
        label=_("Maximum jobs per minute (empty: no limit)"), min_value=1, max_value=MAX_PER_MINUTE, required=False
    )
    cancelled_too = CancelledToo()
    why = forms.CharField(label=_("why"), max_length=MAX_REASON, required=False)


class CanaryForm(forms.Form):
    first = forms.IntegerField(label=_("how many first"), min_value=1, max_value=MOST_FIRST, initial=10)
    patience = forms.IntegerField(
        label=_("minutes that these may take"), min_value=1, max_value=MOST_PATIENCE, initial=30
    )
    per_minute = forms.IntegerField(label=_("then jobs per minute"), min_value=1, max_value=MAX_PER_MINUTE, initial=60)
    runs = forms.IntegerField(label=_("minimum runs"), min_value=1, max_value=MOST_RUNS, initial=1)
    cancelled_too = CancelledToo()
    why = forms.CharField(label=_("why"), max_length=MAX_REASON, required=False)


class CancelForm(forms.Form):
    why = forms.CharField(label=_("why"), max_length=MAX_REASON)  # stands on each of the jobs


class MoveForm(forms.Form):
    queue = QueueName(label=_("queue"))
    priority = forms.IntegerField(
        label=_("priority (empty: as it is)"), min_value=LOWEST_PRIORITY, max_value=HIGHEST_PRIORITY, required=False
    )
    why = forms.CharField(label=_("why"), max_length=MAX_REASON, required=False)


class RunForm(forms.Form):
    why = forms.CharField(label=_("why"), max_length=MAX_REASON, required=False)


class DeleteForm(forms.Form):
    why = forms.CharField(label=_("why"), max_length=MAX_REASON)
    confirmed = forms.BooleanField(label=_("they are deleted for ever"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One intention of an operator."""

    name: str
    label: Any  # in the language of who reads it, as the others below
    says: Any
    permission: str
    form: type[forms.Form]
    fitting: Callable[[JobQuerySet, str], JobQuerySet]  # of these jobs, as it was at an instant
    act: Callable[[str, Collection[int], Given, int], Counts]  # how many were met before, for the pace
    answers: Mapping[str, Any]  # the names in its counts
    # Its first jobs are watched before the others, and each chunk waits for its time.
    is_canary: bool = False
    # Its statement joins no transaction. If a worker dies behind it, what it did is counted as moved on.
    commits_by_itself: bool = False


def _dead(jobs: JobQuerySet, asked_at: str) -> JobQuerySet:
    """Those that die meanwhile, or again, were not meant."""
    return jobs.filter(status=Status.DEAD_LETTERED, finished_at__lte=parse_datetime(asked_at))


def _retry(alias: str, ids: Collection[int], given: Given, met: int) -> Counts:
    gap = timedelta(minutes=1) / given["per_minute"] if given["per_minute"] else timedelta()
    too = given.get("cancelled_too", False)  # a release before did not ask
    answer = resolving.retry(alias, ids, runs=given["runs"], delay=gap * met, gap=gap, cancelled_too=too)
    return {
        "changed": len(answer.revived),
        "moved_on": len(answer.moved_on),
        "twins": len(answer.twins),
        "of_cancelled": len(answer.of_cancelled),
    }


def _retry_chunk(alias: str, ids: Collection[int], given: Given, met: int) -> Counts:
    """Retry a chunk whose time has come. The first, before which none was met, is retried at once."""
    return _retry(alias, ids, {**given, "per_minute": given["per_minute"] if met else None}, 0)


def _live(jobs: JobQuerySet, asked_at: str) -> JobQuerySet:
    return jobs.filter(has_status(LIVE), cancel_requested_at__isnull=True)


def _cancel(alias: str, ids: Collection[int], given: Given, met: int) -> Counts:
    counts = CancelMany(selection=Selection(), reason=given["why"]).act(alias, ids)
    return {"changed": counts["cancelled"], "asked": counts["asked"], "moved_on": counts["refused"]}


def _waiting(jobs: JobQuerySet, asked_at: str) -> JobQuerySet:
    return jobs.filter(status__in=CLAIMABLE)


def _move(alias: str, ids: Collection[int], given: Given, met: int) -> Counts:
    answer = Job.objects.db_manager(alias).move(ids, queue=given["queue"], priority=given["priority"])
    return {"changed": len(answer.changed), "moved_on": len(answer.moved_on)}


def _run_now(alias: str, ids: Collection[int], given: Given, met: int) -> Counts:
    answer = resolving.run_now(alias, ids)
    return {"changed": len(answer.changed), "moved_on": len(answer.moved_on)}


def _early(jobs: JobQuerySet, asked_at: str) -> JobQuerySet:
    """What is due already would lose its place among those of its priority."""
    return jobs.claimable().filter(next_run_at__gt=StatementTimestamp())


def _ended(jobs: JobQuerySet, asked_at: str) -> JobQuerySet:
    return jobs.terminal().filter(finished_at__lte=parse_datetime(asked_at))


def _delete(alias: str, ids: Collection[int], given: Given, met: int) -> Counts:
    counts = prune_counted(alias, ids)
    return {"changed": counts["deleted"], "moved_on": counts["left"], "needed": counts["needed"]}


MOVED_ON = _("no longer matched")
_RETRIED = {
    "changed": _("retried"),
    "moved_on": MOVED_ON,
    "twins": _("left: another job has their unique key"),
    "of_cancelled": _("left: their workflow was cancelled"),
}
VERBS = (
    Verb(
        name="retry",
        label=_("Retry all that match"),
        says=_("Retry all dead letters that match, with this many more runs each"),
        permission="retry_job",
        form=RetryForm,
        fitting=_dead,
        act=_retry,
        answers=_RETRIED,
    ),
    Verb(
        name="canary",
        label=_("Retry a few first, then all that match"),
        says=_("Retry a few dead letters, watch them, and retry the others only if none of these dies"),
        permission="retry_job",
        form=CanaryForm,
        fitting=_dead,
        act=_retry_chunk,
        answers=_RETRIED,
        is_canary=True,
    ),
    Verb(
        name="cancel",
        label=_("Cancel all that match"),
        says=_("Cancel all waiting jobs that match; ask the handlers of running ones to stop"),
        permission="cancel_job",
        form=CancelForm,
        fitting=_live,
        act=_cancel,
        answers={"changed": _("cancelled"), "asked": _("asked to stop"), "moved_on": MOVED_ON},
    ),
    Verb(
        name="move",
        label=_("Move all that match"),
        says=_("Move all waiting jobs that match to another queue"),
        permission="schedule_job",
        form=MoveForm,
        fitting=_waiting,
        act=_move,
        answers={"changed": _("moved"), "moved_on": MOVED_ON},
    ),
    Verb(
        name="run",
        label=_("Run all that match now"),
        says=_("Make all waiting jobs that match due immediately"),
        permission="schedule_job",
        form=RunForm,
        fitting=_early,
        act=_run_now,
        answers={"changed": _("made due"), "moved_on": MOVED_ON},
    ),
    Verb(
        name="delete",
        label=_("Delete all that match"),
        says=_("Permanently delete all ended jobs and dead letters that match, with their attempts"),
        permission="delete_job",
        form=DeleteForm,
        fitting=_ended,
        act=_delete,
        answers={"changed": _("deleted"), "moved_on": MOVED_ON, "needed": _("left: other jobs wait for them")},
        commits_by_itself=True,
    ),
)
BY_NAME = {verb.name: verb for verb in VERBS}
