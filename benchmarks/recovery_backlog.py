"""Thousands of leases that have run out: reaped by one watchdog while claims go on, and by several at once.

The expired jobs lie scattered among the claimable ones, each on another page of the table: that is the most work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.processes import Surroundings
from benchmarks.recovery_processes import Herd, database_now, wait_until_leases_are_believed
from benchmarks.scratch import empty, execute, settle_down
from benchmarks.waits import percentile
from pulse_django.models import Job
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Succeeded
from pulse_django.queue.words.verb_results import Report
from testproject.harness.processes import wait_until

TASK = "benchmarks.recovery_tasks.pass_by"
BATCH = 20
WARM_UP = 20  # claims that are not counted
LONGEST_SWEEP = 120.0
LONGEST_GOODBYE = 60.0

_FILL = f"""
INSERT INTO pulse_django_job (task, args, status, attempts, locked_by, lease_until, token, started_at)
SELECT
    '{TASK}', CASE WHEN lost THEN '["lost"]' ELSE '[]' END::jsonb, CASE WHEN lost THEN 'RUNNING' ELSE 'PENDING' END,
    lost::int, CASE WHEN lost THEN 'dead-' || n %% 50 || ':boot:1' END,
    CASE WHEN lost THEN clock_timestamp() - interval '1 second' END,
    CASE WHEN lost THEN nextval('pulse_django_token') END,
    CASE WHEN lost THEN clock_timestamp() - interval '1 minute' END
FROM generate_series(1, %s) AS n, LATERAL (SELECT n * %s / %s > (n - 1) * %s / %s) AS one (lost)
"""
_LOST = """
SELECT
    count(*), count(*) FILTER (
        WHERE job.status = 'RETRYING' AND job.attempts = 1 AND job.losses = 1 AND job.refunds = 0
            AND job.locked_by IS NULL
            AND (
                SELECT count(*) = 1 AND min(number) = 1 AND min(outcome) = 'WORKER_LOST'
                FROM pulse_django_attempt AS attempt WHERE attempt.job_id = job.id
            )
    )
FROM pulse_django_job AS job
WHERE args = '["lost"]'
"""
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
_WATCHDOGS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pulse watchdog'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Besieged:
    """One round of claims beside a reap. Claims in milliseconds."""

    quiet: list[float]
    during: list[float]
    reap_seconds: float  # from the release of the watchdog until the last run was ended
    sweep_seconds: float  # as the watchdog says, with its housekeeping
    deadlocks: int

    def ratio(self, share: float = 0.99) -> float:
        return of(self.during, share) / of(self.quiet, share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One round of several watchdogs."""

    seconds: float
    shares: list[int]  # how many each of them reaped
    deadlocks: int


def of(claims: list[float], share: float) -> float:
    return percentile(sorted(claims), share)


def claim_beside_a_reap(
    around: Surroundings, pulse: dict[str, Any], *, expired: int, claimable: int, quiet_seconds: float
) -> Besieged:
    with Herd(around, pulse) as members:
        [watchdog] = prepared(members, pulse, 1, expired, claimable)
        deadlocks, claimer = count_deadlocks(), Claimer()
        claimer.go_on(lambda: claimer.claims >= WARM_UP)
        until = time.monotonic() + quiet_seconds
        quiet = claimer.go_on(lambda: time.monotonic() > until)
        released_at = database_now()
        began = time.perf_counter()
        watchdog.release()
        besieged = claimer.go_on(watchdog.has_answered)
        swept = watchdog.answer()
    check(expired, [swept["reaped"]])
    claimer.check()
    [[last]] = execute("SELECT max(finished_at) FROM pulse_django_attempt WHERE outcome = 'WORKER_LOST'")
    seconds = (last - released_at).total_seconds()
    during = [took for started, took in besieged if started - began <= seconds]
    return Besieged(
        quiet=[took for _, took in quiet],
        during=during,
        reap_seconds=seconds,
        sweep_seconds=swept["took"],
        deadlocks=count_deadlocks() - deadlocks,
    )


def reap_together(around: Surroundings, pulse: dict[str, Any], *, watchdogs: int, expired: int) -> Shared:
    with Herd(around, pulse) as members:
        held = prepared(members, pulse, watchdogs, expired, 0)
        deadlocks, released_at = count_deadlocks(), database_now()
        for watchdog in held:
            watchdog.release()
        shares = [watchdog.answer(LONGEST_SWEEP)["reaped"] for watchdog in held]
    check(expired, shares)
    [[last]] = execute("SELECT max(finished_at) FROM pulse_django_attempt")
    return Shared(
        seconds=(last - released_at).total_seconds(),
        shares=sorted(shares),
        deadlocks=count_deadlocks() - deadlocks,
    )


def prepared(members: Herd, pulse: dict[str, Any], watchdogs: int, expired: int, claimable: int) -> list[Any]:
    empty()
    total = expired + claimable
    execute(_FILL, [total, expired, total, expired, total])
    settle_down("pulse_django_job", "pulse_django_attempt")
    wait_until_leases_are_believed(float(pulse.get("LEASE_TTL", 30)))
    return members.held_watchdogs(watchdogs)


class Claimer:
    """Claims and settles on a connection of its own, one batch after the other, as a busy worker does."""

    def __init__(self) -> None:
        self.claims = self._jobs = 0
        self._lanes = Job.objects.lanes()
        self._identity = Identity("bench")

    def go_on(self, is_enough: Callable[[], bool]) -> list[tuple[float, float]]:
        """Return when each claim began, and its milliseconds."""
        found = []
        while not is_enough():
            started = time.perf_counter()
            claims = Job.objects.claim(self._identity, limit=BATCH, lanes=self._lanes)
            found.append((started, (time.perf_counter() - started) * 1000))
            if len(claims) != BATCH:
                raise SystemExit("Too few claimable jobs for this measurement; give it more, or less time")
            if any(claim.args_json != "[]" for claim in claims):
                raise SystemExit("A reaped job was claimed while others had been waiting for longer")
            done = [Report(claim.lease, Succeeded(), Complete()) for claim in claims]
            if len(Job.objects.settle(done).accepted) != len(done):
                raise SystemExit("a settle was refused")
            self.claims += 1
            self._jobs += len(claims)
        return found

    def check(self) -> None:
        """Each job that was claimed ran once, and nothing else did."""
        sql = "SELECT count(*), count(*) FILTER (WHERE attempts = 1) FROM pulse_django_job WHERE status = 'COMPLETED'"
        if execute(sql) != [(self._jobs, self._jobs)]:
            raise SystemExit(f"{self._jobs} jobs were claimed and settled, but {execute(sql)[0]} completed (once)")


def check(expired: int, reaped: list[int]) -> None:
    """Every job was reaped exactly once, in whatever shares. When this returns, all counters have been handed in."""
    wait_until(lambda: execute(_WATCHDOGS) == [(0,)], "a watchdog's connection stays open", LONGEST_GOODBYE)
    if sum(reaped) != expired:
        raise SystemExit(f"{expired} leases had run out, but {' + '.join(map(str, reaped))} were reaped")
    if execute(_LOST) != [(expired, expired)]:
        raise SystemExit(f"jobs, and those of them that were reaped exactly once: {execute(_LOST)[0]}")
    if left := Job.objects.running().count():
        raise SystemExit(f"{left} jobs still run, and nobody runs them")


def count_deadlocks() -> int:
    return int(execute(_DEADLOCKS)[0][0])
