"""The constraints of jobs and attempts: the tables refuse every state that the verbs cannot produce."""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact, IsNull, LessThanOrEqual

from pulse_django.queue.words.bounds import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_DELAY,
    MAX_META_BYTES,
    MAX_NOTE_TEXT,
    MOST_TAGS,
    MOST_WEIGHT,
)
from pulse_django.queue.words.masks import MOST_SEARCHED
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.payloads import MAX_MESSAGE, MAX_TRACEBACK
from pulse_django.queue.words.states import CLAIMABLE, TERMINAL, Status

from .sql_functions import (
    Cardinality,
    JsonType,
    PlaceOfNull,
    StoredSize,
    TextSize,
    bounded,
    in_range,
    instants_of,
    least_and_greatest_in_range,
    rule,
)

# jsonb takes up to six times the size of its text. PULSE["MAX_PAYLOAD_BYTES"] is the limit that users see.
MAX_STORED_PAYLOAD = 32 * 1024 * 1024
# Stored values are compressed, and 200 MB of one letter take 2 MB. A worker reads the uncompressed text.
MAX_PAYLOAD_TEXT = 32 * 1024 * 1024
# For meta, tags and search terms, each as PostgreSQL writes it: with spaces, quotes and backslashes.
MAX_LABELS_TEXT = 2 * MAX_META_BYTES


_STORED_ARGUMENTS = StoredSize("args") + StoredSize("kwargs")
_STORED_PAYLOAD = _STORED_ARGUMENTS + Coalesce(StoredSize("progress"), 0) + Coalesce(StoredSize("result"), 0)
_TEXT_FOR_A_CLAIM = TextSize("args") + TextSize("kwargs") + Coalesce(TextSize("progress"), 0)


def _bounded_list(column: str, most: int) -> Q:
    return (
        Q(LessThanOrEqual(Cardinality(column), most))
        & Q(LessThanOrEqual(TextSize(column), MAX_LABELS_TEXT))
        & Q(IsNull(PlaceOfNull(column), True))
    )


def _sensible(duration: str) -> Q:
    """Return a bound for a duration. A claim adds it to now, and an overflow would fail the whole claim."""
    return Q(**{f"{duration}__isnull": True}) | Q(**{f"{duration}__gt": timedelta(), f"{duration}__lte": MAX_DELAY})


_CLAIMABLE, _TERMINAL = [status.value for status in CLAIMABLE], [status.value for status in TERMINAL]
_OUTCOMES = [name.value for name in OutcomeName]

