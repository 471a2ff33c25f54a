"""Limiters: what code declares, what their breakers count, and the buckets that are not needed any more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse_django.limits.claim_limited import LimitedClaim
from pulse_django.limits.rules import Breaker, Limit, Rate
from pulse_django.models import Bucket, Job, Limiter
from pulse_django.queue.declarations import Declarer
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from pulse_django.schedules.verbs import clock
from tests.factories import WorkerFactory, lease_of
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

ME = Identity("me")
MINUTE = timedelta(minutes=1)
THREE = Breaker(failures=3, window=MINUTE, pause_for=MINUTE)


def declare(*limits: Limit, worker: str = "w:1", booted: timedelta = timedelta(), scope: str = "project") -> bool:
    """Declare as a worker that started so long after now."""
    declarer = Declarer(scope, worker, clock("default") + booted)
    answer: bool = Limiter.objects.declare(declarer, {one.name: one.numbers() for one in limits}, silence=MINUTE)
    return answer


def numbers(name: str = "stripe") -> Any:
    return Limiter.objects.get(name=name).numbers


def claim(limiter: str = "stripe", *, count: int = 5) -> LimitedClaim:
    lane = Lane("default", 0, lane_key(limiter, None))
    Job.objects.enqueue_many([NewJob(task="t", lane_key=lane.key)] * count)
    answer: LimitedClaim = Job.objects.claim_limited(ME, limiter, [lane], {lane: 9}, limit=9)
    return answer


class TestDeclaring:
    def test_the_worker_that_started_last_declares(self) -> None:
        for worker in ("new:1", "old:1"):
            name, boot = worker.split(":")
            WorkerFactory(name=name, boot_id=boot)
        assert declare(Limit("stripe", max_running=3), worker="new:1")
        assert not declare(Limit("stripe", max_running=2), worker="old:1", booted=-MINUTE)
        assert numbers() == {"max_running": 3}

    def test_what_no_code_declares_any_more_has_no_limit_but_what_people_set(self) -> None:
        declare(Limit("stripe", max_running=3), Limit("mail", max_running=1))
        Limiter.objects.override("stripe", {"max_running_per_key": 1}, by="ann")
        declare(Limit("mail", max_running=1))
        row = Limiter.objects.get(name="stripe")
        assert (row.numbers, row.declared_at, row.override) == ({}, None, {"max_running_per_key": 1})
        assert numbers("mail") == {"max_running": 1}

    def test_limits_of_another_project_stay(self) -> None:
        declare(Limit("stripe", max_running=3), scope="other")
        declare(Limit("mail", max_running=1))
        assert numbers() == {"max_running": 3}

    def test_of_two_projects_with_the_same_limit_the_one_that_declared_last_has_it(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Each took the row from the other, minute by minute."""
        one, other = Limit("stripe", max_running=3), Limit("stripe", max_running=9)
        said = "Limit stripe was declared by the settings module {} and is declared by {} now"
        for limit, scope, has_it in [
            (one, "one", one),
            (other, "other", other),
            (one, "one", other),
            (other, "other", other),
            (Limit("stripe", max_running=4), "one", Limit("stripe", max_running=4)),
            (other, "other", Limit("stripe", max_running=4)),
        ]:
            declare(limit, scope=scope)
            assert numbers() == has_it.numbers()
        told = [record.getMessage() for record in caplog.records if record.name == "pulse_django.limits"]
        assert told == [said.format("one", "other"), said.format("other", "one")]

    def test_a_project_has_its_limit_again_when_its_worker_starts(self, caplog: pytest.LogCaptureFixture) -> None:
        """Also if its code is the same: the other project may be gone."""
        mine = Limit("stripe", max_running=3)
        declare(mine, scope="one")
        declare(Limit("stripe", max_running=9), scope="other", worker="other:1")
        declare(mine, scope="one", worker="w:2", booted=MINUTE)
        assert numbers() == {"max_running": 3}
        caplog.clear()
        declare(mine, scope="other", worker="other:2", booted=2 * MINUTE)
        assert caplog.records == [], "both say the same"

    def test_a_limit_that_only_the_other_project_gave_up_comes_back(self) -> None:
        declare(Limit("stripe", max_running=3), scope="one")
        declare(Limit("stripe", max_running=9), scope="other")
        declare(Limit("mail", max_running=1), scope="other")
        declare(Limit("stripe", max_running=3), scope="one")
        assert numbers() == {"max_running": 3}

    def test_a_child_declares_only_what_is_new(self) -> None:
        new, other = {"stripe": {"max_running": 3}}, {"stripe": {"max_running": 9}}
        assert Limiter.objects.declare_new("project", new) == ["stripe"]
        assert Limiter.objects.declare_new("project", other) == []
        assert numbers() == {"max_running": 3}

    def test_a_row_that_was_only_closed_or_overridden_is_declared(self) -> None:
        Limiter.objects.pause("stripe", duration=MINUTE)
        assert Limiter.objects.declare_new("project", {"stripe": {"max_running": 3}}) == ["stripe"]
        assert claim().claims == []

    def test_what_was_deleted_by_hand_comes_back(self) -> None:
        for _ in range(2):
            declare(Limit("stripe", max_running=3))
            assert numbers() == {"max_running": 3}
            Limiter.objects.all().delete()


