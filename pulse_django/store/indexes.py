"""The indexes of jobs and of their attempts, each named after its one query."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from pulse_django.words.outcomes import OutcomeName
from pulse_django.words.states import CLAIMABLE, TERMINAL, Status

from .sql_functions import HAS_TERMS, IS_TAGGED, Fingerprint, InUtc, LimiterOf, TagIndex

HAS_ERROR = ~Q(last_error="")  # also of jobs that succeeded later
_CLAIMABLE = {"status__in": [status.value for status in CLAIMABLE]}
_IS_DEAD = Q(status=Status.DEAD_LETTERED.value)
HOLDS_KEY = Q(status=Status.RUNNING.value) & ~Q(lane_key="")

# One index, one query. None may hold or be conditioned on lease_until: every heartbeat would then touch
# every index (docs/adr/0004).
JOB_INDEXES = [
    # The key stands before the time: a lane that may not start anything is one range to leave out, and no rows to step
    # over.
    models.Index(
        *("queue", F("priority").desc(), F("ready").desc(), "lane_key", "next_run_at", "id"),
        name="pulse_job_lane",
        condition=Q(**_CLAIMABLE),
    ),
    models.Index(fields=["next_run_at", "id"], name="pulse_job_unready", condition=Q(**_CLAIMABLE, ready=False)),
    # What waits and is set aside, because its task is paused: nothing, in most projects.
    models.Index(fields=["task", "queue", "id"], name="pulse_job_aside", condition=Q(**_CLAIMABLE, ready__isnull=True)),
    models.Index(fields=["id"], name="pulse_job_reap", condition=Q(status=Status.RUNNING.value)),
    # Leases are counted by these. With the token, what ended long ago is not read while an old snapshot keeps it.
    models.Index(fields=["lane_key", "token"], name="pulse_job_held_key", condition=HOLDS_KEY),
    models.Index(LimiterOf("lane_key"), "token", name="pulse_job_held_limit", condition=HOLDS_KEY),
    models.Index(fields=["queue", "token"], name="pulse_job_held_queue", condition=HOLDS_KEY),
    models.Index(
        fields=["status", "finished_at", "id"],
        name="pulse_job_retention",
        condition=Q(status__in=[status.value for status in TERMINAL]),
    ),
    models.Index(fields=["finished_at", "id"], name="pulse_job_dead_letters", condition=_IS_DEAD),
    # The queues that hold dead letters, and how many each holds.
    models.Index(fields=["queue", "finished_at"], name="pulse_job_dead_in_queue", condition=_IS_DEAD),
    models.Index(fields=["parent"], name="pulse_job_children", condition=Q(parent__isnull=False)),
    # In this partition a job that is finished is a dead letter.
    models.Index(
        fields=["batch", "id"], name="pulse_job_batch_open", condition=Q(batch__isnull=False, finished_at__isnull=True)
    ),
    models.Index(
        fields=["batch", "id"], name="pulse_job_batch_dead", condition=Q(batch__isnull=False, finished_at__isnull=False)
    ),
    models.Index(fields=["id"], name="pulse_job_waiting", condition=Q(status=Status.WAITING.value)),
    # What no worker has claimed and expires. A claim takes the job out of it.
    models.Index(
        fields=["expires_at"],
        name="pulse_job_expiry",
        condition=Q(status=Status.PENDING.value, attempts=0, expires_at__isnull=False),
    ),
    # Each day of history has one like it. Jobs without tags are not in it.
    TagIndex(fields=["tags"], name="pulse_job_tags", condition=IS_TAGGED),
    # The same for what is found by an argument, and for what has failed once. Other jobs are in neither.
    TagIndex(fields=["search_terms"], name="pulse_job_search", condition=HAS_TERMS),
    models.Index(fields=["id"], name="pulse_job_errors", condition=HAS_ERROR),
    # Only of dead letters: nothing else pays for the fingerprint (docs/adr/0024, 0074).
    models.Index(
        Fingerprint("last_error"), InUtc("finished_at"), "id", name="pulse_job_error_group", condition=_IS_DEAD
    ),
]

WINDOW_INDEXES = [
    models.Index(fields=["until"], name="pulse_window_ended"),
    models.Index(fields=["job_id"], name="pulse_window_job"),
]

# Of the few runs that went wrong: the others pay nothing.
ATTEMPT_INDEXES = [
    models.Index(
        fields=["worker", "id"],
        opclasses=["varchar_pattern_ops", "int8_ops"],
        name="pulse_attempt_lost",
        condition=Q(outcome=OutcomeName.WORKER_LOST.value),
    ),
    models.Index(fields=["late_at"], name="pulse_attempt_late", condition=Q(late_at__isnull=False)),
]
