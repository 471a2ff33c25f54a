"""Random lives: three workers, a watchdog and an operator do what they like to a few jobs, and the promise holds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pulse_django.models import Attempt, Job
from pulse_django.queue.words.decisions import DeadLetter, decide
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Claim, Identity, Lease
from pulse_django.queue.words.outcomes import Cancelled, Failed, Outcome, Released, Snoozed, Succeeded, WorkerLost
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.queue.words.verb_results import Report
from tests.citus import is_on_citus
from tests.database import empty_tables
from tests.queue.moves import MOVES
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

ZERO = timedelta()
OUTCOMES: list[Outcome] = [
    Succeeded('"done"'),
    Failed(ErrorReport.of(ValueError("no"))),
    Snoozed(ZERO),
    Released(ZERO),
    Cancelled("stopped"),
    WorkerLost(),
]


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        empty_tables()
        if not is_on_citus():  # where a sequence of a distributed table cannot be altered
            sql("ALTER SEQUENCE pulse_django_job_id_seq RESTART")  # the same choices have to lead the same life
        self.workers = [Identity(f"w{n}") for n in range(3)]
        self.claims: list[Claim] = []  # every claim ever granted: the old ones are the zombies
        self.accepted: dict[Lease, Status] = {}
        self.ended: set[Lease] = set()  # by a watchdog
        self.seen: dict[int, dict[str, Any]] = {}
        self.known: set[int] = set()
        self.pruned: set[int] = set()
        self.verb: str | None = None

    @rule(max_attempts=strategies.integers(1, 3))
    def enqueue(self, max_attempts: int) -> None:
        self.known.add(Job.objects.enqueue(NewJob(task="tests.add", max_attempts=max_attempts)).pk)

    @rule(worker=strategies.integers(0, 2), limit=strategies.integers(1, 3))
    def claim(self, worker: int, limit: int) -> None:
        self.verb = "claim"
        sql("UPDATE pulse_django_job SET next_run_at = statement_timestamp() WHERE finished_at IS NULL")
        granted = Job.objects.claim(self.workers[worker], limit=limit)
        for claim in granted:
            assert claim.lease not in {old.lease for old in self.claims}, "a lease was minted twice"
            assert all(claim.token > old.token for old in self.claims), "a token did not rise"
        self.claims += granted

    @precondition(lambda self: self.claims)
    @rule(data=strategies.data(), outcome=strategies.sampled_from(OUTCOMES))
    def settle(self, data: strategies.DataObject, outcome: Outcome) -> None:
        self.verb = "settle"
        claim = data.draw(strategies.sampled_from(self.claims))
        current = self.holds(claim.lease)
        answer = Job.objects.settle([Report(claim.lease, outcome, decide(outcome, claim.budget))])
        assert (claim.lease in answer.accepted) == current, "the fence was open, or closed to its holder"
        if current:
            assert claim.lease not in self.accepted, "two results were accepted for one claim"
            self.accepted[claim.lease] = answer.accepted[claim.lease]

    @precondition(lambda self: self.claims)
    @rule(data=strategies.data())
    def give_up(self, data: strategies.DataObject) -> None:
        self.verb = "settle"
        claim = data.draw(strategies.sampled_from(self.claims))
        outcome = Failed(ErrorReport.of(ValueError("hopeless")))
        answer = Job.objects.settle([Report(claim.lease, outcome, DeadLetter("hopeless"))])
        self.accepted |= answer.accepted

    @precondition(lambda self: self.claims)
    @rule(data=strategies.data())
    def beat(self, data: strategies.DataObject) -> None:
        self.verb = "heartbeat"
        leases = data.draw(
            strategies.lists(strategies.sampled_from([claim.lease for claim in self.claims]), unique=True)
        )
        live = {lease for lease in leases if self.holds(lease)}
        beat = Job.objects.heartbeat(leases)
        assert (beat.alive, beat.lost, beat.skipped) == (live, set(leases) - live, set())

    @rule(one_in=strategies.integers(1, 2))
    def reap(self, one_in: int) -> None:
        self.verb = "reap"
        sql(
            "UPDATE pulse_django_job SET lease_until = statement_timestamp() - interval '1 ms'"
            " WHERE locked_by IS NOT NULL AND id %% %s = 0",
            one_in,
        )
        for reaped in Job.objects.reap():
            assert reaped.lease not in self.accepted
            self.ended.add(reaped.lease)

    @precondition(lambda self: self.known)
    @rule(data=strategies.data())
    def request_cancel(self, data: strategies.DataObject) -> None:
        self.verb = "request_cancel"
        Job.objects.request_cancel([data.draw(strategies.sampled_from(sorted(self.known)))])

    @precondition(lambda self: self.known)
    @rule(data=strategies.data(), runs=strategies.integers(1, 3))
    def retry(self, data: strategies.DataObject, runs: int) -> None:
        self.verb = "retry"
        Job.objects.retry([data.draw(strategies.sampled_from(sorted(self.known)))], runs=runs)

    @rule(status=strategies.sampled_from([status for status in Status if status in TERMINAL]))
    def prune(self, status: Status) -> None:
        self.verb = "prune"
        before = set(Job.objects.filter(status=status).values_list("pk", flat=True))
        Job.objects.prune(status, older_than=ZERO, limit=1)
        self.pruned |= before - set(Job.objects.values_list("pk", flat=True))

    def holds(self, lease: Lease) -> bool:
        return Job.objects.filter(pk=lease.job_id, locked_by=lease.holder, attempts=lease.attempt).exists()

    @invariant()
    def nothing_is_lost(self) -> None:
        assert {*Job.objects.values_list("pk", flat=True), *self.pruned} == self.known

    @invariant()
    def jobs_move_as_the_table_says_and_attempts_only_rise(self) -> None:
        now = {row["id"]: row for row in Job.objects.values()}
        for job_id, row in now.items():
            if before := self.seen.get(job_id):
                assert row["attempts"] >= before["attempts"]
                assert row["refunds"] >= before["refunds"]
                if row["status"] != before["status"]:
                    assert self.verb is not None
                    allowed = MOVES[self.verb].get(Status(before["status"]), frozenset())
                    assert row["status"] in allowed, f"{self.verb}: {before['status']} -> {row['status']}"
            if row["status"] == Status.DEAD_LETTERED:
                assert row["last_error"]
            assert row["attempts"] - row["refunds"] <= row["max_attempts"]
        self.seen = now

    @invariant()
    def every_ended_run_has_its_ledger_row_and_no_other_has(self) -> None:
        over = {*self.accepted, *self.ended}
        ledger = {Lease(*row) for row in Attempt.objects.values_list("job_id", "worker", "number")}
        assert ledger == {lease for lease in over if lease.job_id not in self.pruned}

    @invariant()
    def every_claim_that_is_not_over_is_running(self) -> None:
        running = {Lease(*row) for row in Job.objects.running().values_list("id", "locked_by", "attempts")}
        assert running == {claim.lease for claim in self.claims} - {*self.accepted} - self.ended

    def teardown(self) -> None:
        connection.close()


def test_random_lives_keep_the_promise() -> None:
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
