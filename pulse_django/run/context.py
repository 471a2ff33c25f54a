"""``context``, the first argument of a handler that takes it."""

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
    """The object of ``with context.atomic() as completion``. Set ``completion.result`` to store a result."""

    result: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(DurableSteps, Waits, TaskContext):
    """Django's context, with methods for runs that may be interrupted."""

    run: Run = field(repr=False)

    if not TYPE_CHECKING:
        __getattr__ = says_instead(OF_CONTEXTS)

    @property
    def job_id(self) -> int:
        """The id of the job: the same in all of its runs."""
        return self.run.claim.job_id

    @property
    def attempt(self) -> int:
        """The number of this run. It grows with every run of the job, so (job_id, attempt) is unique in a database."""
        return self.run.claim.attempt

    @property
    def token(self) -> int:
        """The fencing token, which grows with every claim of any job. Other systems can refuse older tokens."""
        return self.run.claim.token

    @property
    def is_last_attempt(self) -> bool:
        """Whether the job becomes a dead letter if this run fails: no attempts are left, or ``give_up_after`` ends
        retries.

        It is False while this is not known: the duration of the run or the type of the exception may still decide it.
        """
        return self.run.is_last_attempt(getattr(self.task_result.task, "retry", None))

    @property
    def meta(self) -> dict[str, Any]:
        """The meta of the job, from ``.using(meta={...})``."""
        return self.run.claim.meta

    @property
    def cancelled(self) -> bool:
        """Whether the job was asked to stop. Reading it sends no query; ``check()`` may send one."""
        self.run.look()
        return self.run.cancelled

    @property
    def checkpoint(self) -> Any:
        """The last progress that an earlier run of this job saved with ``progress()``, or None. Resume from it."""
        claim = self.run.claim
        return None if claim.progress_json is None else codec().read(claim, claim.progress, PROGRESS)

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers for requests to other systems: the fencing token and an idempotency key.

        All attempts of the job send the same key, so that the other system does not repeat the work of an earlier one.
        """
        return {TOKEN_HEADER: str(self.token), KEY_HEADER: f"pulse-{self.job_id}"}

    def check(self) -> None:
        """Raise ``JobCancelled`` or ``LeaseLost`` if this run should stop. Call it between steps of long work."""
        self.run.check()

    def lease_remaining(self) -> timedelta:
        """Return for how long the lease is still valid if it is not extended, by the clock of this host."""
        return timedelta(seconds=max(0.0, self.run.lease_remaining()))

    def progress(self, done: float, total: float | None = None, *, flush: bool = False, **payload: Any) -> None:
        """Report progress. The next heartbeat saves it, and the next attempt finds it in ``checkpoint``.

        ``flush=True`` saves it now. Use it before a step that must not be repeated.
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
        """Put the writes of this block and the completion of the job into one transaction: both happen, or neither.

        This gives exactly-once effects, but only in this database. The completion is the last statement, so the job's
        row is not locked before, and heartbeats go on. If the lease was lost, everything is rolled back and
        ``LeaseLost`` is raised. Code after the block is not part of the job any more.

        If the jobs are stored in another database than the project's models, one transaction cannot span both, and the
        block is refused. Pass ``using`` with the alias of the jobs' database if the handler writes only there.
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
                # Before all other callbacks of the commit, so that the completion is noted even if one of them raises.
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
                jobs.settle([report])  # again, for the ledger: the first settle was rolled back with the transaction
                # Log and signal the refusal, as the worker does for other reports.
                claim = self.run.claim
                text = "job %d %r attempt %d: lease lost; its completion was refused and rolled back"
                logger.warning(text, claim.job_id, claim.task, claim.attempt)
                send(lease_lost, Job, claim=claim, outcome=report.outcome, using=alias)
            raise
        except BaseException:
            if report is not None and not self.run.completed:
                self.run.give_back(report.progress)
            raise
        self._note_completion()  # in a TestCase, no commit happens
        self.run.verdict = outcome

    def _note_completion(self) -> None:
        self.run.completed = True

    def snooze(self, delay: Seconds) -> NoReturn:
        """End this run, and run the job again after ``delay``. The attempt does not count."""
        raise Snooze(delay)

    def pause_limit(
        self, duration: Seconds, *, limit: str | None = None, only_key: bool = False, reason: str = ""
    ) -> None:
        """Pause a limit for a time: the limit of this job, or the one with this name. This run goes on.

        With ``only_key``, pause only jobs that have the same key of a limit or share as this job.
        """
        if only_key:
            if limit is not None or key_of(self.run.claim.lane_key) is None:
                raise ValueError("pause_limit(only_key=True) needs a job with a key: this job has none")
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
        """End this run, and cancel the job because it is no longer wanted."""
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
