"""The indexes of jobs and of their attempts, each named after its one query."""

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
    index("pulse_job_unready", ["next_run_at", "id"], Q(**_CLAIMABLE, ready=False)),
    # What waits and is set aside, because its task is paused: nothing, in most projects.
    index("pulse_job_aside", ["task", "queue", "id"], Q(**_CLAIMABLE, ready__isnull=True)),
    index("pulse_job_reap", ["id"], Q(status=Status.RUNNING.value)),
    # Leases are counted by these. With the token, what ended long ago is not read while an old snapshot keeps it.
    index("pulse_job_held_key", ["lane_key", "token"], HOLDS_KEY),
    index("pulse_job_held_queue", ["queue", "token"], HOLDS_KEY),
    index("pulse_job_retention", ["status", "finished_at", "id"], Q(status__in=[status.value for status in TERMINAL])),
    index("pulse_job_dead_letters", ["finished_at", "id"], _IS_DEAD),
    # The queues that hold dead letters, and how many each holds.
    index("pulse_job_dead_in_queue", ["queue", "finished_at"], _IS_DEAD),
    index("pulse_job_children", ["parent"], Q(parent__isnull=False)),
    index("pulse_job_waiting", ["id"], Q(status=Status.WAITING.value)),
    # Each day of history has one like it. Jobs without tags are not in it.
    TagIndex(fields=["tags"], name="pulse_job_tags", condition=IS_TAGGED),
    # The same for what is found by an argument, and for what has failed once. Other jobs are in neither.
    TagIndex(fields=["search_terms"], name="pulse_job_search", condition=HAS_TERMS),
    index("pulse_job_errors", ["id"], HAS_ERROR),
    # Only of dead letters: nothing else pays for the fingerprint (docs/adr/0024, 0074).
    models.Index(
        Fingerprint("last_error"), InUtc("finished_at"), "id", name="pulse_job_error_group", condition=_IS_DEAD
    ),
]

# Of the few runs that went wrong: the others pay nothing.
ATTEMPT_INDEXES = [
    models.Index(
        fields=["worker", "id"],
        opclasses=["varchar_pattern_ops", "int8_ops"],
        name="pulse_attempt_lost",
        condition=Q(outcome=OutcomeName.WORKER_LOST.value),
    ),
    index("pulse_attempt_late", ["late_at"], Q(late_at__isnull=False)),
]