JOB_CONSTRAINTS: list[models.BaseConstraint] = [
    rule("pulse_job_status_is_known", Q(status__in=[status.value for status in Status])),
    rule(
        "pulse_job_running_iff_leased",
        Q(
            status=Status.RUNNING.value,
            locked_by__isnull=False,
            lease_until__isnull=False,
            token__isnull=False,
            started_at__isnull=False,
            attempts__gt=F("refunds"),
        )
        | ~Q(status=Status.RUNNING.value)
        & Q(locked_by__isnull=True, lease_until__isnull=True, token__isnull=True, deadline__isnull=True),
    ),
    rule(
        "pulse_job_finished_iff_terminal",
        Q(status__in=_TERMINAL, finished_at__isnull=False) | ~Q(status__in=_TERMINAL) & Q(finished_at__isnull=True),
    ),
    rule("pulse_job_dead_letter_has_reason", ~Q(status=Status.DEAD_LETTERED.value) | ~Q(last_error="")),
    rule("pulse_job_refunds_within_attempts", Q(refunds__gte=0, attempts__gte=F("refunds"))),
    rule(
        "pulse_job_attempts_within_budget", Q(max_attempts__gte=1) & Q(max_attempts__gte=F("attempts") - F("refunds"))
    ),
    # A claim adds an attempt. If none were left, the whole claim would fail.
    rule("pulse_job_waiting_has_budget", ~Q(status__in=_CLAIMABLE) | Q(max_attempts__gt=F("attempts") - F("refunds"))),
    rule("pulse_job_waiting_is_wanted", ~Q(status__in=_CLAIMABLE) | Q(cancel_requested_at__isnull=True)),
    rule("pulse_job_losses_within_attempts", Q(losses__gte=0, attempts__gte=F("losses"))),
    rule(
        "pulse_job_result_only_if_completed",
        Q(result__isnull=True, completed_by__isnull=True, completed_token__isnull=True)
        | Q(status=Status.COMPLETED.value),
    ),
    rule("pulse_job_priority_in_range", Q(priority__gte=LOWEST_PRIORITY, priority__lte=HIGHEST_PRIORITY)),
    rule(
        "pulse_job_durations_are_sensible",
        _sensible("lease_ttl") & _sensible("timeout") & _sensible("progress_timeout"),
    ),
    # Later instants could be stored, but not read: Python's calendar ends before PostgreSQL's.
    rule("pulse_job_instant_can_be_read", in_range("next_run_at")),
    # The ledger shows a completed run with the negative id of its job: the smallest bigint cannot be negated.
    rule(
        "pulse_job_can_be_read",
        Q(id__gt=0)
        & least_and_greatest_in_range(
            *("lease_until", "deadline", "progress_at", "cancel_requested_at"),
            *("created_at", "started_at", "finished_at"),
        ),
    ),
    rule(
        "pulse_job_arguments_have_their_shape",
        Exact(JsonType("args"), Value("array")) & Exact(JsonType("kwargs"), Value("object")),
    ),
    rule("pulse_job_payload_is_bounded", LessThanOrEqual(_STORED_PAYLOAD, MAX_STORED_PAYLOAD)),
    # Measuring unpacks the values. So it is done when a job begins to wait and when it gets its result, not at a claim
    # or a heartbeat (docs/adr/0030).
    rule(
        "pulse_job_payload_text_is_bounded",
        (~Q(status__in=_CLAIMABLE) | Q(LessThanOrEqual(_TEXT_FOR_A_CLAIM, MAX_PAYLOAD_TEXT)))
        & (Q(result__isnull=True) | Q(LessThanOrEqual(TextSize("result"), MAX_PAYLOAD_TEXT))),
    ),
    # Measured when a job begins to wait, like its payload. Most jobs have none; for others the status is checked first.
    rule(
        "pulse_job_labels_are_bounded",
        Q(meta__isnull=True, tags__isnull=True, search_terms__isnull=True)
        | ~Q(status__in=[status.value for status in (Status.WAITING, *CLAIMABLE)])
        | Q(LessThanOrEqual(TextSize("meta"), MAX_LABELS_TEXT))
        & _bounded_list("tags", MOST_TAGS)
        & _bounded_list("search_terms", MOST_SEARCHED),
    ),
    bounded("pulse_job_texts_are_bounded", last_error=MAX_NOTE_TEXT, cancel_reason=MAX_NOTE_TEXT),
    # A settle adds it to created_at, and an overflow would fail the whole settle.
    rule("pulse_job_retry_limit_is_sensible", _sensible("give_up_after")),
    # With a weight of 0 or less, a limit could be exceeded.
    rule("pulse_job_weight_in_range", Q(weight__gte=1, weight__lte=MOST_WEIGHT)),
]

ATTEMPT_CONSTRAINTS = [
    models.UniqueConstraint(fields=["job", "number"], name="pulse_attempt_one_per_run"),
    rule("pulse_attempt_number_is_positive", Q(number__gt=0)),
    rule("pulse_attempt_outcome_is_known", Q(outcome__in=_OUTCOMES)),
    rule(
        "pulse_attempt_late_has_an_instant",
        Q(late_outcome="", late_at__isnull=True) | Q(late_outcome__in=_OUTCOMES, late_at__isnull=False),
    ),
    instants_of("attempt", "due_at", "started_at", "finished_at", "last_seen_at", "late_at"),
    bounded("pulse_attempt_texts_are_bounded", message=4 * MAX_MESSAGE, traceback=4 * MAX_TRACEBACK),
    # No rule on started_at <= finished_at: a step of the server's clock must not keep a run from ending.
]


# SQL conditions on jobs that several statements share.


# Written like this, a partial index can be used. With the status as a parameter, it could not.
IS_CLAIMABLE = "status::text IN ('PENDING', 'RETRYING')"
