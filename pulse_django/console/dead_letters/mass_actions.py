"""Retry or delete many dead letters of an error, in short batches and with an entry in the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db import router, transaction
from django.utils.http import urlencode

from pulse_django.console.jobs.page_window import ERROR
from pulse_django.console.mass.criteria import Criteria
from pulse_django.console.mass.page import start_operation
from pulse_django.console.search_terms import Place
from pulse_django.models import DeadLetter
from pulse_django.operations.acts import Act, ActForm, Answer
from pulse_django.operations.batches import BATCH
from pulse_django.shards.page import in_shard, request_for
from pulse_django.workflows.batches import Batch

from . import groups

# With more dead letters in one request, a browser or a proxy may time out.
MOST_AT_ONCE = 20_000
FIRST = 10  # dead letters that "Retry a few first" retries


@dataclass(kw_only=True)
class Press:
    """One press of a button: the action, and its results so far."""

    act: Act
    form: ActForm  # valid
    error: str  # the fingerprint of the group
    met: int = 0
    answer: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    @property
    def done(self) -> set[int]:
        return self.answer[self.act.changes[0]]

    @property
    def counts(self) -> dict[str, int]:
        counts = {name: len(self.answer[name]) for name in self.act.answers if name != self.act.missed}
        return {**counts, self.act.missed: self.met - sum(counts.values())}

    def summary(self) -> str:
        return self.act.in_words(self.counts)

    def details(self) -> str:
        return self.form.done_in_words(self.act.done)

    def run(self, alias: str, ids: Sequence[int]) -> None:
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            for name, some in self.act_on(alias, batch).items():
                self.answer[name] |= set(some)
            self.met += len(batch)

    def act_on(self, alias: str, ids: Sequence[int]) -> Answer:
        # Checked again: while earlier batches were retried, some jobs may have died of another error.
        dead = [job.pk for job in groups.among(alias, self.error, ids)]
        given = {**self.form.cleaned_data, "error": self.error, "met": len(self.done)}
        return self.act.do(alias, dead, given) if dead else {}


def to_selected(press: Press, alias: str, ids: Sequence[int], until: Place, user: Any) -> None:
    """Act on those of these jobs that were in the group when it was shown. Log each of them."""
    jobs = groups.among(alias, press.error, list(ids), until=until)
    commits_by_itself = press.act.commits_by_itself
    is_logged_there = not commits_by_itself and alias == router.db_for_write(LogEntry)

    def log() -> None:
        _log(press, alias, user, [job for job in jobs if job.pk in press.done], press.details())

    is_committed = commits_by_itself
    try:
        with nullcontext() if commits_by_itself else transaction.atomic(using=alias):
            press.run(alias, [job.pk for job in jobs])
            if is_logged_there:
                log()
        is_committed = True
    finally:
        if is_committed and not is_logged_there:  # a change that was rolled back is not logged
            log()
    press.met = len(ids)


def to_all(press: Press, alias: str, until: Place, user: Any) -> tuple[bool, Batch | None]:
    """Act on all jobs that were in the group when it was shown. Write one entry into the log.

    Return whether there are too many for one press, and in that case the operation that retries them. All ids are read
    first, so the loop ends even if retried jobs die again.
    """
    ids, is_more = groups.oldest(alias, press.error, until=until, most=MOST_AT_ONCE)
    if is_more and press.act.name == "retry":
        return True, start(press, alias, user)
    try:
        press.run(alias, ids)
    finally:
        said = f"{press.details()} ({press.summary()}) {press.error}"
        _log(press, alias, user, [_LoggedGroup(press.error)] if press.done else [], said)
    return is_more, None


def start(press: Press, alias: str, user: Any) -> Batch:
    """Start the operation that acts on all of the group."""
    criteria = Criteria.read(urlencode({ERROR: press.error}), request_for(alias))
    _log(press, alias, user, [_LoggedGroup(press.error)], f"{press.details()} {press.error}")
    return start_operation(alias, press.act, criteria, press.form.cleaned_data, user)


@dataclass(frozen=True)
class _LoggedGroup:
    """A group in the form of a model instance, for the admin's log."""

    pk: str
    _meta = DeadLetter._meta

    def __str__(self) -> str:
        return self.pk


def _log(press: Press, alias: str, user: Any, what: Sequence[Any], message: str) -> None:
    if what:
        logged: Callable[..., Any] = LogEntry.objects.log_actions
        flag = DELETION if press.act.name == "delete" else CHANGE
        logged(user.pk, what, flag, change_message=in_shard(message, alias))
