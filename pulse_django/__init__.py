"""Pulse for Django: a PostgreSQL job queue in which the claim is the lease."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import amend as amend
    from .api import cancel as cancel
    from .api import enqueue_many as enqueue_many
    from .api import get as get
    from .api import jobs as jobs
    from .api import progress as progress
    from .api import release as release
    from .api import result_of_public_id as result_of_public_id
    from .api import retry as retry
    from .api import shard_of as shard_of
    from .chunks.chunk import Chunk as Chunk
    from .chunks.chunk import ChunkItem as ChunkItem
    from .exceptions import AlreadyEnqueued as AlreadyEnqueued
    from .exceptions import BatchFinished as BatchFinished
    from .exceptions import Discard as Discard
    from .exceptions import EventTimedOut as EventTimedOut
    from .exceptions import JobCancelled as JobCancelled
    from .exceptions import JobIsMoving as JobIsMoving
    from .exceptions import LeaseLost as LeaseLost
    from .exceptions import NeededResultMissing as NeededResultMissing
    from .exceptions import RateLimited as RateLimited
    from .exceptions import RetryLater as RetryLater
    from .exceptions import Snooze as Snooze
    from .exceptions import StaleToken as StaleToken
    from .health.explanation import Explanation as Explanation
    from .health.explanation import explain as explain
    from .limits.rules import Breaker as Breaker
    from .limits.rules import Limit as Limit
    from .limits.rules import Rate as Rate
    from .on_dead.hooks import DeadJob as DeadJob
    from .pauses.pausing import pause_queue as pause_queue
    from .pauses.pausing import pause_task as pause_task
    from .pauses.pausing import resume_queue as resume_queue
    from .pauses.pausing import resume_task as resume_task
    from .queue.words.bounds import UNLIMITED as UNLIMITED
    from .queue.words.retry_policies import NO_RETRIES as NO_RETRIES
    from .queue.words.retry_policies import Backoff as Backoff
    from .queue.words.retry_policies import RetryPolicy as RetryPolicy
    from .queue.words.retry_policies import read_retry_after as read_retry_after
    from .queue.words.retry_policies import retry_on as retry_on
    from .queue.words.retry_policies import retry_unless as retry_unless
    from .run.context import Context as Context
    from .run.fencing import FencedModel as FencedModel
    from .run.fencing import fence as fence
    from .run.fencing import fenced_update as fenced_update
    from .run.job_progress import progress_token as progress_token
    from .schedules.declarations import Schedule as Schedule
    from .schedules.timings import Cron as Cron
    from .schedules.timings import Every as Every
    from .tasks import task as task
    from .unique.rule import Unique as Unique
    from .workflows.batches import Batch as Batch
    from .workflows.batches import event_link as event_link
    from .workflows.batches import send_event as send_event
    from .workflows.builder import Workflow as Workflow
    from .workflows.canvas import chain as chain
    from .workflows.canvas import chord as chord
    from .workflows.canvas import group as group

__version__ = "0.1.0"

# Imported on first use, because the package of an app is loaded before its models can be.
_HOMES = {
    "api": "amend cancel enqueue_many get jobs progress release result_of_public_id retry shard_of",
    "chunks.chunk": "Chunk ChunkItem",
    "exceptions": "AlreadyEnqueued BatchFinished Discard EventTimedOut JobCancelled JobIsMoving LeaseLost "
    "NeededResultMissing RateLimited RetryLater Snooze StaleToken",
    "health.explanation": "Explanation explain",
    "limits.rules": "Breaker Limit Rate",
    "on_dead.hooks": "DeadJob",
    "pauses.pausing": "pause_queue pause_task resume_queue resume_task",
    "queue.words.bounds": "UNLIMITED",
    "queue.words.retry_policies": "NO_RETRIES Backoff RetryPolicy read_retry_after retry_on retry_unless",
    "run.context": "Context",
    "run.fencing": "FencedModel fence fenced_update",
    "run.job_progress": "progress_token",
    "schedules.declarations": "Schedule",
    "schedules.timings": "Cron Every",
    "tasks": "task",
    "unique.rule": "Unique",
    "workflows.batches": "Batch event_link send_event",
    "workflows.builder": "Workflow",
    "workflows.canvas": "chain chord group",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        from .queue.words.other_queues import OF_IMPORTS

        if name in OF_IMPORTS:  # an ImportError, because ``from ... import`` hides the text of an AttributeError
            raise ImportError(f"{name} is Celery's: write {OF_IMPORTS[name]}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
