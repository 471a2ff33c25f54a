"""Tasks with limits, keys and shares: what is refused, what stands on their jobs, and what their exceptions close."""

from __future__ import annotations

import asyncio
import logging
import sys
import urllib.error
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from email.message import Message
from types import SimpleNamespace
from typing import Any

import pytest

from pulse_django import Breaker, Context, Limit, Rate, RateLimited, amend, checks, enqueue_many, read_retry_after, task
from pulse_django.exceptions import InvalidJob
from pulse_django.limits.keys import declared_limits
from pulse_django.models import Job, Limiter, Pause
from pulse_django.queue.words.lane_keys import MAX_LANE_KEY, key_of, lane_key, limiter_of
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import Status
from pulse_django.run.execute import perform
from pulse_django.run.registry import InvalidTask, registry
from pulse_django.run.run import Run
from pulse_django.testing import drain
from tests.faults import all_faults, each_of

pytestmark = pytest.mark.usefixtures("pulse_db")

MINUTE = timedelta(minutes=1)


class TooMany(Exception):
    def __init__(self, status: int = 429, headers: dict[str, str] | None = None) -> None:
        super().__init__("secret")
        self.response = SimpleNamespace(status_code=status, headers=headers or {})


SHARED = Limit(
    "tests.api", max_running=20, pause_when=read_retry_after, breaker=Breaker(failures=2, on=(ConnectionError,))
)
RAISES: dict[str, Callable[[], BaseException]] = {
    "limited": lambda: RateLimited(MINUTE, "enough\nfor now"),
    "429": lambda: TooMany(headers={"Retry-After": "90"}),
    "500": lambda: TooMany(500),
    "connection": lambda: ConnectionError("no"),
    "value": lambda: ValueError("no"),
}


@task(name="tests.limited", limit=SHARED, limit_key="customer")
def limited(customer: Any = 1, *, how: str = "") -> None:
    if how:
        raise RAISES[how]()


@task(name="tests.limited_async", limit=SHARED)
async def limited_async(how: str) -> None:
    await asyncio.sleep(0)
    raise RAISES[how]()


@task(name="tests.encrypted_limited", limit=SHARED, sensitive=("customer",), limit_key="customer")
def sensitive(customer: str) -> None: ...


@task(name="tests.own_limit", limit=Limit(max_running=3))
def own() -> None: ...


@task(name="tests.shared_slots", fair_by=("customer", "region"))
def shared(customer: int, region: str = "eu") -> None: ...


@task(
    name="tests.limited_counted",
    limit=Limit("tests.counted", rate=Rate(10, per=MINUTE)),
    limit_key=lambda order: order["customer"],
)
def counted(order: dict[str, int]) -> None: ...


def nothing() -> None: ...


@task(name="tests.unlimited")
def unlimited() -> None:
    raise RateLimited(MINUTE)


@task(name="tests.holds", limit=SHARED, takes_context=True)
def holds(context: Context, name: str | None) -> None:
    context.pause_limit(MINUTE, limit=name, reason="maintenance")


@task(name="tests.holds_nothing", takes_context=True)
def holds_nothing(context: Context) -> None:
    context.pause_limit(MINUTE)


@task(name="tests.enough_of_the_key", limit=SHARED, limit_key="customer")
def enough_of_the_key(customer: str) -> None:
    raise RateLimited(MINUTE, "her quota", only_key=True)


@task(name="tests.enough_of_the_share", fair_by="customer")
def enough_of_the_share(customer: str) -> None:
    raise RateLimited(MINUTE, "her quota", only_key=True)


@task(name="tests.holds_key", limit=SHARED, limit_key="customer", takes_context=True)
def holds_key(context: Context, customer: str) -> None:
    context.pause_limit(MINUTE, only_key=True, reason="maintenance")


@task(name="tests.holds_no_key", limit=Limit(max_running=3), takes_context=True, max_attempts=1)
def holds_no_key(context: Context) -> None:
    context.pause_limit(MINUTE, only_key=True)


def lane_key_of(result: Any) -> str:
    return Job.objects.get(pk=result.id).lane_key


