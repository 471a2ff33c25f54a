"""What a handler sees: ``context``, the first argument of a task that takes it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from asgiref.sync import sync_to_async
from django.db import transaction

from pulse_django import conf
from pulse_django.exceptions import Discard, LeaseLost, Snooze, UnstorableResult
from pulse_django.models import Job, Limiter, Pause
from pulse_django.queue.database.transactions import durable, refuse_callers_transaction
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.durations import Seconds
from pulse_django.queue.words.lane_keys import key_of, limiter_of
from pulse_django.queue.words.masks import PROGRESS, RESULT
from pulse_django.queue.words.other_queues import OF_CONTEXTS, says_instead
from pulse_django.queue.words.outcomes import Failed, returned
from pulse_django.queue.words.verb_results import Report
from pulse_django.safe_logging import SafeLogger
from pulse_django.shards.placement import alias_of_completion
from pulse_django.signals import lease_lost, send
from pulse_django.workflows.durable_steps import DurableSteps
from pulse_django.workflows.waits import Waits

from .codec import codec
from .registry import TaskContext
from .run import PAUSE_BEFORE_LOCKED_ROW, Run

logger = SafeLogger("pulse_django.jobs")

TOKEN_HEADER = "Pulse-Fencing-Token"  # noqa: S105 - the name of a header
KEY_HEADER = "Idempotency-Key"


@dataclass(slots=True)
class Completion:
    """What ``with context.atomic() as completion`` gives: set ``completion.result`` to store one."""

    result: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(DurableSteps, Waits, TaskContext):
    """Django's context, and what a run that may be interrupted needs."""

    run: Run = field(repr=False)

    if not TYPE_CHECKING:
        __getattr__ = says_instead(OF_CONTEXTS)

    @property
    def job_id(self) -> int:
        """The id of the job: the same in all of its runs."""
        return self.run.claim.job_id

    @property
    def attempt(self) -> int:
        """Rises with every run of the job. (job_id, attempt) names this run and no other of its database."""
        return self.run.claim.attempt

    @property
    def token(self) -> int:
        """Rises with every claim of any job: give it to other systems, and let them refuse older ones."""
        return self.run.claim.token

    @property
    def is_last_attempt(self) -> bool:
        """No run follows if this one fails: it has no attempts left, or ``give_up_after`` allows no retry.

        False if it is not known yet: the time that this run will take, or an exception that the task never retries.
        """
        return self.run.is_last_attempt(getattr(self.task_result.task, "retry", None))

    @property
    def meta(self) -> dict[str, Any]:
        """What the job was labelled with: ``.using(meta={...})``."""
        return self.run.claim.meta

    @property
    def cancelled(self) -> bool:
        """The job was asked to stop. Looking does not ask the database; ``check()`` may."""
        self.run.look()
        return self.run.cancelled

    @property
    def checkpoint(self) -> Any:
        """What an earlier run of this job last gave to ``progress()``, or None: resume from it."""
        claim = self.run.claim
        return None if claim.progress_json is None else codec().read(claim, claim.progress, PROGRESS)

    @property
    def headers(self) -> dict[str, str]:
        """The token and a deduplication key, as HTTP headers for the systems that this handler calls.

        The key is the job's: every attempt sends the same, so that what one attempt did is not done again by the next.
        """
        return {TOKEN_HEADER: str(self.token), KEY_HEADER: f"pulse-{self.job_id}"}

    def check(self) -> None:
        """Raise ``JobCancelled`` or ``LeaseLost`` if this run should stop. Call it between steps of long work."""
        self.run.check()

    def lease_remaining(self) -> timedelta:
        """How long the lease surely holds if it is not extended, by this host's own clock."""
        return timedelta(seconds=max(0.0, self.run.lease_remaining()))

    def progress(self, done: float, total: float | None = None, *, flush: bool = False, **payload: Any) -> None:
        """Say how far the work is. It travels with the next heartbeat, and the next attempt finds it in ``checkpoint``.

        ``flush=True`` writes it now: before a step that must not be repeated.
        """
        saved: Mapping[str, Any] = {"done": done} | ({} if total is None else {"total": total}) | payload
        self.run.note_progress(saved, limit=conf.current().max_payload_bytes)
        if flush:
            self._flush()

    async def acheck(self) -> None:
        """``check()`` for async handlers."""
        await sync_to_async(self.check)()

    async def aprogress(self, done: float, total: float | None = None, *, flush: bool = False, **payload: Any) -> None:
        """``progress()`` for async handlers; only ``flush=True`` needs it."""
        await sync_to_async(self.progress)(done, total, flush=flush, **payload)

    @contextmanager
    def atomic(self, *, using: str | None = None) -> Iterator[Completion]:
        """Make the writes of this block and the completion of the job one transaction: both happen, or neither.

        This is how effects happen exactly once, and it ends at this database. The completion is the last statement,
        so the job's row is not locked meanwhile and heartbeats go on. When the lease was lost, everything is rolled
        back and ``LeaseLost`` is raised. Nothing that follows the block belongs to the job any more.

        Where the jobs live in another database than the project's models, no transaction can hold both, and the block
        is refused. ``using`` names the jobs' database for a handler that knows, and writes there.
        """
        if self.run.completed:
            raise RuntimeError("this run has already completed its job; the writes of a second atomic() would be lost")
        lease, completion, alias = self.run.claim.lease, Completion(), alias_of_completion(self.run, using)
        sensitive = codec().hides_result(self.task_result.task, self.run.claim.sensitive)
        refuse_callers_transaction(alias, "context.atomic()")
        jobs = Job.objects.db_manager(alias)
        report: Report | None = None
        try:
            with durable(alias):
                # First of all that happens after the commit, so that a callback of the handler's that raises finds it.
                transaction.on_commit(self._note_completion, using=alias)
                yield completion
                outcome = returned(completion.result, limit=conf.current().max_payload_bytes, sensitive=sensitive)
                if isinstance(outcome, Failed):
                    raise UnstorableResult(outcome.error.message)
                stored = outcome.result and codec().stored(self.run.claim, outcome.result, RESULT)
                report = Report(lease, outcome, Complete(stored), self.run.last_progress())
                settled = jobs.settle([report])
                self.run.has_notes = settled.has_notes
                if lease not in settled.accepted:
                    self.run.lost = True
                    raise LeaseLost("this run lost its lease to another run; everything in this block was rolled back")
        except LeaseLost:
            if report is not None:
                jobs.settle([report])  # once more, for the ledger: the first was rolled back with the transaction
                # Log and signal the refusal, as the worker does for every other report.
                claim = self.run.claim
                text = "job %d %r attempt %d: lease lost; its completion was refused and rolled back"
                logger.warning(text, claim.job_id, claim.task, claim.attempt)
                send(lease_lost, Job, claim=claim, outcome=report.outcome, using=alias)
            raise
        except BaseException:
            if report is not None and not self.run.completed:
                self.run.give_back(report.progress)
            raise
        self._note_completion()  # inside a TestCase no commit happens
        self.run.verdict = outcome

    def _note_completion(self) -> None:
        self.run.completed = True

    def snooze(self, delay: Seconds) -> NoReturn:
        """End this run and have the job run again after ``delay``. The attempt does not count."""
        raise Snooze(delay)

    def pause_limit(
        self, duration: Seconds, *, limit: str | None = None, only_key: bool = False, reason: str = ""
    ) -> None:
        """Start no job of a limit for a time: of this job's, or of the one with that name. This run goes on.

        With ``only_key``, none with this job's key of its limit or share.
        """
        if only_key:
            if limit is not None or key_of(self.run.claim.lane_key) is None:
                raise ValueError("pause_limit(only_key=True) is for the key of this job, and it has none")
            pauses = Pause.objects.db_manager(self.run.alias)
            pauses.pause(lane_key=self.run.claim.lane_key, duration=duration, reason=reason)
            return
        limiter = limiter_of(self.run.claim.lane_key) if limit is None else limit
        if not limiter:
            raise ValueError("pause_limit() needs the name of a limit: this job has none")
        Limiter.objects.db_manager(self.run.alias).pause(limiter, duration=duration, reason=reason)

    async def apause_limit(
        self, duration: Seconds, *, limit: str | None = None, only_key: bool = False, reason: str = ""
    ) -> None:
        """``pause_limit()`` for async handlers."""
        await sync_to_async(self.pause_limit)(duration, limit=limit, only_key=only_key, reason=reason)

    def discard(self, reason: str) -> NoReturn:
        """End this run and the job: it is not wanted any more."""
        raise Discard(reason)

    def _flush(self) -> None:
        lease, progress = self.run.claim.lease, self.run.take_progress()
        jobs = Job.objects.db_manager(self.run.alias)
        while True:
            beat = jobs.heartbeat([lease], {lease: progress} if progress else None)
            if lease in beat.alive:
                return
            if lease in beat.lost or self.run.lease_remaining() <= 0:
                self.run.lost = lease in beat.lost
                self.run.was_out_of_touch = not self.run.lost
                raise LeaseLost(
                    "this run lost its lease to another run, or the job's row is locked; the progress was not saved"
                )
            time.sleep(PAUSE_BEFORE_LOCKED_ROW)
