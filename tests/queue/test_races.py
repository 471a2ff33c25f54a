"""Two real connections, stepped by hand, for every race of the claim, the lease and the fence."""

from __future__ import annotations

import signal
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from pulse_django.exceptions import NotInsideTransaction
from pulse_django.models import Attempt, Job
from pulse_django.queue.words.decisions import Complete, DeadLetter, Retry
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Claim, Identity, Lease
from pulse_django.queue.words.outcomes import Failed, OutcomeName, Succeeded, WorkerLost
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Beat, Report, Settled
from tests.crash.processes import run_script
from tests.database import on_empty_tables
from tests.factories import lease_of, make_job
from tests.faults import each_of
from tests.queue.steps import claim_one, expire, next_run_is_due, sql, success
from tests.rival import Rival, backend_pid

pytestmark = pytest.mark.usefixtures("pulse_db")

LOST = Retry(timedelta(), "worker lease expired")
FAILED = Failed(ErrorReport.of(ValueError("no")))


def row_of(job_id: int) -> dict[str, object]:
    return Job.objects.filter(pk=job_id).values().get()


def reclaimed_by(other: Identity, job: Job) -> tuple[Claim, Claim]:
    """A run that was lost and the run that followed it."""
    zombie = claim_one(Identity("zombie"))
    expire(job)
    Job.objects.reap()
    next_run_is_due(job)
    return zombie, claim_one(other)


# --- 1-9: claim and time


