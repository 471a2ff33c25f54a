"""Pulse for Django: a PostgreSQL job queue in which the claim is the lease."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import amend, cancel, enqueue_many, get, jobs, progress, release, retry, shard_of
    from .exceptions import (
        AlreadyEnqueued,
        BatchClosed,
        Discard,
        EventTimedOut,
        JobCancelled,
        JobOnItsWay,
        LeaseLost,
        NeedNotDone,
        RateLimited,
        Snooze,
        StaleToken,
    )
    from .execution.chunks import Chunk, ChunkItem
    from .execution.context import Context
    from .execution.fencing import FencedModel, fence, fenced_update
    from .execution.job_progress import progress_token
    from .execution.pauses import pause_queue, pause_task, resume_queue, resume_task
    from .fleet.explanation import Explanation, explain
    from .schedules.declarations import Schedule
    from .tasks import task
    from .words.limiting import Breaker, Limit, Rate
    from .words.retry_policies import NO_RETRIES, Backoff, RetryPolicy, never, only, retry_after
    from .words.timings import Cron, Every
    from .words.uniqueness import Unique
    from .workflows.batches import Batch, event_link, send_event
    from .workflows.builder import Workflow
    from .workflows.canvas import chain, chord, group

__version__ = "0.1.0"

# Imported when first used: an app's package is loaded before its models can be.
_HOMES = {
    "api": ("amend", "cancel", "enqueue_many", "get", "jobs", "progress", "release", "retry", "shard_of"),
    "exceptions": (
        "AlreadyEnqueued",
        "BatchClosed",
        "Discard",
        "EventTimedOut",
        "JobCancelled",
        "JobOnItsWay",
        "LeaseLost",
        "NeedNotDone",
        "RateLimited",
        "Snooze",
        "StaleToken",
    ),
    "execution.context": ("Context",),
    "execution.chunks": ("Chunk", "ChunkItem"),
    "execution.fencing": ("FencedModel", "fence", "fenced_update"),
    "execution.job_progress": ("progress_token",),
    "execution.pauses": ("pause_queue", "pause_task", "resume_queue", "resume_task"),
    "fleet.explanation": ("Explanation", "explain"),
    "schedules.declarations": ("Schedule",),
    "tasks": ("task",),
    "words.limiting": ("Breaker", "Limit", "Rate"),
    "words.retry_policies": ("Backoff", "NO_RETRIES", "RetryPolicy", "never", "only", "retry_after"),
    "words.timings": ("Cron", "Every"),
    "words.uniqueness": ("Unique",),
    "workflows.batches": ("Batch", "event_link", "send_event"),
    "workflows.builder": ("Workflow",),
    "workflows.canvas": ("chain", "chord", "group"),
}

__all__ = [
    "NO_RETRIES",
    "AlreadyEnqueued",
    "Backoff",
    "Batch",
    "BatchClosed",
    "Breaker",
    "Chunk",
    "ChunkItem",
    "Context",
    "Cron",
    "Discard",
    "EventTimedOut",
    "Every",
    "Explanation",
    "FencedModel",
    "JobCancelled",
    "JobOnItsWay",
    "LeaseLost",
    "Limit",
    "NeedNotDone",
    "Rate",
    "RateLimited",
    "RetryPolicy",
    "Schedule",
    "Snooze",
    "StaleToken",
    "Unique",
    "Workflow",
    "amend",
    "cancel",
    "chain",
    "chord",
    "enqueue_many",
    "event_link",
    "explain",
    "fence",
    "fenced_update",
    "get",
    "group",
    "jobs",
    "never",
    "only",
    "pause_queue",
    "pause_task",
    "progress",
    "progress_token",
    "release",
    "resume_queue",
    "resume_task",
    "retry",
    "retry_after",
    "send_event",
    "shard_of",
    "task",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
