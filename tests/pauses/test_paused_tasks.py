"""Paused tasks: no claim takes their jobs, and those at the head of a lane are set aside and brought back."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from pulse_django.exceptions import InvalidJob
from pulse_django.models import Job, Pause
from pulse_django.queue.words.job_options import NewJob, Payload
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.queue.words.states import CLAIMABLE, Status
from pulse_django.unique.rule import Unique, UniqueKey
from tests.cluster import wait_until
from tests.crash.processes import run_script
from tests.database import on_empty_tables
from tests.factories import make_job, now
from tests.faults import combined, each_of
from tests.queue.steps import sql, success
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("pulse_db")

ME = Identity("me")
MINUTE = timedelta(minutes=1)
SEND, OTHER = "shop.send", "shop.other"
HOSTILE = [
    "100%s %(x)s %",
    "a'b\"c\\",
    "task=shop.send",
    "{shop.send}",
    "NULL",
    "shop.send:0000x",
    "Ünï·çødé",
    "'; DROP TABLE pulse_django_job; --",
    "x" * 200,
]


def tasks_of(claims: list[Claim]) -> list[str]:
    return [claim.task for claim in claims]


def enqueue(task: str = SEND, count: int = 1, **fields: Any) -> list[int]:
    return list(Job.objects.enqueue_many([NewJob(task=task, **fields)] * count))


def ready(**which: Any) -> set[bool | None]:
    return set(Job.objects.filter(**which).values_list("ready", flat=True))


class TestAPause:
    def test_no_claim_takes_a_job_of_the_task_and_others_are_taken(self) -> None:
        enqueue(SEND, 3), enqueue(OTHER)
        Pause.objects.pause(SEND)
        assert tasks_of(Job.objects.claim(ME, limit=9)) == [OTHER]
        assert Pause.objects.resume(SEND)
        assert tasks_of(Job.objects.claim(ME, limit=9)) == [SEND] * 3

    def test_a_claim_of_certain_jobs_does(self) -> None:
        """By it a watchdog gives up jobs of unknown tasks, and tests run a job."""
        ids = enqueue()
        Pause.objects.pause(SEND)
        assert Job.objects.set_aside() == ["default"]
        [claim] = Job.objects.claim_these(ME, ids)
        Job.objects.settle([success(claim)])
        assert Job.objects.get().status == Status.COMPLETED

    @each_of(([SEND], {}), ([], {"queue": "default"}), around=on_empty_tables)
    def test_it_has_an_end_and_runs_go_on(self, *, tasks: Any, which: Any) -> None:
        enqueue(), enqueue()
        [claim] = Job.objects.claim(ME)
        Pause.objects.pause(*tasks, **which, duration=MINUTE)
        assert not Job.objects.claim(ME)
        assert Job.objects.heartbeat([claim.lease]).alive
        assert Job.objects.settle([success(claim)]).accepted
        sql("UPDATE pulse_django_pause SET paused_until = statement_timestamp()")
        assert Job.objects.claim(ME)

    @each_of(([SEND], {}), ([], {"queue": "mail"}), around=on_empty_tables)
    def test_a_later_end_stays(self, *, tasks: Any, which: Any) -> None:
        assert Pause.objects.pause(*tasks, **which, duration=2 * MINUTE, reason="first", by="ann")
        first = Pause.objects.get()
        assert not Pause.objects.pause(*tasks, **which, duration=MINUTE, reason="second")
        assert Pause.objects.pause(*tasks, **which, reason="third")
        assert not Pause.objects.pause(*tasks, **which, duration=MINUTE)
        paused = Pause.objects.get()
        assert (paused.paused_at, paused.paused_until, paused.reason) == (first.paused_at, None, "third")

    def test_it_holds_from_its_commit_on_until_that_of_its_end(self, rival: Rival) -> None:
        """And a claim does not wait for one that is not committed."""
        enqueue(SEND, 3)
        rival.begin()
        rival.run(Pause.objects.pause, SEND)
        assert len(Job.objects.claim(ME)) == 1
        rival.commit()
        assert not Job.objects.claim(ME)
        rival.begin()
        rival.run(Pause.objects.resume, SEND)
        assert not Job.objects.claim(ME)
        rival.commit()
        assert Job.objects.claim(ME)

    @each_of(*HOSTILE, around=on_empty_tables)
    def test_a_name_is_compared_as_it_is(self, *, name: Any) -> None:
        Pause.objects.pause(name, reason="'\0%s", by="ann")
        enqueue(name), enqueue(SEND)
        assert tasks_of(Job.objects.claim(ME, limit=9)) == [SEND]
        assert Job.objects.set_aside() == ["default"]
        assert Pause.objects.resume(name)
        assert Job.objects.bring_back() == ["default"]
        assert tasks_of(Job.objects.claim(ME, limit=9)) == [name]

    @each_of(timedelta(), -MINUTE, timedelta.max)
    def test_a_time_that_cannot_be_is_refused(self, *, duration: Any) -> None:
        with pytest.raises(InvalidJob, match="duration"):
            Pause.objects.pause(SEND, duration=duration)

    @each_of(
        *(([name], {}, "task") for name in ("", "x" * 201, "a\nb", 7, None)),
        *(([SEND], {"queue": name}, "queue") for name in ("", "x" * 101, "a\nb", 7)),
        *(([], which, "Name a key, or tasks") for which in ({}, {"lane_key": lane_key("", "a"), "queue": "q"})),
    )
    def test_what_is_no_name_is_refused(self, *, tasks: Any, which: Any, why: Any) -> None:
        for verb in (Pause.objects.pause, Pause.objects.resume):
            with pytest.raises(InvalidJob, match=why):
                verb(*tasks, **which)

    def test_a_paused_key_is_no_paused_task(self) -> None:
        enqueue("acme")
        Pause.objects.pause(lane_key=lane_key("", "acme"))
        assert Job.objects.claim(ME)


class TestInOneQueue:
    def test_its_jobs_in_other_queues_and_other_tasks_start(self) -> None:
        enqueue(SEND, queue="mail"), enqueue(SEND), enqueue(OTHER, queue="mail")
        assert Pause.objects.pause(SEND, queue="mail")
        for _ in range(2):  # found by the filter, then set aside
            claims = Job.objects.claim(ME, limit=9)
            assert sorted((claim.task, claim.queue) for claim in claims) == [(OTHER, "mail"), (SEND, "default")]
            Job.objects.settle([success(claim) for claim in claims])
            assert Job.objects.set_aside() in (["mail"], [])
            enqueue(SEND), enqueue(OTHER, queue="mail")
        assert ready(task=SEND, queue="mail") == {None}

    def test_the_end_of_one_pause_leaves_the_other(self) -> None:
        enqueue(SEND, queue="mail"), enqueue(SEND, queue="bulk")
        for queue in ("mail", "bulk"):
            Pause.objects.pause(SEND, queue=queue)
        assert sorted(Job.objects.set_aside()) == ["bulk", "mail"]
        assert Pause.objects.resume(SEND, queue="mail")
        assert not Pause.objects.resume(SEND, queue="mail")
        assert Job.objects.bring_back() == ["mail"]
        assert [claim.queue for claim in Job.objects.claim(ME, limit=9)] == ["mail"]
        assert Job.objects.bring_back() == []

    def test_a_pause_of_the_whole_task_is_another_and_resuming_it_ends_all(self) -> None:
        enqueue(SEND, queue="mail")
        Pause.objects.pause(SEND)
        assert not Pause.objects.resume(SEND, queue="mail")
        assert Pause.objects.pause(SEND, queue="mail", duration=MINUTE)
        assert Job.objects.claim(ME) == []
        Pause.objects.pause(OTHER, queue="mail")
        assert Pause.objects.resume(SEND)
        assert [str(one) for one in Pause.objects.all()] == [f"{OTHER} in queue mail"]

    def test_names_that_look_like_one_another_are_kept_apart(self) -> None:
        """Whatever stands between a task and a queue must be in neither."""
        for task, queue in (("a", "b c"), ("a b", "c"), ("a=b", "c")):
            enqueue(task, queue=queue)
        Pause.objects.pause("a b", queue="c")
        assert sorted(claim.task for claim in Job.objects.claim(ME, limit=9)) == ["a", "a=b"]


class TestTheLook:
    def test_it_sees_the_first_job_of_another_task_or_queue_and_none_that_no_claim_takes(self) -> None:
        enqueue(SEND, 3), enqueue(SEND, lane_key=":0000a")
        assert len(Job.objects.waiting()) == 2
        Pause.objects.pause(SEND, queue="mail")
        enqueue(SEND, queue="mail")
        assert {one.lane.queue for one in Job.objects.waiting()} == {"default"}
        Pause.objects.pause(SEND)
        assert Job.objects.waiting() == []
        enqueue(OTHER, run_after=MINUTE), enqueue(OTHER, lane_key=":0000b")
        plain, keyed = Job.objects.waiting()
        assert (plain.lane.key, keyed.lane.key) == ("", ":0000b")
        assert 59 < plain.due_in <= 60
        assert keyed.due_in <= 0


class TestSettingAside:
    def test_waiting_jobs_of_paused_tasks_alone(self) -> None:
        enqueue(SEND, 3), enqueue(SEND, run_after=MINUTE), enqueue(SEND, lane_key=":0000a", queue="mail")
        enqueue(OTHER, 2)
        make_job(Status.RETRYING, task=SEND)
        others = [make_job(status, task=SEND).pk for status in Status if status not in CLAIMABLE]
        assert Job.objects.set_aside() == []
        Pause.objects.pause(SEND)
        assert sorted(Job.objects.set_aside()) == ["default"] * 5 + ["mail"]
        assert ready(task=SEND, status__in=["PENDING", "RETRYING"]) == {None}
        assert ready(task=OTHER) | ready(pk__in=others) == {True}
        assert Job.objects.set_aside() == []

    def test_no_more_at_once_than_asked_for_also_among_jobs_of_other_tasks(self) -> None:
        for _ in range(20):
            enqueue(OTHER, 20), enqueue(SEND, 20)
        Pause.objects.pause(SEND)
        found = [len(Job.objects.set_aside(limit=100)) for _ in range(10)]
        assert (sum(found), max(found), found[-1]) == (400, 100, 0)
        assert (ready(task=SEND), ready(task=OTHER)) == ({None}, {True})

    def test_in_each_of_many_lanes(self) -> None:
        for number in range(300):
            enqueue(SEND, lane_key=f":{number:04}x"), enqueue(SEND, queue=f"q{number}")
        Pause.objects.pause(SEND)
        assert len(Job.objects.set_aside()) == 600

    def test_a_job_with_a_lane_key_that_is_not_due_is_so_when_it_is(self) -> None:
        enqueue(SEND, lane_key=":0000a", run_after=MINUTE)
        Pause.objects.pause(SEND)
        assert Job.objects.set_aside() == []
        sql("UPDATE pulse_django_job SET next_run_at = statement_timestamp()")
        assert Job.objects.promote() == ["default"]
        assert not Job.objects.claim(ME)
        assert Job.objects.set_aside() == ["default"]
        assert Job.objects.promote() == []

    def test_a_job_that_another_session_has_locked_is_left_for_the_next_time(self, rival: Rival) -> None:
        first, *rest = enqueue(SEND, 3)
        Pause.objects.pause(SEND)
        rival.lock_row(first)
        assert len(Job.objects.set_aside()) == len(rest)
        rival.rollback()
        assert len(Job.objects.set_aside()) == 1

    def test_a_claim_does_not_wait_for_it_and_misses_no_job(self, rival: Rival) -> None:
        enqueue(SEND, 3), enqueue(OTHER, 3)
        Pause.objects.pause(SEND)
        rival.begin()
        assert len(rival.run(Job.objects.set_aside)) == 3
        assert tasks_of(Job.objects.claim(ME, limit=9)) == [OTHER] * 3
        rival.commit()

    def test_killed_in_the_middle_it_has_changed_nothing_and_goes_on(self) -> None:
        enqueue(SEND, 5)
        Pause.objects.pause(SEND)
        killed = run_script(
            "import os, signal\n"
            "from django.db import transaction\n"
            "from pulse_django.models import Job\n"
            "assert len(Job.objects.set_aside(limit=2)) == 2\n"
            "with transaction.atomic():\n"
            "    assert len(Job.objects.set_aside(limit=2)) == 2\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        # A pooler may take a moment to see that its client is gone, and to roll back.
        wait_until(lambda: len(sql("SELECT id FROM pulse_django_job_hot FOR UPDATE SKIP LOCKED")) == 5)
        assert Job.objects.filter(ready=None).count() == 2
        assert len(Job.objects.set_aside()) == 3
        Pause.objects.resume(SEND)
        assert len(Job.objects.bring_back(limit=4)) == 4
        assert len(Job.objects.bring_back()) == 1
        assert len(Job.objects.claim(ME, limit=9)) == 5


class TestBringingBack:
    def aside(self, *tasks: str, **fields: Any) -> None:
        for task in tasks:
            enqueue(task, **fields)
        Pause.objects.pause(*tasks)
        assert len(Job.objects.set_aside()) == len(tasks)

    def test_only_of_tasks_that_are_not_paused_any_more(self) -> None:
        self.aside("a", "b", "c")
        assert Job.objects.bring_back() == []
        Pause.objects.resume("b")
        sql("UPDATE pulse_django_pause SET paused_until = statement_timestamp() WHERE task = 'c'")
        assert Job.objects.bring_back() == ["default"] * 2
        assert sorted(Job.objects.filter(ready=None).values_list("task", flat=True)) == ["a"]
        assert sorted(tasks_of(Job.objects.claim(ME, limit=9))) == ["b", "c"]

    @each_of(
        ("", True, True), ("", False, True), (":0000a", True, True), (":0000a", False, False), around=on_empty_tables
    )
    def test_a_job_is_ready_if_a_claim_may_look_at_it(self, *, key: Any, is_due: Any, expected: Any) -> None:
        job = make_job(task=SEND, lane_key=key, ready=None, next_run_at=now(-MINUTE if is_due else MINUTE))
        assert Job.objects.bring_back() == ["default"]
        job.refresh_from_db()
        assert job.ready is expected

    def test_the_first_enqueued_come_first_but_what_is_locked(self, rival: Rival) -> None:
        first, second, _third = enqueue(SEND, 3)
        Pause.objects.pause(SEND)
        Job.objects.set_aside()
        Pause.objects.resume(SEND)
        rival.lock_row(second)
        assert len(Job.objects.bring_back(limit=1)) == 1
        assert list(Job.objects.filter(ready=True).values_list("pk", flat=True)) == [first]
        assert len(Job.objects.bring_back()) == 1
        assert list(Job.objects.filter(ready=None).values_list("pk", flat=True)) == [second]
        rival.rollback()
        assert Job.objects.bring_back() == ["default"]

    def test_what_is_set_aside_after_the_end_of_the_pause_is_brought_back(self, rival: Rival) -> None:
        """By a sweep whose statement began before it."""
        enqueue(SEND)
        Pause.objects.pause(SEND)
        rival.begin()
        rival.run(Job.objects.set_aside)
        Pause.objects.resume(SEND)
        assert Job.objects.bring_back() == []
        rival.commit()
        assert not Job.objects.claim(ME)
        assert Job.objects.bring_back() == ["default"]
        assert Job.objects.claim(ME)


def amended(job: Job) -> None:
    assert Job.objects.amend(job.pk, Payload("[7]", "{}"))


def debounced(job: Job) -> None:
    unique = UniqueKey.of("k", Unique(on_conflict="debounce"))
    assert Job.objects.enqueue(NewJob(task=SEND, args=[7], run_after=MINUTE, unique=unique)).pk == job.pk


def retried(job: Job) -> None:
    assert Job.objects.claim_these(ME, [job.pk])
    sql("UPDATE pulse_django_job SET max_attempts = 1, lease_until = statement_timestamp() - interval '1 s'")
    [reaped] = Job.objects.reap()
    assert reaped.status == Status.DEAD_LETTERED
    assert Job.objects.retry([job.pk]).revived


CHANGES: dict[str, tuple[Callable[[Job], object], bool]] = {
    "reschedule": (lambda job: Job.objects.reschedule([job.pk], delay=MINUTE).changed, False),
    "reschedule now": (lambda job: Job.objects.reschedule([job.pk]).changed, True),
    "move": (lambda job: Job.objects.move([job.pk], queue="mail", priority=3).changed, True),
    "amend": (amended, True),
    "amend its key": (lambda job: Job.objects.amend(job.pk, Payload("[7]", "{}"), lane_key=":0000b"), True),
    "debounce": (debounced, False),
    "retry": (retried, True),
}


class TestVerbs:
    @each_of(*combined(["", ":0000a"], CHANGES), around=on_empty_tables)
    def test_a_job_that_is_set_aside_can_be_changed_and_stays_paused(self, *, key: Any, verb: Any) -> None:
        change, is_due = CHANGES[verb]
        job = Job.objects.enqueue(NewJob(task=SEND, lane_key=key, unique=UniqueKey.of("k", Unique())))
        Pause.objects.pause(SEND)
        assert Job.objects.set_aside() == ["default"]
        change(job)
        Job.objects.promote()
        assert not Job.objects.claim(ME, limit=9), "whatever its verb wrote"
        Job.objects.set_aside()
        Pause.objects.resume(SEND)
        Job.objects.bring_back()
        Job.objects.promote()
        assert len(Job.objects.claim(ME, limit=9)) == is_due
        sql("UPDATE pulse_django_job SET next_run_at = statement_timestamp()")
        Job.objects.promote()
        assert len(Job.objects.claim(ME, limit=9)) == (not is_due)

    def test_it_can_be_cancelled_and_expires(self) -> None:
        cancelled, expired = make_job(task=SEND), make_job(task=SEND, expires_at=now(-MINUTE))
        Pause.objects.pause(SEND)
        assert len(Job.objects.set_aside()) == 2
        assert Job.objects.request_cancel([cancelled.pk]).cancelled
        assert [ending.job_id for ending in Job.objects.expire()] == [expired.pk]
        assert set(Job.objects.values_list("status", "ready")) == {("CANCELLED", True)}

    def test_a_run_that_is_lost_waits_like_the_others(self) -> None:
        enqueue()
        Job.objects.claim(ME)
        Pause.objects.pause(SEND)
        sql("UPDATE pulse_django_job SET lease_until = statement_timestamp() - interval '1 s'")
        Job.objects.reap()
        sql("UPDATE pulse_django_job SET next_run_at = statement_timestamp()")
        assert not Job.objects.claim(ME)
        assert Job.objects.set_aside() == ["default"]

    def test_depths_count_them_as_later(self) -> None:
        enqueue(SEND, 3), enqueue(OTHER)
        [depth] = Job.objects.depths(1_000)
        assert (depth.due, depth.later) == (4, 0)
        Pause.objects.pause(SEND)
        Job.objects.set_aside()
        [depth] = Job.objects.depths(1_000)
        assert (depth.due, depth.later) == (1, 3)


def test_it_may_be_part_of_a_transaction_that_is_rolled_back() -> None:
    enqueue()
    with transaction.atomic():
        Pause.objects.pause(SEND)
        Job.objects.set_aside()
        transaction.set_rollback(True)
    assert Job.objects.claim(ME)
