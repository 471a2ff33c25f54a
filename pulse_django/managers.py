"""The managers. ``Job.objects`` has the verbs in the order of a job's life, and ``Schedule.objects`` those of
schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .amendments.amend import amend
from .expiry.expire import expire
from .limits.claim_limited import claim_limited
from .queue.cancel import request_cancel
from .queue.claim import claim, claim_these
from .queue.database.job_queries import JobReader
from .queue.database.transactions import TableManager
from .queue.enqueue import enqueue, enqueue_alike, enqueue_many, get_or_enqueue
from .queue.heartbeat import heartbeat
from .queue.mend import mend, shorten_leases
from .queue.prune import drop_days, forget_orphans, make_days, prune, prune_these
from .queue.reap import overlooked, reap, reap_these, touch_expired
from .queue.reschedule import move, reschedule
from .queue.retry import retry
from .queue.set_aside import bring_back, promote, set_aside
from .queue.settle import keep_errors_after_completion, release, settle
from .queue.words.durations import as_timedelta
from .schedules import verbs as schedules
from .schedules.timings import Timing
from .workflows.batch_verbs import forget_batches, hold
from .workflows.needs import note_overlooked
from .workflows.resolve import resolve

if TYPE_CHECKING:
    from .models import Schedule


class JobManager(JobReader):
    """The verbs: every write to a job. Each has a module in ``queue/``."""

    enqueue = enqueue
    get_or_enqueue = get_or_enqueue
    enqueue_many = enqueue_many
    enqueue_alike = enqueue_alike

    promote = promote
    set_aside = set_aside
    bring_back = bring_back
    claim = claim
    claim_these = claim_these
    claim_limited = claim_limited

    heartbeat = heartbeat

    settle = settle
    release = release
    keep_errors_after_completion = keep_errors_after_completion

    reap = reap
    reap_these = reap_these
    overlooked = overlooked
    touch_expired = touch_expired

    expire = expire

    resolve = resolve
    note_overlooked = note_overlooked
    hold = hold

    mend = mend
    shorten_leases = shorten_leases

    request_cancel = request_cancel

    reschedule = reschedule
    move = move
    amend = amend

    retry = retry

    prune = prune
    prune_these = prune_these
    forget_orphans = forget_orphans
    forget_batches = forget_batches

    make_days = make_days
    drop_days = drop_days


class ScheduleManager(TableManager["Schedule"]):
    """Every write to a schedule, except ticks."""

    change = schedules.change
    follow_code = schedules.follow_code
    pause = schedules.pause
    resume = schedules.resume
    declare = schedules.declare
    columns_of = staticmethod(schedules.columns_of_timing)

    def create(self, **fields: Any) -> Schedule:
        """Create a schedule that is not declared in code. It first fires after now.

        ``task`` is a task or its key. ``timing`` is a ``Cron`` or an ``Every``, and fills their columns.
        """
        if isinstance(timing := fields.pop("timing", None), Timing):
            fields |= schedules.columns_of_timing(timing)
        fields |= {name: as_timedelta(fields[name]) for name in ("every", "phase", "grace", "jitter") if name in fields}
        schedule: Schedule = self.model(**{**fields, "task": _key_of(fields.get("task", ""))})
        schedules.store(schedule, self.write_alias)
        return schedule


def _key_of(task: Any) -> str:
    """Return the key of a task's jobs. Tasks of other backends have no ``key``."""
    return task if isinstance(task, str) else getattr(task, "registered_name", "") or task.module_path
