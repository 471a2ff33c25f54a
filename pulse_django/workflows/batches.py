"""A batch: jobs that belong together. When all have ended, the batch has ended, and its callbacks run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import ProgrammingError, transaction
from django.urls import NoReverseMatch, reverse

from pulse_django import conf
from pulse_django.backend import uses_pulse
from pulse_django.exceptions import InvalidJob, InvalidWorkflow
from pulse_django.models import Job, StoredBatch
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.tables import explain_missing_tables
from pulse_django.queue.database.transactions import is_in_callers_transaction, joined
from pulse_django.queue.enqueue import has_key, take_ids
from pulse_django.queue.words.bounds import MAX_USER
from pulse_django.queue.words.durations import Seconds, as_timedelta
from pulse_django.queue.words.job_ids import MAX_ID
from pulse_django.queue.words.options import Note, Text, Whole
from pulse_django.queue.words.other_queues import OF_BATCHES, says_instead
from pulse_django.queue.words.payloads import encode_arguments
from pulse_django.run.notify import is_due_soon, wake_workers
from pulse_django.run.registry import Task, TaskResult
from pulse_django.run.run import current_run
from pulse_django.shards.placement import (
    alias_of_batch,
    alias_of_id,
    alias_of_jobs,
    checked_shard,
    has_several_shards,
    shards,
)
from pulse_django.signed_texts import read_expiring, sign_for

from .batch_progress import BatchProgress, progress_of
from .batch_verbs import cancel_batch, members_of, open_batch, pause_batch, resume_batch, seal_batch
from .calls import Call, call_of, calls_of
from .events import send_event as send
from .needs import add_needs
from .resolving import hold_paused, resolve_when_committed
from .rules import MAX_BATCH_KIND, MAX_BATCH_NAME, Need, OnNeedFailed, Place, When
from .waits import EVENT_NAME

NAME, KIND = Text(MAX_BATCH_NAME), Text(MAX_BATCH_KIND)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch by its id. Every method asks the database."""

    if not TYPE_CHECKING:
        __getattr__ = says_instead(OF_BATCHES)

    id: int
    alias: str

    def __post_init__(self) -> None:
        Whole(1, MAX_ID).check("batch id", self.id)

    @classmethod
    def open(
        cls,
        name: str,
        *,
        parent: Batch | None = None,
        context: Mapping[str, Any] | None = None,
        kind: str = "batch",
        using: str | None = None,
    ) -> Batch:
        """Open a batch, in the transaction of the caller. ``parent`` does not end before it.

        All of its jobs can read ``context``.
        """
        NAME.check("name", name)
        KIND.check("kind", kind)
        alias = parent.alias if parent is not None else alias_of_batch(using)
        encoded = None
        if context is not None:
            encoded = encode_arguments(dict(context), limit=conf.current().max_payload_bytes, what="context")
        parent_id = None if parent is None else parent.id
        jobs = Job.objects.db_manager(alias)
        try:
            return cls(open_batch(jobs, name, kind=kind, parent_id=parent_id, context=encoded), alias)
        except ProgrammingError as error:
            explain_missing_tables(error, alias)
            raise

    @classmethod
    def get(cls, batch_id: int, *, using: str | None = None) -> Batch:
        """Return a batch, or raise ``StoredBatch.DoesNotExist``."""
        alias = alias_of_id(batch_id, using)
        StoredBatch.objects.using(alias).only("id").get(pk=batch_id)
        return cls(int(batch_id), alias)

    @property
    def row(self) -> StoredBatch:
        """The present row of the batch."""
        return StoredBatch.objects.using(self.alias).get(pk=self.id)

    @property
    def context(self) -> dict[str, Any]:
        """The argument of ``open(context=...)``."""
        found = StoredBatch.objects.using(self.alias).only("context").get(pk=self.id).context
        return dict(found or {})

    @property
    def jobs(self) -> JobQuerySet[Job]:
        """Its members, but not those of the batches within it."""
        return members_of(Job.objects.using(self.alias), self.id)

    def progress(self) -> BatchProgress:
        """Return how many of its jobs are done, dead and open. The cost does not depend on the size of the batch."""
        return progress_of(self.alias, self.id)

    def add(self, call: Call | Task) -> TaskResult:
        """Enqueue a job of the batch, in the transaction of the caller.

        Raises ``BatchFinished`` when all of its jobs have ended. A job of the batch can add to it while it runs.
        """
        one = call_of(call)
        return one.backend().enqueue_at(one.task, one.args, one.kwargs, Place(self.id), self.alias)

    def add_many(self, task: Task, arguments: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[int]:
        """Enqueue a task once for each item, as ``enqueue_many`` does. Return the ids of the jobs."""
        news = []
        for item in arguments:
            args, kwargs = ((), item) if isinstance(item, Mapping) else (tuple(item), {})
            news.append(Call(task, args, kwargs).new_job(self.alias, Place(self.id)))
        ids: list[int] = Job.objects.db_manager(self.alias).enqueue_many(news)
        if ids and is_due_soon(task.run_after):
            wake_workers(self.alias, [task.queue_name])
        return ids

    def seal(
        self,
        *,
        on_success: Call | Sequence[Call] | None = None,
        on_dead: Call | Sequence[Call] | None = None,
        on_end: Call | Sequence[Call] | None = None,
    ) -> None:
        """Declare that all jobs were added, and add callbacks, in the transaction of the caller.

        ``on_success`` runs when every job has ended, ``on_dead`` when the first one is a dead letter, and ``on_end``
        when every job has ended or is a dead letter. Each runs once, and none before the batch is sealed.
        """
        callbacks = [
            *((call, When.FINISHED, OnNeedFailed.WAIT) for call in calls_of(on_success)),
            *((call, When.DEAD, OnNeedFailed.CANCEL) for call in calls_of(on_dead)),
            *((call, When.ENDED, OnNeedFailed.CONTINUE) for call in calls_of(on_end)),
        ]
        jobs = Job.objects.db_manager(self.alias)
        with joined(self.alias):
            place = Place(self.row.parent_id if callbacks else None, waits=True)
            news = [call.new_job(self.alias, place) for call, _, _ in callbacks]
            are_keyed = any(map(has_key, news))
            [before] = take_ids(self.alias, 1) if are_keyed else [0]
            ids = jobs.enqueue_many(news) if news else []
            [after] = take_ids(self.alias, 1) if are_keyed else [MAX_ID]
            needs = [
                (job_id, Need(batch_id=self.id, when=when, on_need_failed=on_need_failed))
                for job_id, (_, when, on_need_failed) in zip(ids, callbacks, strict=True)
                if before < job_id < after  # not for an earlier job, which waits for nothing here
            ]
            if needs:
                add_needs(jobs, needs)
            seal_batch(jobs, self.id)
        resolve_when_committed(self.alias)

    def cancel(self, *, reason: str = "") -> bool:
        """Cancel all of its jobs, and the batches within it. Return False if it had ended or was cancelled before.

        Waiting jobs are cancelled after the commit, a thousand at a time, and running ones are asked to stop. If this
        process dies meanwhile, a watchdog continues. A job that is added later is cancelled at once.
        """
        jobs = Job.objects.db_manager(self.alias)
        cancelled = cancel_batch(jobs, self.id, reason=reason)
        resolve_when_committed(self.alias)
        return self.id in cancelled

    def pause(self) -> bool:
        """Pause it and the batches within it until it is resumed. Running jobs continue.

        Return False if it had ended or was paused before.
        """
        paused = pause_batch(Job.objects.db_manager(self.alias), self.id)
        transaction.on_commit(partial(hold_paused, self.alias), using=self.alias, robust=True)
        return self.id in paused

    def resume(self) -> bool:
        """Resume it after a pause. Return whether it was paused."""
        resumed = resume_batch(Job.objects.db_manager(self.alias), self.id)
        resolve_when_committed(self.alias)
        return self.id in resumed


__all__ = ["Batch", "BatchProgress"]


# Send events to waiting jobs.


SENT_BY = Note(MAX_USER)


def send_event(name: str, payload: Any = None, *, by: str = "", using: str | None = None) -> bool:
    """Send an event, in the transaction of the caller. Jobs that wait for it run after the commit.

    It is kept for a while, so a job that waits for it later finds it. Only the first event with a name counts: for
    another one, this returns False and changes nothing. ``by`` is stored as the sender.

    A handler sends to the shard of its own job, and any other caller to every shard. ``using`` names one. If no backend
    of TASKS is PulseBackend, as in tests with ImmediateBackend, no job can wait for it, and nothing is written.
    """
    EVENT_NAME.check("name", name)
    by = SENT_BY.cleaned("by", by)
    encoded = None
    if payload is not None:
        encoded = encode_arguments(payload, limit=conf.current().max_payload_bytes, what="payload")
    if not uses_pulse():
        return True
    is_new = False
    for alias in _shards_of_event(using):
        if send(Job.objects.db_manager(alias), name, encoded, by=by):
            is_new = True
            resolve_when_committed(alias)
    return is_new


def _shards_of_event(using: str | None) -> list[str]:
    """Return the databases that keep it: the shard of the handler that sends it, or else every shard.

    If it goes to every shard and one is down, send it again; it is still one event. It cannot be rolled back.
    """
    if using is not None or current_run() is not None or not has_several_shards():
        return [alias_of_jobs(using)]
    if any(is_in_callers_transaction(alias) for alias in shards()):
        raise InvalidWorkflow(
            "send_event() writes to every shard, which no transaction spans. Name the shard of the waiting job with "
            "using=..., or send the event after the commit"
        )
    return list(shards())


# Signed links: a person who opens one and confirms sends an event. An approval by mail needs no login.
#
# A link is a capability: its bearer may send this event, once, until it expires. It contains the event and cannot be
# changed. It is signed and not encrypted, so its payload can be read.


VIEW = "pulse_django:send_signed_event"
MAX_LINK = 1_900  # characters, because some mail programs and proxies truncate longer links
_SALT = "pulse_django.event"
_TITLE = Text(200)
_BY = Text(150)


@dataclass(frozen=True, slots=True)
class SignedEvent:
    """The event of a link."""

    name: str
    payload: Any = field(repr=False)
    title: str  # the question of its page
    by: str  # stored as the sender
    using: str
    is_expired: bool  # or the database that waited for it is gone


def event_link(
    name: str,
    payload: Any = None,
    *,
    title: str,
    by: str,
    expires_in: Seconds = timedelta(days=7),
    using: str | None = None,
) -> str:
    """Return the path of a page that asks ``title`` and sends the event when it is confirmed.

    Add the scheme and the host with ``request.build_absolute_uri()``. ``by`` is stored as the sender: the person for
    whom the link is. Include ``pulse_django.urls`` in the URLconf.
    """
    EVENT_NAME.check("name", name)
    _TITLE.check("title", title)
    _BY.check("by", by)
    lasts = as_timedelta(expires_in)
    if lasts <= timedelta():
        raise InvalidWorkflow(f"expires_in={expires_in!r} is not in the future")
    encode_arguments(payload, limit=MAX_LINK, what="payload")  # raises for an invalid payload
    said = [name, payload, title, by, alias_of_jobs(using)]
    try:
        path = reverse(VIEW, args=[sign_for(lasts, _SALT, *said)])
    except NoReverseMatch:
        raise ImproperlyConfigured(
            'event_link() needs the page of Pulse: add path("pulse/", include("pulse_django.urls")) to the URLconf'
        ) from None
    if len(path) > MAX_LINK:
        raise InvalidWorkflow(f"the link would have {len(path):,} characters, at most are {MAX_LINK:,}: send less")
    return path


def read_link(token: str) -> SignedEvent | None:
    """Return the event of a link, or None if this project did not sign it."""
    if (found := read_expiring(_SALT, token)) is None:
        return None
    (name, payload, title, by, using), is_expired = found
    try:
        checked_shard(using)
    except InvalidJob:
        is_expired = True
    return SignedEvent(name, payload, title, by, using, is_expired)
