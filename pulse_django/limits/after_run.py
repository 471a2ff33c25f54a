"""The effect of a run's end on the limit of its job: a pause, or a failure that its breaker counts."""

from __future__ import annotations

from django.db import DatabaseError

from pulse_django.exceptions import InvalidJob, RateLimited
from pulse_django.models import Limiter, Pause
from pulse_django.queue.words.durations import Seconds
from pulse_django.queue.words.lane_keys import key_of, limiter_of
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.run.execute import AfterRun
from pulse_django.run.judging import reason_of
from pulse_django.run.registry import Task
from pulse_django.run.run import Run
from pulse_django.safe_logging import SafeLogger

from .rules import Limit

logger = SafeLogger("pulse_django.limits")


def _rate_limited(limit: Limit | None, error: BaseException) -> RateLimited | None:
    """Return the exception, or the pause that ``pause_when`` returns for it."""
    if isinstance(error, RateLimited):
        return error
    if limit is None or limit.pause_when is None or not isinstance(error, Exception):
        return None
    try:
        after: Seconds | None = limit.pause_when(error)
        return None if after is None else RateLimited(after, type(error).__name__)
    except BaseException:  # SystemExit too: the run must end
        logger.exception("pause_when of a limit raised an error")
        return None


class AfterLimitedRun(AfterRun):
    def concerns(self, run: Run, task: Task, error: BaseException) -> bool:
        """Say whether ``failed()`` may change the limit of a job or its key."""
        limit: Limit | None = getattr(task, "limit", None)
        reads_errors = limit is not None and (limit.pause_when is not None or limit.breaker is not None)
        return bool(run.claim.lane_key) and (reads_errors or isinstance(error, RateLimited))

    def failed(self, run: Run, task: Task, error: BaseException) -> BaseException:
        """Report the exception of a handler to the limit. Return the exception that the run ends with."""
        limit: Limit | None = getattr(task, "limit", None)
        ends_with: BaseException = _rate_limited(limit, error) or error
        limiter = limiter_of(run.claim.lane_key)
        limiters = Limiter.objects.db_manager(run.alias)
        try:
            if isinstance(ends_with, RateLimited) and ends_with.only_key and key_of(run.claim.lane_key) is not None:
                pauses = Pause.objects.db_manager(run.alias)
                pauses.pause(lane_key=run.claim.lane_key, duration=ends_with.delay, reason=reason_of(run, ends_with))
                run.refuses = run.claim.lane_key
            elif limiter and isinstance(ends_with, RateLimited):
                if limiters.pause(limiter, duration=ends_with.delay, reason=reason_of(run, ends_with)):
                    run.refuses = limiter
                    logger.warning("Limit %s is paused for %s: %s", limiter, ends_with.delay, reason_of(run, ends_with))
            elif limiter and limit is not None and limit.breaker is not None and isinstance(error, limit.breaker.on):
                reason = f"breaker: {type(error).__name__}"
                if limiters.failed(limiter, limit.breaker, reason=reason):
                    run.refuses = limiter
                    logger.warning("Limit %s is paused for %s: %s", limiter, limit.breaker.pause_for, reason)
        except (DatabaseError, InvalidJob) as fault:
            logger.warning("Limit %s could not be paused: %s", limiter, error_in_one_line(fault))
        return ends_with

    def succeeded(self, run: Run) -> None:
        """Resume the limit: the run that probed it has succeeded."""
        limiter = limiter_of(run.claim.lane_key)
        try:
            if Limiter.objects.db_manager(run.alias).resume(limiter):
                logger.info("Limit %s is resumed: a run has succeeded", limiter)
        except DatabaseError as fault:
            logger.warning("Limit %s could not be resumed: %s", limiter, error_in_one_line(fault))