class TestLaneKeys:
    def test_a_key_is_made_of_what_the_task_names(self) -> None:
        cases: list[tuple[Any, str, str | None]] = [
            (limited.prepare("anna"), "tests.api", "anna"),
            (own.prepare(), "tests.own_limit", None),
            (shared.prepare(3), "", '[3,"eu"]'),  # several parameters, one of them with its default
            (counted.prepare({"customer": 7}), "tests.counted", "7"),  # a function of the arguments
            (limited.prepare(None), "tests.api", "null"),  # a key of its own
            (limited.prepare("null"), "tests.api", "null"),
        ]
        with all_faults() as about:
            for call, limiter, key in cases:
                with about((limiter, key)):
                    found = lane_key_of(call.enqueue())
                    assert (limiter_of(found), key_of(found)) == (limiter, key)

    def test_a_masked_key_is_a_hash(self) -> None:
        found = key_of(lane_key_of(sensitive.enqueue("anna"))) or ""
        assert "anna" not in found
        assert found == key_of(lane_key_of(sensitive.enqueue("anna")))

    def test_any_text_can_be_a_key_but_one_with_a_nul(self) -> None:
        with all_faults() as about:
            for key in ["", ":", "a:b", "ä\n", "☃" * 90, "'; DROP TABLE x", "a" * 5_000]:
                with about(repr(key)):
                    found = lane_key_of(limited.enqueue(key))
                    assert limiter_of(found) == "tests.api"
                    assert len(found) <= MAX_LANE_KEY
        with pytest.raises(InvalidJob):
            limited.enqueue("\x00")

    def test_the_queue_can_name_what_shares_its_slots(self, settings: Any) -> None:
        settings.PULSE = {**settings.PULSE, "FAIR_BY_QUEUE": {"default": "customer"}}
        assert key_of(lane_key_of(shared.enqueue(3))) == '[3,"eu"]'
        settings.PULSE = {**settings.PULSE, "FAIR_BY_QUEUE": {"default": "how"}}
        assert lane_key_of(own.enqueue()) == lane_key("tests.own_limit", "null")

    def test_the_queue_can_have_a_limit(self, settings: Any) -> None:
        settings.PULSE = {**settings.PULSE, "QUEUE_LIMITS": {"default": {"max_running": 3}}}
        assert lane_key_of(shared.enqueue(3)).startswith("queue=default:")
        assert limiter_of(lane_key_of(own.enqueue())) == "tests.own_limit"
        assert declared_limits()["queue=default"] == {"max_running": 3}
        plain = unlimited.enqueue()
        assert lane_key_of(plain) == "queue=default"
        settings.PULSE = {**settings.PULSE, "QUEUE_LIMITS": {}}
        assert lane_key_of(unlimited.enqueue()) == ""

    def test_many_at_once(self) -> None:
        ids = enqueue_many(limited, [(customer,) for customer in ("a", "b", "a")])
        assert [key_of(Job.objects.get(pk=one).lane_key) for one in ids] == ["a", "b", "a"]


class TestAmending:
    def test_another_key_is_another_lane_and_the_same_stays_ready(self) -> None:
        job_id = int(limited.enqueue("anna").id)
        assert amend(job_id, kwargs={"how": "value"})
        assert Job.objects.get(pk=job_id).ready
        assert amend(job_id, args=["bert"])
        assert key_of(Job.objects.get(pk=job_id).lane_key) == "bert"
        assert not Job.objects.get(pk=job_id).ready
        assert Job.objects.promote() == ["default"]

    def test_an_error_of_the_function_names_the_option(self) -> None:
        job_id = int(counted.enqueue({"customer": 7}).id)
        with pytest.raises(InvalidJob, match="key: KeyError"):
            amend(job_id, args=[{}])


UNFITTING: list[tuple[dict[str, Any], str]] = [
    ({"limit_key": "customer"}, "limit_key requires a limit"),
    ({"limit": Limit(max_running_per_key=2)}, "need limit_key or fair_by"),
    ({"limit": Limit(max_running=2), "limit_key": "customer", "fair_by": "customer"}, "cannot be combined"),
    ({"fair_by": "stranger"}, "no parameter 'stranger'"),
    ({"limit": 3}, "limit"),
]


MEAN_NOTHING: list[Callable[[], object]] = [
    lambda: Limit(),
    lambda: Limit("a:b", max_running=1),
    lambda: Limit("x" * 101, max_running=1),
    lambda: Limit("queue=mail", max_running=1),
    lambda: Limit(max_running=0),
    lambda: Limit(max_running=True),
    lambda: Limit(max_running=1.5),  # type: ignore[arg-type]
    lambda: Limit(rate=3),  # type: ignore[arg-type]
    lambda: Limit(pause_when=3),  # type: ignore[arg-type]
    lambda: Limit(breaker=3),  # type: ignore[arg-type]
    lambda: Rate(0, per=MINUTE),
    lambda: Rate(1, per=timedelta()),
    lambda: Rate(1, per=True),
    lambda: Rate(2, per=MINUTE, burst=3),
    lambda: Breaker(failures=0),
    lambda: Breaker(pause_for=timedelta()),
    lambda: Breaker(on=()),
    lambda: Breaker(on=(BaseException,)),  # type: ignore[arg-type]
]