def test_a_worker_killed_between_claim_and_start_leaves_a_lease_that_runs_out() -> None:
    job = make_job(lease_ttl=timedelta(milliseconds=300))
    doomed = run_script(
        "import os, signal\n"
        "from pulse_django.models import Job\n"
        "from pulse_django.queue.words.leases import Identity\n"
        "assert Job.objects.claim(Identity('doomed'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert doomed.returncode == -signal.SIGKILL, doomed.stderr
    job.refresh_from_db()
    assert (job.status, job.attempts) == (Status.RUNNING, 1)

    reaped = []
    while not reaped:  # ends: the lease is 0.3 s long and nobody extends it
        reaped = Job.objects.reap()

    job.refresh_from_db()
    assert (job.status, job.attempts, job.losses) == (Status.RETRYING, 1, 1)
    assert job.last_error == "worker lease expired"


def test_a_claim_inside_a_transaction_of_the_callers_is_refused(worker: Identity) -> None:
    """Also where autocommit is off, so that each statement begins one."""
    job = make_job()
    for step in (
        lambda: Job.objects.claim(worker),
        lambda: Job.objects.heartbeat([lease_of(job)]),
        lambda: Job.objects.reap(),
        lambda: Job.objects.prune(Status.COMPLETED, older_than=timedelta()),
    ):
        with transaction.atomic(), pytest.raises(NotInsideTransaction, match="outside atomic"):
            step()
    transaction.set_autocommit(False)
    try:
        with pytest.raises(NotInsideTransaction):
            Job.objects.claim(worker)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert row_of(job.pk)["status"] == Status.PENDING


def test_what_is_written_late_in_a_transaction_is_not_born_in_the_past() -> None:
    job = make_job(Status.RUNNING)
    with transaction.atomic():
        sql("SELECT pg_sleep(0.3)")  # the transaction grows old: its now() is 0.3 s behind
        [(now,)] = sql("SELECT clock_timestamp()")
        new = Job.objects.enqueue(NewJob(task="tests.add", run_after=timedelta(seconds=10)))
        Job.objects.settle([Report(lease_of(job), WorkerLost(), Retry(timedelta(seconds=10), "lost"))])
    job.refresh_from_db()
    assert new.next_run_at >= now + timedelta(seconds=10)
    assert new.created_at >= now
    assert job.next_run_at >= now + timedelta(seconds=10)
    assert Attempt.objects.get().finished_at >= now


def test_a_settle_that_waited_for_a_lock_writes_the_instant_after_the_wait(rival: Rival) -> None:
    job = make_job(Status.RUNNING)
    mine = backend_pid()
    with transaction.atomic():
        sql("SELECT id FROM pulse_django_job WHERE id = %s FOR UPDATE", job.pk)
        waiting = rival.start(
            Job.objects.settle, [Report(lease_of(job), WorkerLost(), Retry(timedelta(seconds=10), "x"))]
        )
        rival.wait_until_blocked(by=mine)
        sql("SELECT pg_sleep(0.2)")
        [(released_at,)] = sql("SELECT clock_timestamp()")
    assert waiting.result(20).accepted
    job.refresh_from_db()
    assert job.next_run_at >= released_at + timedelta(seconds=10)


def test_a_heartbeat_skips_a_locked_row_and_does_not_call_it_lost(rival: Rival) -> None:
    locked, free = make_job(Status.RUNNING), make_job(Status.RUNNING)
    rival.lock_row(locked.pk)

    beat = Job.objects.heartbeat([lease_of(locked), lease_of(free)])

    assert beat == Beat(
        alive=frozenset({lease_of(free)}),
        skipped=frozenset({lease_of(locked)}),
        lost=frozenset(),
        cancelled=frozenset(),
    )
    rival.rollback()
    assert Job.objects.heartbeat([lease_of(locked)]).alive == {lease_of(locked)}


def test_a_foreign_key_that_refers_to_a_job_does_not_stop_its_heartbeat(rival: Rival) -> None:
    job = make_job(Status.RUNNING)
    rival.begin()
    rival.run(sql, "SELECT id FROM pulse_django_job WHERE id = %s FOR KEY SHARE", job.pk)  # what inserting one does
    assert Job.objects.heartbeat([lease_of(job)]).alive == {lease_of(job)}


def test_a_reaper_that_meets_a_heartbeat_halfway_reaps_nothing(rival: Rival) -> None:
    job = make_job(Status.RUNNING, expired=True)
    rival.begin()
    rival.run(
        sql,
        "UPDATE pulse_django_job SET lease_until = statement_timestamp() + interval '30 s' WHERE id = %s",
        job.pk,
    )

    assert Job.objects.reap() == []  # the row is locked: skipped
    rival.commit()
    assert Job.objects.reap() == []  # the lease lives again: spared


def test_a_heartbeat_that_meets_a_reap_halfway_is_told_after_it_that_the_lease_is_lost(rival: Rival) -> None:
    """Before it, the heartbeat revives a lease that ran out."""
    job, revived = make_job(Status.RUNNING, expired=True), make_job(Status.RUNNING, expired=True)
    lease = lease_of(job)
    assert Job.objects.heartbeat([lease_of(revived)]).alive
    rival.lock_row(job.pk)
    assert Job.objects.heartbeat([lease]).skipped == {lease}
    rival.rollback()
    assert [one.lease for one in rival.run(Job.objects.reap)] == [lease]
    assert Job.objects.heartbeat([lease]).lost == {lease}


def test_a_heartbeat_never_shortens_a_lease() -> None:
    job = make_job(Status.RUNNING)
    sql(
        "UPDATE pulse_django_job SET lease_until = statement_timestamp() + interval '1 hour' WHERE id = %s",
        job.pk,
    )
    before = row_of(job.pk)["lease_until"]
    Job.objects.heartbeat([lease_of(job)])  # as after the server's clock was stepped back
    assert row_of(job.pk)["lease_until"] == before


def test_a_row_that_a_rival_claimed_between_pick_and_update_is_not_claimed_twice(
    rival: Rival, worker: Identity
) -> None:
    first, second = make_job(), make_job()
    rival.lock_row(first.pk)  # as a claim that has picked and not yet updated
    assert [claim.job_id for claim in Job.objects.claim(worker, limit=2)] == [second.pk]
    rival.rollback()
    assert [claim.job_id for claim in Job.objects.claim(worker, limit=2)] == [first.pk]


# --- 22-31: the fence


@each_of("zombie", "another worker", around=on_empty_tables)
def test_a_worker_that_claims_its_own_lost_job_again_is_a_zombie_to_itself(*, name: str) -> None:
    """And to another worker. Every verb tells it, and what it reports changes nothing."""
    job = make_job()
    zombie, current = reclaimed_by(Identity(name), job)
    assert Job.objects.heartbeat([zombie.lease, current.lease]).lost == {zombie.lease}
    before = row_of(job.pk)
    assert Job.objects.heartbeat([zombie.lease]).lost == {zombie.lease}
    for report in (success(zombie), Report(zombie.lease, FAILED, DeadLetter("no")), Report(zombie.lease, FAILED, LOST)):
        assert Job.objects.settle([report]).lost == {zombie.lease}
    assert Job.objects.release([zombie.lease]).lost == {zombie.lease}
    assert row_of(job.pk) == before
    assert (before["status"], before["last_error"]) == (Status.RUNNING, "worker lease expired")
    assert Job.objects.settle([success(current)]).accepted == {current.lease: Status.COMPLETED}


@each_of("holder", "attempt", "job_id", around=on_empty_tables)
def test_every_part_of_the_lease_is_in_the_fence_of_every_verb(*, part: Any) -> None:
    job = make_job(Status.RUNNING, attempts=3)
    lease = lease_of(job)
    wrong = Lease(
        lease.job_id + (part == "job_id"), lease.holder + "x" * (part == "holder"), lease.attempt - (part == "attempt")
    )
    before = row_of(job.pk)
    assert Job.objects.heartbeat([wrong]).lost == {wrong}
    assert Job.objects.settle([Report(wrong, Succeeded(), Complete())]).lost == {wrong}
    assert Job.objects.release([wrong]).lost == {wrong}
    assert row_of(job.pk) == before
    assert not Attempt.objects.exists()


def test_attempt_zero_is_no_master_key() -> None:
    job = make_job(Status.RUNNING)
    key = Lease(job.pk, str(job.locked_by), 0)
    assert Job.objects.settle([Report(key, Succeeded(), Complete())]).lost == {key}


def test_an_operators_retry_does_not_let_the_zombie_of_the_dead_run_back_in() -> None:
    job = make_job(max_attempts=1)
    zombie = claim_one(Identity("zombie"))
    expire(job)
    [reaped] = Job.objects.reap()
    assert reaped.status == Status.DEAD_LETTERED

    assert Job.objects.retry([job.pk]).revived == {job.pk}
    current = claim_one(Identity("zombie"))

    assert current.attempt == zombie.attempt + 1
    assert Job.objects.settle([success(zombie)]).lost == {zombie.lease}
    assert Job.objects.settle([success(current)]).accepted


def test_a_refund_does_not_let_a_run_that_is_not_over_back_in() -> None:
    make_job()
    me = Identity("me")
    old = claim_one(me)
    Job.objects.release([old.lease])  # handed back too early: the handler still runs
    new = claim_one(me)
    assert new.attempt == 2
    assert Job.objects.settle([success(old)]).lost == {old.lease}
    assert Job.objects.settle([success(new)]).accepted


def test_a_claim_that_the_database_forgot_cannot_be_minted_again() -> None:
    job = make_job()
    me = Identity("me")
    forgotten = claim_one(me)
    # A crash with synchronous_commit off, or a promoted standby, leaves the row as it was before the claim.
    sql(
        "UPDATE pulse_django_job SET status = 'PENDING', attempts = 0, locked_by = NULL, lease_until = NULL,"
        " token = NULL, started_at = NULL WHERE id = %s",
        job.pk,
    )
    again = claim_one(me)
    assert again.attempt == forgotten.attempt == 1
    assert Job.objects.settle([success(forgotten)]).lost == {forgotten.lease}
    assert Job.objects.settle([success(again)]).accepted


def test_a_reaped_job_ignores_its_first_workers_report_and_keeps_it_as_evidence() -> None:
    job = make_job()
    zombie = claim_one(Identity("zombie"))
    expire(job)
    Job.objects.reap()
    before = row_of(job.pk)

    assert Job.objects.settle([success(zombie)]) == Settled(
        accepted={}, repeated=frozenset(), lost=frozenset({zombie.lease})
    )

    entry = Attempt.objects.get()
    assert (entry.outcome, entry.late_outcome) == (OutcomeName.WORKER_LOST, OutcomeName.SUCCEEDED)
    assert entry.late_at
    assert entry.late_at >= entry.finished_at
    kept = Attempt.objects.values().get()
    Job.objects.settle([Report(zombie.lease, FAILED, LOST)])
    assert Attempt.objects.values().get() == kept, "the first late verdict"
    assert row_of(job.pk) == before


def test_a_report_that_is_sent_again_because_its_answer_was_lost_is_no_late_verdict() -> None:
    make_job()
    claim = claim_one(Identity("me"))
    assert Job.objects.settle([success(claim)]).accepted
    again = Job.objects.settle([success(claim)])
    assert again == Settled(accepted={}, repeated=frozenset({claim.lease}), lost=frozenset())
    assert Attempt.objects.get().late_outcome == ""


def test_of_two_settles_of_one_lease_the_second_waits_and_changes_nothing(rival: Rival) -> None:
    make_job()
    claim = claim_one(Identity("me"))
    rival.begin()
    won = rival.run(Job.objects.settle, [success(claim)])
    assert won.accepted
    blocker = rival.pid

    with closing(Rival()) as loser:
        waiting = loser.start(Job.objects.settle, [Report(claim.lease, FAILED, DeadLetter("no"))])
        loser.wait_until_blocked(by=blocker)
        rival.commit()
        assert waiting.result(20).lost == {claim.lease}

    job = Job.objects.get()
    assert (job.status, job.last_error) == (Status.COMPLETED, "")
    entry = Attempt.objects.get()
    assert (entry.outcome, entry.late_outcome) == (OutcomeName.SUCCEEDED, OutcomeName.FAILED)


def test_a_settle_that_waited_for_a_reap_is_lost(rival: Rival) -> None:
    job = make_job(Status.RUNNING, expired=True)
    lease = lease_of(job)
    mine = backend_pid()
    with transaction.atomic():
        # a reap that has locked and written, and not yet committed
        sql(
            "UPDATE pulse_django_job SET status = 'RETRYING', locked_by = NULL, lease_until = NULL, token = NULL"
            " WHERE id = %s",
            job.pk,
        )
        waiting = rival.start(Job.objects.settle, [Report(lease, Succeeded(), Complete())])
        rival.wait_until_blocked(by=mine)
    assert waiting.result(20).lost == {lease}
    assert row_of(job.pk)["status"] == Status.RETRYING


def test_a_completion_inside_the_handlers_transaction_commits_or_rolls_back_with_it(rival: Rival) -> None:
    make_job()
    claim = claim_one(Identity("me"))
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert Job.objects.settle([success(claim)]).accepted
        assert rival.run(Job.objects.filter(status=Status.RUNNING).count) == 1  # nobody else sees it yet
        raise ZeroDivisionError
    assert Job.objects.get().status == Status.RUNNING
    assert not Attempt.objects.exists()

    with transaction.atomic():
        assert Job.objects.settle([success(claim)]).accepted
    assert Job.objects.get().status == Status.COMPLETED


def test_reapers_look_and_write_in_one_statement_so_a_settle_in_between_wins(rival: Rival) -> None:
    job = make_job(Status.RUNNING, expired=True)
    rival.begin()
    assert rival.run(Job.objects.settle, [Report(lease_of(job), Succeeded(), Complete())]).accepted
    assert Job.objects.reap() == []
    rival.commit()
    assert Job.objects.reap() == []
    assert row_of(job.pk)["status"] == Status.COMPLETED


def test_a_retry_of_a_job_that_is_running_again_is_refused(rival: Rival) -> None:
    job = make_job(Status.DEAD_LETTERED)
    mine = backend_pid()
    with transaction.atomic():
        assert Job.objects.retry([job.pk]).revived == {job.pk}
        waiting = rival.start(Job.objects.retry, [job.pk])
        rival.wait_until_blocked(by=mine)
    assert waiting.result(20).moved_on == {job.pk}  # not revived twice


def test_what_was_changed_while_a_run_was_failing_leaves_it_no_retry() -> None:
    """A request to cancel, and a smaller budget."""
    failed = Retry(timedelta(), "ValueError: no")
    cancelled, spent = make_job(Status.RUNNING), make_job(Status.RUNNING, attempts=3)
    Job.objects.request_cancel([cancelled.pk], reason="customer left")
    Job.objects.filter(pk=spent.pk).update(max_attempts=3)
    settled = Job.objects.settle([Report(lease_of(job), FAILED, failed) for job in (cancelled, spent)])
    assert settled.accepted == {lease_of(cancelled): Status.CANCELLED, lease_of(spent): Status.DEAD_LETTERED}
    assert {row_of(job.pk)["last_error"] for job in (cancelled, spent)} == {"ValueError: no"}
    assert row_of(cancelled.pk)["cancel_reason"] == "customer left"


def test_a_job_deleted_by_hand_while_it_runs_is_a_lost_lease() -> None:
    job = make_job(Status.RUNNING)
    lease = lease_of(job)
    job.delete()
    assert Job.objects.heartbeat([lease]).lost == {lease}
    assert Job.objects.settle([Report(lease, Succeeded(), Complete())]).lost == {lease}