class TestBreaker:
    @pytest.fixture(autouse=True)
    def _declared(self, pulse_db: None) -> None:
        declare(Limit("stripe", breaker=THREE))

    def fail(self, times: int = 1) -> list[bool]:
        return [Limiter.objects.failed("stripe", THREE, reason="Timeout") for _ in range(times)]

    def reopen_time_comes(self) -> None:
        sql("UPDATE pulse_django_limiter SET paused_until = statement_timestamp()")

    def test_enough_failures_close_it(self) -> None:
        assert self.fail(2) == [False, False]
        assert len(claim(count=1).claims) == 1
        assert self.fail() == [True]
        answer = claim()
        assert answer.claims == []
        assert answer.due_in is not None
        assert 55 < answer.due_in <= 60
        assert Limiter.objects.get().pause_reason == "Timeout"

    def test_failures_further_apart_do_not_count_together(self) -> None:
        self.fail(2)
        sql("UPDATE pulse_django_limiter SET failures_since = statement_timestamp() - interval '61 s'")
        assert self.fail(2) == [False, False]
        assert self.fail() == [True]

    def test_failures_of_runs_from_before_do_not_close_it_for_longer(self) -> None:
        self.fail(3)
        until = Limiter.objects.get().paused_until
        assert self.fail(5) == [False] * 5
        assert Limiter.objects.get().paused_until == until

    def test_one_job_runs_then_and_its_success_opens_it(self) -> None:
        self.fail(3)
        self.reopen_time_comes()
        [probe] = claim().claims
        assert probe.is_probe
        assert claim().claims == []
        assert Limiter.objects.resume("stripe")
        claims = claim().claims
        assert len(claims) == 9
        assert not any(one.is_probe for one in claims)

    def test_the_failure_of_that_job_closes_it_again_and_another_end_is_followed_by_another(self) -> None:
        self.fail(3)
        self.reopen_time_comes()
        [probe] = claim().claims
        Job.objects.release([probe.lease])
        [another] = claim().claims
        assert another.is_probe
        assert self.fail() == [True]
        Job.objects.release([another.lease])
        assert claim().claims == []

    def test_runs_from_before_count_as_the_one(self) -> None:
        [job] = claim(count=1).claims
        self.fail(3)
        self.reopen_time_comes()
        assert claim().claims == []
        Job.objects.release([job.lease])
        assert len(claim().claims) == 1

    def test_a_limiter_that_is_not_known_counts_nothing(self) -> None:
        assert not Limiter.objects.failed("strange", THREE, reason="x")


class TestVersion:
    def test_it_changes_with_the_numbers(self) -> None:
        declare(Limit("stripe", max_running=30))
        versions = [claim().version, claim().version]
        Limiter.objects.override("stripe", {"max_running": 20})
        versions.append(claim().version)
        assert versions[0] == versions[1] != versions[2]


class TestBuckets:
    def test_those_that_are_full_again_are_deleted(self) -> None:
        declare(Limit("stripe", rate=Rate(10, per=MINUTE)), Limit("mail", rate=Rate(10, per=MINUTE)))
        for limiter in ("stripe", "mail"):
            assert len(claim(limiter).claims) == 1
        sql("UPDATE pulse_django_bucket SET at = statement_timestamp() - interval '10 minutes' WHERE scope = 'mail'")
        assert Limiter.objects.forget_full_buckets() == ["mail"]
        assert Bucket.objects.get().scope == "stripe"

    def test_one_that_fills_for_nine_periods_is_kept_for_nine(self) -> None:
        declare(Limit("stripe", rate=Rate(9, per=MINUTE, burst=9)))
        for later, granted in (("0 s", 9), ("61 s", 1)):
            sql("UPDATE pulse_django_bucket SET at = at - %s::interval", later)
            assert Limiter.objects.forget_full_buckets() == []
            assert len(claim(count=20).claims) == granted

    def test_those_of_keys_and_of_limits_without_a_rate(self) -> None:
        declare(Limit("stripe", rate_per_key=Rate(10, per=MINUTE)))
        for scope in ("stripe:0000a", "stripe", "strange", "strange:0000a"):
            Bucket.objects.create(scope=scope, tokens=0.0, at=clock("default"))
        assert sorted(Limiter.objects.forget_full_buckets()) == ["strange", "strange:0000a", "stripe"]


def test_a_job_keeps_its_slot_until_its_run_is_over() -> None:
    declare(Limit("stripe", max_running=1))
    [one] = claim().claims
    Job.objects.request_cancel([one.job_id])
    assert claim().claims == []
    job = Job.objects.running().get()
    Job.objects.release([lease_of(job)])
    assert len(claim().claims) == 1
