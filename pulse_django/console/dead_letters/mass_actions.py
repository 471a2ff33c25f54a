"""Retry or delete many dead letters: in short batches, by verbs that check each job again, with a log entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db import router, transaction
from django.utils.http import urlencode
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.jobs.actions import MAX_REASON, MOST_RUNS, CancelledToo
from pulse_django.console.jobs.page_window import ERROR
from pulse_django.console.mass.criteria import Criteria
from pulse_django.console.mass.page import start_operation
from pulse_django.console.mass.verbs import BY_NAME
from pulse_django.console.shards import request_for
from pulse_django.console.twins import sentences_about_left
from pulse_django.execution import resolving
from pulse_django.models import DeadLetter, Job
from pulse_django.operations.arguments import MAX_PER_MINUTE
from pulse_django.operations.batches import BATCH
from pulse_django.words.states import Status
from pulse_django.workflows.batches import Batch

from . import groups

# At a press. More would let a browser, or a proxy, give up before the answer; fewer mean more presses.
MOST_AT_ONCE = 20_000

# Of a canary: how many are retried first, how many minutes they may take, and how many a minute follow.
FIRST, PATIENCE, PER_MINUTE = 10, 30, 60


class ReviveForm(forms.Form):
    runs = forms.IntegerField(label=_("Minimum runs"), min_value=1, max_value=MOST_RUNS, initial=1)
    per_minute = forms.IntegerField(
        label=_("Maximum jobs per minute (empty: no limit)"), min_value=1, max_value=MAX_PER_MINUTE, required=False
    )
    cancelled_too = CancelledToo()
    why = forms.CharField(label=_("Reason (for the log)"), max_length=MAX_REASON, required=False)

    def verb(self, error: str) -> RetryAction:
        return RetryAction(error=error, **self.cleaned_data)


class DeleteForm(forms.Form):
    why = forms.CharField(label=_("Reason"), max_length=MAX_REASON)

    def verb(self, error: str) -> MassAction:
        return DeleteAction(error=error, **self.cleaned_data)


@dataclass(kw_only=True)
class MassAction:
    """One press of a button: what it does to a batch, and the summary of all."""

    error: str  # the fingerprint of those that are meant
    why: str
    done: set[int] = field(default_factory=set)
    met: int = 0

    flag = CHANGE
    commits_by_itself = False
    command = "pulse_retry"

    def act(self, alias: str, ids: Sequence[int]) -> Iterable[int]:
        """Do it to these jobs of a shard, and return to which it was done."""
        raise NotImplementedError

    def summary(self) -> str:
        raise NotImplementedError

    def details(self) -> str:
        raise NotImplementedError

    def run(self, alias: str, ids: Sequence[int]) -> None:
        for batch in _batches(ids):
            self.done |= set(self.act(alias, batch))
            self.met += len(batch)

    @property
    def moved_on(self) -> int:
        return self.met - len(self.done)


@dataclass(kw_only=True)
class RetryAction(MassAction):
    runs: int
    per_minute: int | None
    cancelled_too: bool = False
    twins: frozenset[int] = frozenset()  # left, because another job has their unique key
    of_cancelled: frozenset[int] = frozenset()  # left, because their batch was cancelled

    def act(self, alias: str, ids: Sequence[int]) -> Iterable[int]:
        gap = timedelta(minutes=1) / self.per_minute if self.per_minute else timedelta()
        delay = gap * len(self.done)  # behind those of the batches before
        # Looked at once more: while earlier batches were revived, some may have died of something else.
        dead = [job.pk for job in groups.among(alias, self.error, ids)]
        answer = resolving.retry(alias, dead, runs=self.runs, delay=delay, gap=gap, cancelled_too=self.cancelled_too)
        self.twins |= answer.twins
        self.of_cancelled |= answer.of_cancelled
        return answer.revived

    def summary(self) -> str:
        revived = ngettext("%(count)d retried", "%(count)d retried", len(self.done)) % {"count": len(self.done)}
        count = self.moved_on - len(self.twins) - len(self.of_cancelled)
        moved_on = ngettext("%(count)d no longer matched.", "%(count)d no longer matched.", count) % {"count": count}
        return f"{revived}, {moved_on}{sentences_about_left(len(self.twins), len(self.of_cancelled))}"

    def details(self) -> str:
        runs = gettext("Retried, runs %(runs)d") % {"runs": self.runs}
        if self.per_minute:
            runs += gettext(", %(count)d per minute") % {"count": self.per_minute}
        return f"{runs}: {self.why}" if self.why else runs


@dataclass(kw_only=True)
class DeleteAction(MassAction):
    flag = DELETION
    commits_by_itself = True
    command = "pulse_prune --status DEAD_LETTERED"
    needed: int = 0  # left, because other jobs wait for them

    def act(self, alias: str, ids: Sequence[int]) -> Iterable[int]:
        jobs = Job.objects.db_manager(alias)
        deleted: list[int] = jobs.prune_these(ids, statuses=[Status.DEAD_LETTERED], error=self.error)
        if len(deleted) < len(ids):
            self.needed += Job.objects.using(alias).filter(pk__in=ids).holding().count()
        return deleted

    def summary(self) -> str:
        deleted = ngettext("%(count)d deleted", "%(count)d deleted", len(self.done)) % {"count": len(self.done)}
        count = self.moved_on - self.needed
        left = ngettext(
            "%(count)d no longer matched or was locked.", "%(count)d no longer matched or were locked.", count
        )
        said = left % {"count": count}
        if self.needed:
            said += " " + ngettext(
                "%(count)d left: other jobs wait for it.", "%(count)d left: other jobs wait for them.", self.needed
            ) % {"count": self.needed}
        return f"{deleted}, {said}"

    def details(self) -> str:
        return gettext("Deleted: %(why)s") % {"why": self.why}


def to_selected(verb: MassAction, alias: str, ids: Sequence[int], until: groups.Place, user: Any) -> None:
    """Act on those of these jobs that are in the group as it was shown, with an entry in the log for each."""
    jobs = groups.among(alias, verb.error, list(ids), until=until)
    is_logged_there = not verb.commits_by_itself and alias == router.db_for_write(LogEntry)

    def log() -> None:
        _log(verb, user, [job for job in jobs if job.pk in verb.done], verb.details())

    is_committed = verb.commits_by_itself
    try:
        with nullcontext() if verb.commits_by_itself else transaction.atomic(using=alias):
            verb.run(alias, [job.pk for job in jobs])
            if is_logged_there:
                log()
        is_committed = True
    finally:
        if is_committed and not is_logged_there:  # what was rolled back is not logged
            log()
    verb.met = len(ids)


def to_all(verb: MassAction, alias: str, until: groups.Place, user: Any) -> tuple[bool, Batch | None]:
    """Act on the group as it was shown, one entry in the log for all.

    Return whether one press does not take them all, and the operation that retries them then. All ids are read
    beforehand, so it ends even if what is revived dies again meanwhile.
    """
    ids, is_more = groups.oldest(alias, verb.error, until=until, most=MOST_AT_ONCE)
    if is_more and isinstance(verb, RetryAction):
        return True, start(verb, alias, user)
    try:
        verb.run(alias, ids)
    finally:
        said = f"{verb.details()} ({verb.summary()}) {verb.error}"
        _log(verb, user, [_LoggedGroup(verb.error)] if verb.done else [], said)
    return is_more, None


def start(verb: RetryAction, alias: str, user: Any, *, operation: str = "retry") -> Batch:
    """Start the operation that retries the group, or first a few of it, and the others only if none of these dies."""
    criteria = Criteria.read(urlencode({ERROR: verb.error}), request_for(alias))
    given = {"runs": verb.runs, "per_minute": verb.per_minute, "why": verb.why, "cancelled_too": verb.cancelled_too}
    if operation == "canary":
        given |= {"first": FIRST, "patience": PATIENCE, "per_minute": verb.per_minute or PER_MINUTE}
    _log(verb, user, [_LoggedGroup(verb.error)], f"{verb.details()} {verb.error}")
    return start_operation(alias, BY_NAME[operation], criteria, given, user)


@dataclass(frozen=True)
class _LoggedGroup:
    """A group, as the admin's log takes a row of a model: by its primary key."""

    pk: str
    _meta = DeadLetter._meta

    def __str__(self) -> str:
        return self.pk


def _log(verb: MassAction, user: Any, what: Sequence[Any], message: str) -> None:
    if what:
        logged: Callable[..., Any] = LogEntry.objects.log_actions
        logged(user.pk, what, verb.flag, change_message=message)


def _batches(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]