class TestRefusals:
    @each_of(*UNFITTING)
    def test_options_that_do_not_fit(self, *, options: Any, says: Any) -> None:
        with pytest.raises((InvalidTask, TypeError), match=says):
            task(**options)(shared.func)

    def test_numbers_that_mean_nothing(self) -> None:
        with all_faults() as about:
            for row, limit in enumerate(MEAN_NOTHING):
                with about(f"row {row}"), pytest.raises(InvalidJob):
                    limit()

    def test_two_limits_of_one_name(self) -> None:
        assert checks.check_limits() == []

        task(name="tests.other_numbers", limit=Limit("tests.api", max_running=1))(nothing)
        try:
            [problem] = checks.check_limits()
            assert problem.id == "pulse_django.E015"
            assert "'tests.api'" in problem.msg
        finally:
            del registry._tasks["tests.other_numbers"]


class TestClosing:
    def paused(self, name: str = "tests.api") -> str | None:
        row = Limiter.objects.filter(name=name).exclude(paused_until=None).first()
        return None if row is None else row.pause_reason

    @pytest.mark.parametrize(
        ("how", "reason", "delay"),
        [("limited", "rate limited: enough for now", MINUTE), ("429", "rate limited: TooMany", timedelta(seconds=90))],
    )
    @pytest.mark.parametrize("declared", [limited, limited_async])
    def test_a_rate_limit_closes_the_limit_and_costs_no_attempt(
        self, declared: Any, how: str, reason: str, delay: timedelta
    ) -> None:
        job_id = declared.enqueue(how=how).id
        [ran] = drain()
        assert (ran.outcome, ran.status) == (OutcomeName.SNOOZED, Status.PENDING)
        job = Job.objects.get(pk=job_id)
        assert (job.attempts, job.refunds, job.last_error) == (1, 1, reason)
        assert job.next_run_at > job.created_at + delay
        assert self.paused() == reason

    @pytest.mark.parametrize("how", ["500", "value"])
    def test_other_errors_are_retried(self, how: str) -> None:
        limited.enqueue(how=how)
        [ran] = drain(failures="keep")
        assert (ran.outcome, ran.status) == (OutcomeName.FAILED, Status.RETRYING)
        assert self.paused() is None

    def test_a_breaker_counts_its_kinds_of_errors(self) -> None:
        Limiter.objects.declare_new("", {"tests.api": {"max_running": 20}})
        for how in ("connection", "value"):
            limited.enqueue(how=how)
        drain(failures="keep")
        assert self.paused() is None
        limited.enqueue(how="connection")
        drain(failures="keep")
        assert self.paused() == "breaker: ConnectionError"

    def test_the_success_of_a_probe_opens_the_limit(self) -> None:
        Limiter.objects.create(name="tests.api", half_open=True)
        limited.enqueue()
        lanes = Job.objects.lanes()
        [claim] = Job.objects.claim_limited(Identity("me"), "tests.api", lanes, dict.fromkeys(lanes, 1), limit=1).claims
        perform(Run(claim))
        assert not Limiter.objects.get().half_open

    def test_a_task_without_a_limit_only_waits(self) -> None:
        unlimited.enqueue()
        [ran] = drain()
        assert (ran.outcome, ran.status) == (OutcomeName.SNOOZED, Status.PENDING)
        assert not Limiter.objects.exists()

    @pytest.mark.parametrize("name", [None, "elsewhere"])
    def test_a_handler_can_hold_a_limit_and_go_on_and_needs_a_name_if_the_task_has_none(self, name: str | None) -> None:
        holds.enqueue(name)
        [ran] = drain()
        assert ran.status == Status.COMPLETED
        assert self.paused(name or "tests.api") == "maintenance"
        job_id = holds_nothing.enqueue().id
        drain(failures="keep")
        assert "pause_limit() needs the name of a limit" in Job.objects.get(pk=job_id).last_error

    def test_an_error_of_close_when_is_logged_and_changes_nothing(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(error: BaseException) -> timedelta:
            sys.exit("x")

        declared = registry.get("tests.limited")
        assert declared is not None
        broken_limit = Limit("tests.api", max_running=20, pause_when=broken)
        monkeypatch.setitem(registry._tasks, "tests.limited", replace(declared, limit=broken_limit))  # type: ignore[call-arg]
        limited.enqueue(how="value")
        with caplog.at_level(logging.ERROR, "pulse_django.limits"):
            [ran] = drain(failures="keep")
        assert ran.outcome == OutcomeName.FAILED
        assert "pause_when" in caplog.text


class TestPausingAKey:
    """What is said of one key does not stop the others."""

    def paused(self) -> list[tuple[str, str]]:
        return [(key_of(one.lane_key) or "", one.reason) for one in Pause.objects.all()]

    @pytest.mark.parametrize("declared", [enough_of_the_key, enough_of_the_share])
    def test_enough_of_one_key(self, declared: Any) -> None:
        job_id = declared.enqueue("anna").id
        [ran] = drain()
        assert (ran.outcome, ran.status) == (OutcomeName.SNOOZED, Status.PENDING)
        assert self.paused() == [("anna", "rate limited: her quota")]
        assert not Limiter.objects.exclude(paused_until=None).exists()
        assert Job.objects.get(pk=job_id).refunds == 1

    def test_a_hold_of_the_key_lets_the_run_go_on_and_needs_a_key(self) -> None:
        holds_key.enqueue("anna")
        [ran] = drain()
        assert ran.status == Status.COMPLETED
        assert self.paused() == [("anna", "maintenance")]
        job_id = holds_no_key.enqueue().id
        drain(failures="keep")
        assert "this job has none" in Job.objects.get(pk=job_id).last_error

    def test_a_later_end_stays(self) -> None:
        key = lane_key("tests.api", "anna")
        assert Pause.objects.pause(lane_key=key, duration=MINUTE)
        assert not Pause.objects.pause(lane_key=key, duration=MINUTE / 2)
        assert Pause.objects.pause(lane_key=key, reason="for good")
        assert not Pause.objects.pause(lane_key=key, duration=MINUTE)
        assert Pause.objects.resume(lane_key=key)
        assert not Pause.objects.resume(lane_key=key)

    def test_what_has_ended_is_forgotten_and_a_limit_without_a_key_is_closed_instead(self) -> None:
        with pytest.raises(ValueError, match="pause the limit"):
            Pause.objects.pause(lane_key="tests.api")
        Pause.objects.pause(lane_key=lane_key("", "anna"))
        Pause.objects.pause(lane_key=lane_key("", "bert"), duration=timedelta())
        assert Pause.objects.forget_ended() == [("", "", lane_key("", "bert"))]


ANSWERS = [
    (TooMany(), 30),
    (TooMany(headers={"Retry-After": "7"}), 7),
    (TooMany(headers={"retry-after": "0.5"}), 0.5),
    (TooMany(headers={"Retry-After": "-3"}), 0),
    (TooMany(headers={"Retry-After": "1e99"}), 30),
    (TooMany(headers={"Retry-After": "nan"}), 30),
    (TooMany(headers={"Retry-After": "soon"}), 30),
    (TooMany(headers={"Retry-After": "9999999"}), 86_400),
    (TooMany(headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), 30),
    (
        TooMany(headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT", "Date": "Wed, 21 Oct 2015 07:27:00 GMT"}),
        60,
    ),
    (
        TooMany(headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT", "Date": "Wed, 21 Oct 2015 07:29:00 GMT"}),
        0,
    ),
    (
        TooMany(headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT", "Date": "Wed, 21 Oct 2015 07:28:00"}),
        30,
    ),
    (TooMany(503, {"Retry-After": "7"}), 7),
    (TooMany(503), None),
    (TooMany(500, {"Retry-After": "7"}), None),
    (ValueError("429"), None),
]


class TestRetryAfter:
    def test_what_it_reads(self) -> None:
        with all_faults() as about:
            for error, wait in ANSWERS:
                with about(f"{error!r}: {getattr(error, 'response', 'no response')}"):
                    assert read_retry_after(error) == (None if wait is None else timedelta(seconds=wait))

    def test_an_answer_of_urllib(self) -> None:
        headers = Message()
        headers["Retry-After"] = "9"
        error = urllib.error.HTTPError("https://example.com", 429, "Too Many", headers, None)
        assert read_retry_after(error) == timedelta(seconds=9)
