"""``Job.objects``: the verbs of the protocol, in the order of a job's life, and the questions about jobs."""

from __future__ import annotations

from .protocol.cancel import request_cancel
from .protocol.claim import claim, claim_these
from .protocol.enqueue import enqueue, enqueue_alike, enqueue_many, get_or_enqueue
from .protocol.eras import drop_days, make_days
from .protocol.heartbeat import heartbeat
from .protocol.mend import mend, shorten_leases
from .protocol.prune import prune, prune_these
from .protocol.reap import overlooked, reap, reap_these, touch_expired
from .protocol.retry import retry
from .protocol.settle import keep_errors_after_completion, release, settle
from .protocol.waiting import move, reschedule
from .store.job_queries import JobReader


class JobManager(JobReader):
    """Every write to a job is one of these. ``protocol/`` has a file for each."""

    enqueue = enqueue
    get_or_enqueue = get_or_enqueue
    enqueue_many = enqueue_many
    enqueue_alike = enqueue_alike

    claim = claim
    claim_these = claim_these

    heartbeat = heartbeat

    settle = settle
    release = release
    keep_errors_after_completion = keep_errors_after_completion

    reap = reap
    reap_these = reap_these
    overlooked = overlooked
    touch_expired = touch_expired

    mend = mend
    shorten_leases = shorten_leases

    request_cancel = request_cancel

    reschedule = reschedule
    move = move

    retry = retry

    prune = prune
    prune_these = prune_these

    make_days = make_days
    drop_days = drop_days
