"""The indexes of jobs and of their attempts. Each serves one query, and is named after it."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import CLAIMABLE, TERMINAL, Status

from .sql_functions import HAS_TERMS, IS_TAGGED, Fingerprint, InUtc, TagIndex, index

HAS_ERROR = ~Q(last_error="")  # also of jobs that succeeded later
_CLAIMABLE = {"status__in": [status.value for status in CLAIMABLE]}
_IS_DEAD = Q(status=Status.DEAD_LETTERED.value)
HOLDS_KEY = Q(status=Status.RUNNING.value) & ~Q(lane_key="")

# One index for each query. No index may contain lease_until or have a condition on it: otherwise every heartbeat would
# write to every index (docs/adr/0004).
JOB_INDEXES = [
    # The key stands before the time, so that a claim skips a blocked lane as one range, without reading its rows.
    models.Index(
        *("queue", F("priority").desc(), F("ready").desc(), "lane_key", "next_run_at", "id"),
        name="pulse_job_lane",
        condition=Q(**_CLAIMABLE),
    ),
    index("pulse_job_unready", ["next_run_at", "id"], Q(**_CLAIMABLE, ready=False)),
    # Jobs that are set aside because their task is paused. In most projects, this index is empty.
    index("pulse_job_aside", ["task", "queue", "id"], Q(**_CLAIMABLE, ready__isnull=True)),
    index("pulse_job_reap", ["id"], Q(status=Status.RUNNING.value)),
    # Counts leases. With the token, entries that ended long ago are not read while an old snapshot keeps them.
    index("pulse_job_held_key", ["lane_key", "token"], HOLDS_KEY),
    index("pulse_job_held_queue", ["queue", "token"], HOLDS_KEY),
    index("pulse_job_retention", ["status", "finished_at", "id"], Q(status__in=[status.value for status in TERMINAL])),
    index("pulse_job_dead_letters", ["finished_at", "id"], _IS_DEAD),
    # The queues with dead letters, and how many each has.
    index("pulse_job_dead_in_queue", ["queue", "finished_at"], _IS_DEAD),
    index("pulse_job_children", ["parent"], Q(parent__isnull=False)),
    index("pulse_job_waiting", ["id"], Q(status=Status.WAITING.value)),
    # Each partition of history has the same index. Jobs without tags are not in it.
    TagIndex(fields=["tags"], name="pulse_job_tags", condition=IS_TAGGED),
    # The same for jobs that are found by an argument, and for jobs that have failed. Other jobs are in neither.
    TagIndex(fields=["search_terms"], name="pulse_job_search", condition=HAS_TERMS),
    index("pulse_job_errors", ["id"], HAS_ERROR),
    # Only dead letters, so that the fingerprint costs other jobs nothing (docs/adr/0074).
    models.Index(
        Fingerprint("last_error"), InUtc("finished_at"), "id", name="pulse_job_error_group", condition=_IS_DEAD
    ),
]

# Only for runs that went wrong, so that they cost other runs nothing.
ATTEMPT_INDEXES = [
    models.Index(
        fields=["worker", "id"],
        opclasses=["varchar_pattern_ops", "int8_ops"],
        name="pulse_attempt_lost",
        condition=Q(outcome=OutcomeName.WORKER_LOST.value),
    ),
    index("pulse_attempt_late", ["late_at"], Q(late_at__isnull=False)),
]
