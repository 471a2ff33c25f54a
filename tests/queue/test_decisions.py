"""Outcome × budget × policy, as a table; and the reap statement held to the same rules."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from pulse_django.exceptions import InvalidJob, RetryLater, UnstorableResult
from pulse_django.queue.words.bounds import MAX_DELAY, UNLIMITED
from pulse_django.queue.words.decisions import (
    Budget,
    Cancel,
    Complete,
    DeadLetter,
    Decision,
    Postpone,
    Retry,
    Wait,
    decide,
)
from pulse_django.queue.words.outcomes import (
    Cancelled,
    Discarded,
    Failed,
    Outcome,
    OutcomeName,
    Released,
    Snoozed,
    Stalled,
    Succeeded,
    TimedOut,
    Waited,
    WorkerLost,
    returned,
)
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.retry_policies import NO_RETRIES, Backoff, RetryPolicy, delay_of, retry_on, retry_unless
from tests.faults import all_faults, each_of

FRESH = Budget(attempts=1, refunds=0, max_attempts=10)
THIRD = Budget(attempts=3, refunds=0, max_attempts=10)
REFUNDED = Budget(attempts=12, refunds=9, max_attempts=10)  # the third that counts
SPENT = Budget(attempts=10, refunds=0, max_attempts=10)
SUSPECT = Budget(attempts=4, refunds=0, max_attempts=10, losses=3)
KILLER = Budget(attempts=5, refunds=0, max_attempts=10, losses=4)
AT_MOST_ONCE = Budget(attempts=1, refunds=0, max_attempts=10, max_lost_workers=1)
FREE = Budget(attempts=1, refunds=0, max_attempts=1, count_lost_workers=False)  # its only attempt
FREE_KILLER = Budget(attempts=5, refunds=4, max_attempts=1, losses=4, count_lost_workers=False)
ONCE = Budget(attempts=1, refunds=0, max_attempts=1, max_lost_workers=0)  # of a task with at_most_once
ONCE_MORE = Budget(attempts=1, refunds=0, max_attempts=5, max_lost_workers=0)  # somebody raised the maximum
UNWANTED = Budget(attempts=1, refunds=0, max_attempts=10, cancel_requested=True)

IN_TIME = Budget(attempts=3, refunds=0, max_attempts=10, retries_for=9.0)
TOO_LATE = Budget(attempts=3, refunds=0, max_attempts=10, retries_for=8.9)
LONG_OVER = Budget(attempts=1, refunds=0, max_attempts=10, retries_for=-5.0)
LATE_AND_SPENT = Budget(attempts=10, refunds=0, max_attempts=10, retries_for=0.0)
LATE_KILLER = Budget(attempts=5, refunds=0, max_attempts=10, losses=4, retries_for=0.0)
LATE_AND_FREE = Budget(attempts=1, refunds=0, max_attempts=1, count_lost_workers=False, retries_for=0.5)
LATE_AND_UNWANTED = Budget(attempts=1, refunds=0, max_attempts=10, cancel_requested=True, retries_for=0.0)

FLEET = RetryPolicy()  # no rule of its own
SLOW = RetryPolicy(Backoff(unit=timedelta(minutes=1)))
NOT_VALUE_ERRORS = retry_unless(ValueError)
ONLY_OS_ERRORS = retry_on(OSError)

VALUE_ERROR = Failed(ErrorReport.of(ValueError("no")))
UNICODE_ERROR = Failed(ErrorReport.of(UnicodeError("no")))  # a subclass of ValueError
OS_ERROR = Failed(ErrorReport.of(ConnectionResetError("gone")))
UNSTORABLE = Failed(ErrorReport.of(UnstorableResult("result: a set")))

S = timedelta(seconds=1)
LATER = Failed(ErrorReport.of(RetryLater(60, "busy")), retry_in=60 * S)
MANY = Budget(attempts=100_000, refunds=0, max_attempts=UNLIMITED)


def middle() -> float:
    return 0.5  # no jitter


TABLE: list[tuple[str, Outcome, Budget, RetryPolicy, Decision]] = [
    # a success is a success, whatever the budget says
    ("success", Succeeded("1"), FRESH, FLEET, Complete("1")),
    ("success on the last attempt", Succeeded(), SPENT, FLEET, Complete(None)),
    ("success of an unwanted job", Succeeded(), UNWANTED, FLEET, Complete(None)),
    # failures back off by attempt², counted without refunds
    ("first failure", VALUE_ERROR, FRESH, FLEET, Retry(1 * S, "ValueError: no")),
    ("third failure", VALUE_ERROR, THIRD, FLEET, Retry(9 * S, "ValueError: no")),
    ("third that counts", VALUE_ERROR, REFUNDED, FLEET, Retry(9 * S, "ValueError: no")),
    ("last failure", VALUE_ERROR, SPENT, FLEET, DeadLetter("ValueError: no")),
    ("failure of an unwanted job", VALUE_ERROR, UNWANTED, FLEET, Cancel()),
    ("failure without a limit of attempts", VALUE_ERROR, MANY, FLEET, Retry(3600 / 1.1 * S, "ValueError: no")),
    # the handler itself says when: it counts, and no policy is asked
    ("retry later", LATER, FRESH, FLEET, Retry(60 * S, "RetryLater: busy")),
    ("retry later, of what is never retried", LATER, THIRD, NO_RETRIES, Retry(60 * S, "RetryLater: busy")),
    ("retry later, spent", LATER, SPENT, FLEET, DeadLetter("RetryLater: busy")),
    ("retry later, of an unwanted job", LATER, UNWANTED, FLEET, Cancel()),
    ("retry later than allowed", LATER, TOO_LATE, FLEET, DeadLetter("give_up_after reached: RetryLater: busy")),
    # the task's policy rules what its handler raised
    ("own curve", VALUE_ERROR, THIRD, SLOW, Retry(9 * 60 * S, "ValueError: no")),
    ("never retried", VALUE_ERROR, FRESH, NOT_VALUE_ERRORS, DeadLetter("ValueError: no")),
    ("never retried, by base class", UNICODE_ERROR, FRESH, NOT_VALUE_ERRORS, DeadLetter("UnicodeError: no")),
    ("only these: another", VALUE_ERROR, FRESH, ONLY_OS_ERRORS, DeadLetter("ValueError: no")),
    ("only these: one", OS_ERROR, FRESH, ONLY_OS_ERRORS, Retry(1 * S, "ConnectionResetError: gone")),
    ("no retries at all", OS_ERROR, FRESH, NO_RETRIES, DeadLetter("ConnectionResetError: gone")),
    ("unstorable result", UNSTORABLE, FRESH, FLEET, DeadLetter("UnstorableResult: result: a set")),
    # ... and nothing else: timeouts, stalls and lost workers follow the fleet
    ("lost worker", WorkerLost(), FRESH, NO_RETRIES, Retry(1 * S, "worker lease expired")),
    ("lost worker, third", WorkerLost(), THIRD, SLOW, Retry(9 * S, "worker lease expired")),
    ("lost worker, spent", WorkerLost(), SPENT, FLEET, DeadLetter("worker lease expired")),
    ("lost one worker too many", WorkerLost(), KILLER, FLEET, DeadLetter("lost 5 workers: worker lease expired")),
    (
        "lost its first, which was one too many",
        WorkerLost(),
        AT_MOST_ONCE,
        FLEET,
        DeadLetter("lost 1 worker: worker lease expired"),
    ),
    ("a failure of what may lose none", VALUE_ERROR, AT_MOST_ONCE, FLEET, Retry(1 * S, "ValueError: no")),
    ("a loss that costs nothing", WorkerLost(), FREE, FLEET, Retry(1 * S, "worker lease expired", refund=True)),
    ("free losses, one too many", WorkerLost(), FREE_KILLER, FLEET, DeadLetter("lost 5 workers: worker lease expired")),
    ("a failure is not free", VALUE_ERROR, FREE, FLEET, DeadLetter("ValueError: no")),
    ("lost four", WorkerLost(), SUSPECT, FLEET, Retry(16 * S, "worker lease expired")),
    ("a failure of what lost four", VALUE_ERROR, KILLER, FLEET, Retry(25 * S, "ValueError: no")),
    ("lost worker of an unwanted job", WorkerLost(), UNWANTED, FLEET, Cancel()),
    ("timeout", TimedOut(), FRESH, NO_RETRIES, Retry(1 * S, "run exceeded its time limit")),
    ("timeout, spent", TimedOut(), SPENT, FLEET, DeadLetter("run exceeded its time limit")),
    ("stall", Stalled(), THIRD, SLOW, Retry(9 * S, "run made no progress")),
    ("stall, spent", Stalled(), SPENT, FLEET, DeadLetter("run made no progress")),
    # at_most_once: what has begun does not run again, whatever ended it; what has not begun does
    ("once: failure", VALUE_ERROR, ONCE, FLEET, DeadLetter("ValueError: no")),
    ("once: lost worker", WorkerLost(), ONCE, FLEET, DeadLetter("worker lease expired")),
    ("once: snooze", Snoozed(S), ONCE, FLEET, DeadLetter("at_most_once: the handler asked for another run")),
    ("once: wait", Waited("an event"), ONCE, FLEET, DeadLetter("at_most_once: the handler asked for another run")),
    ("once: handed back", Released(S, "stop", has_begun=True), ONCE, FLEET, DeadLetter("at_most_once: stop")),
    ("once: handed back before", Released(S, "stop"), ONCE, FLEET, Postpone(S, "stop")),
    ("once: failure with attempts left", VALUE_ERROR, ONCE_MORE, FLEET, DeadLetter("at_most_once: ValueError: no")),
    ("once: unwanted", Released(has_begun=True), replace(ONCE, cancel_requested=True), FLEET, Cancel()),
    # give_up_after: no retry comes later than it allows
    ("a retry that is just in time", VALUE_ERROR, IN_TIME, FLEET, Retry(9 * S, "ValueError: no")),
    (
        "a retry that would be too late",
        VALUE_ERROR,
        TOO_LATE,
        FLEET,
        DeadLetter("give_up_after reached: ValueError: no"),
    ),
    (
        "too late by the task's own curve",
        VALUE_ERROR,
        IN_TIME,
        SLOW,
        DeadLetter("give_up_after reached: ValueError: no"),
    ),
    (
        "a job that waited for longer",
        TimedOut(),
        LONG_OVER,
        FLEET,
        DeadLetter(f"give_up_after reached: {TimedOut().reason}"),
    ),
    ("too late and spent", VALUE_ERROR, LATE_AND_SPENT, FLEET, DeadLetter("ValueError: no")),
    ("too late and never retried", VALUE_ERROR, TOO_LATE, NO_RETRIES, DeadLetter("ValueError: no")),
    (
        "too late and one worker too many",
        WorkerLost(),
        LATE_KILLER,
        FLEET,
        DeadLetter("lost 5 workers: worker lease expired"),
    ),
    (
        "a free loss too late",
        WorkerLost(),
        LATE_AND_FREE,
        FLEET,
        DeadLetter("give_up_after reached: worker lease expired"),
    ),
    ("too late and unwanted", VALUE_ERROR, LATE_AND_UNWANTED, FLEET, Cancel()),
    ("a snooze is no retry", Snoozed(60 * S), LONG_OVER, FLEET, Postpone(60 * S)),
    ("a release is no retry", Released(), LONG_OVER, FLEET, Postpone(0 * S)),
    ("a success in whatever time", Succeeded(), LONG_OVER, FLEET, Complete(None)),
    # refunded attempts do not look at the budget
    ("snooze", Snoozed(60 * S), FRESH, FLEET, Postpone(60 * S)),
    ("snooze on the last attempt", Snoozed(60 * S), SPENT, FLEET, Postpone(60 * S)),
    ("snooze of an unwanted job", Snoozed(60 * S), UNWANTED, FLEET, Cancel()),
    ("wait", Waited(), FRESH, FLEET, Wait()),
    ("wait on the last attempt", Waited(), SPENT, FLEET, Wait()),
    ("wait of an unwanted job", Waited(), UNWANTED, FLEET, Cancel()),
    ("release", Released(), SPENT, FLEET, Postpone(0 * S)),
    ("release of an unwanted job", Released(), UNWANTED, FLEET, Cancel()),
    # the end that somebody wanted
    ("cancelled", Cancelled("enough"), FRESH, FLEET, Cancel("enough")),
    ("discarded", Discarded("customer left"), SPENT, FLEET, Cancel("customer left")),
]


@each_of(*TABLE)
def test_decide(*, row: Any, outcome: Any, budget: Any, policy: Any, expected: Any) -> None:
    assert decide(outcome, budget, policy=policy, rand=middle) == expected


def test_the_table_has_a_row_for_every_outcome() -> None:
    assert {row[1].name for row in TABLE} == set(OutcomeName)


def test_jitter_stays_within_its_share() -> None:
    backoff = Backoff(jitter=0.1)
    assert backoff.delay(10, lambda: 0.0) == 90 * S
    assert backoff.delay(10, lambda: 1.0) == 110 * S


def test_the_backoff_is_capped_long_before_it_overflows() -> None:
    for cap in (timedelta(hours=1), timedelta(days=365)):
        for luck in (0.0, 0.5, 1.0):
            assert cap * 0.8 < Backoff(cap=cap).delay(10**9, lambda luck=luck: luck) <= cap


CURVES = [
    (Backoff(jitter=0), [1, 4, 9, 16]),
    (Backoff.fixed(15), [15, 15, 15, 15]),
    (Backoff.linear(10, cap=33), [10, 20, 30, 30]),  # the cap is reached with the jitter
    (Backoff.exponential(jitter=0), [1, 2, 4, 8]),
    (Backoff.exponential(base=5, factor=3, cap=60, jitter=0), [5, 15, 45, 60]),
]


# What is no number failed only when a run was judged, and kept its report from being written.
WRONG: list[dict[str, Any]] = [
    {"jitter": 2},
    {"jitter": -0.1},
    {"jitter": "0.1"},
    {"power": "2"},
    {"power": None},
    {"power": 2j},
    {"power": -1},
    {"power": float("nan")},
    {"factor": 0.5},
    {"factor": "2"},
    {"factor": Decimal(2)},
    {"factor": float("nan")},
]


def test_curves_are_those_that_people_know() -> None:
    with all_faults() as about:
        for curve, seconds in CURVES:
            with about(curve):
                found = [curve.delay(number, middle).total_seconds() for number in range(1, 5)]
                assert found == pytest.approx(seconds)
                assert curve.delay(10**9, middle).total_seconds() == pytest.approx(curve.highest)
        for wrong in WRONG:
            with about(wrong), pytest.raises(InvalidJob, match="backoff: give ints or floats"):
                Backoff(**wrong)


def fails(attempt: int) -> float:
    raise LookupError(attempt)


# A function of the attempt, and the delays after the attempts 1 to 4.
FUNCTIONS: list[tuple[Any, list[float]]] = [
    (lambda attempt: 30 * attempt, [30, 60, 90, 120]),
    (lambda attempt: timedelta(minutes=attempt), [60, 120, 180, 240]),
    (Backoff.fixed(15).__call__, [15, 15, 15, 15]),
    (lambda attempt: -1, [0, 0, 0, 0]),
    (lambda attempt: float("inf"), [MAX_DELAY.total_seconds()] * 4),
    (lambda attempt: "soon", [1, 4, 9, 16]),  # it is logged, and the job is retried
    (fails, [1, 4, 9, 16]),
    (sys.exit, [1, 4, 9, 16]),
]


def test_a_function_of_the_attempt_is_a_backoff() -> None:
    with all_faults() as about:
        for function, seconds in FUNCTIONS:
            with about(seconds):
                for policy in (
                    RetryPolicy(function),
                    retry_on(OSError, backoff=function),
                    retry_unless(backoff=function),
                ):
                    assert policy.backoff is not None
                    found = [delay_of(policy.backoff, number, middle).total_seconds() for number in range(1, 5)]
                    assert found == pytest.approx(seconds)
    with pytest.raises(InvalidJob, match="neither a Backoff nor a function"):
        RetryPolicy(backoff=15)  # type: ignore[arg-type]


@each_of(-5, 0, 1)
def test_the_backoff_is_never_shorter_than_the_first(*, counted: Any) -> None:
    assert Backoff().delay(counted, middle) == 1 * S


def test_a_policy_matches_after_the_exception_crossed_a_process_boundary() -> None:
    lineage = tuple(ErrorReport.of(ConnectionResetError()).lineage)  # strings only: the class need not be importable
    assert ONLY_OS_ERRORS.retries(lineage)
    assert not retry_unless(ConnectionError).retries(lineage)


def test_what_a_handler_returned_is_its_json_or_a_failure_with_a_reason() -> None:
    """What JSON does not know: tests/queue/test_settle.py."""
    assert returned({"a": [1, None]}, limit=100) == Succeeded('{"a":[1,null]}')
    assert returned(None, limit=100) == Succeeded(None)  # it needs no column
    outcome = returned("x" * 101, limit=100)
    assert isinstance(outcome, Failed)
    assert "over the limit of 100" in outcome.error.message


def test_a_curve_with_much_jitter_spreads_a_storm_of_retries() -> None:
    curve = Backoff(unit=timedelta(seconds=20), jitter=1.0)
    due = Counter(int(curve.delay(1).total_seconds()) for _ in range(10_000))
    assert max(due.values()) <= 500
