"""Bugs for the suite to find: each breaks one rule of the protocol, in the workers of a run and nowhere else.

A worker imports this module as one of its task modules when ``CHAOS_MUTANT`` names a bug. Pulse has no switch for any.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pulse_django.amendments import amend, amending
from pulse_django.citus.jobs import GrantingOnCitus
from pulse_django.managers import JobManager
from pulse_django.queue import capability, claim, enqueue, reap, settle
from pulse_django.queue import heartbeat as beats
from pulse_django.queue.database import prepared_statements, transactions
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words import decisions
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Outcome, Released
from pulse_django.queue.words.states import CLAIMABLE, Status
from pulse_django.run.run import Run
from pulse_django.unique import admission
from pulse_django.unique import clauses as unique
from pulse_django.worker import heartbeat
from pulse_django.worker.lanes import LaneBounds
from pulse_django.worker.needed_threads import NeededThreads
from pulse_django.worker.watchdog import Outages, Watchdog


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A bug, the misfortunes that fit it, and the rules of which one must be found broken."""

    plant: Callable[[], None]
    nemeses: tuple[str, ...]
    breaks: tuple[str, ...]
    in_callers: bool = False  # it is planted where jobs are enqueued, too
    schema: str = ""  # what has to be taken out of the tables' way: their constraints refuse some bugs by themselves


# Where the statements stand.
HOMES: dict[str, Any] = {
    "_BEGIN": transactions,
    "_SESSION": prepared_statements,
    "grant": claim.Granting,
    "grant on Citus": GrantingOnCitus,
    "_HEARTBEAT": beats,
    "_SETTLE": settle,
    "_reap_sql": reap,
    "ends": settle,
    "_CHANGE": unique,
    "_HOLD_BACK": unique,
    "_UP_TO_LONGEST": unique,
    "TAKE_WINDOW": admission,
    "_AMEND": amend,
}


def replaced(name: str, *pairs: tuple[str, str]) -> Callable[[], None]:
    """Change a statement. A piece that is not there any more is a mutant that mutates nothing, and an error."""

    def plant() -> None:
        attribute = name.partition(" ")[0]
        found: Any = getattr(HOMES[name], attribute)
        statement: str | dict[bool, str] = found() if callable(found) else found
        statements = statement if isinstance(statement, dict) else {True: statement}
        for old, new in pairs:
            if not any(old in text for text in statements.values()):
                raise SystemExit(f"{name} holds no {old!r} any more: the mutant needs a new place")
            statements = {which: text.replace(old, new) for which, text in statements.items()}
        changed = statements if isinstance(statement, dict) else statements[True]
        setattr(HOMES[name], attribute, (lambda: changed) if callable(found) else changed)

    return plant


def hands_back_what_has_begun() -> None:
    def has_begun(outcome: Outcome) -> bool:
        return not isinstance(outcome, Released)

    decisions._has_begun = has_begun


def no_outage_grace() -> None:
    Watchdog._wait = lambda *_: None  # type: ignore[method-assign]
    Outages.trusts_leases = lambda *_: True  # type: ignore[method-assign]
    reaps_at_the_first_look()


def forgets_what_kept_it() -> None:
    """Only that the server was away counts as an outage, and not that a reap failed."""
    reaps_at_the_first_look()
    Outages.failed = lambda *_: None  # type: ignore[method-assign]
    Outages.trusts_leases = lambda self, now, _: now >= self.trusts_leases_at  # type: ignore[method-assign]


def reaps_at_the_first_look() -> None:
    """Whatever ran out is ended at once, also what somebody's lock kept from being extended."""
    reaps = JobManager.reap
    JobManager.reap = lambda self, **_: reaps(self)  # type: ignore[method-assign]


def nobody_notices_a_dead_thread() -> None:
    NeededThreads._report_end = lambda *_: None  # type: ignore[method-assign]


def a_watchdog_is_quicker_than_holders() -> None:
    reaps_at_the_first_look()
    heartbeat.PAUSE_BEFORE_SKIPPED = 1.0


def a_reap_waits_for_the_table() -> None:
    reap.REAP_LOCK_TIMEOUT = 60.0
    forgets_what_kept_it()


def claims_what_has_expired() -> None:
    capability.install(*(one for one in capability.installed() if one.name != "expiry"))


def amends_what_runs() -> None:
    amending.CLAIMABLE = (*CLAIMABLE, Status.RUNNING)  # type: ignore[attr-defined]
    replaced("_AMEND", ("status::text IN ('WAITING', 'PENDING'", "status::text IN ('RUNNING', 'WAITING', 'PENDING'"))()


def unlocked() -> None:
    """Look without locking: what was found may have changed when it is written."""
    claim.skip_locked = reap.skip_locked = lambda rows, **_: rows


def one_holder_for_all() -> None:
    """The holder names the process, as it does in most queues, and not the claim."""
    Identity.mint_holder = lambda self: f"{self.name}:{self.boot_id}:1"  # type: ignore[method-assign]


def leases_by_our_own_clock() -> None:
    """The lease is reckoned where the worker is, and written as an instant."""
    run = transactions.run_alone

    def by_our_own_clock(alias: str, sql: str, params: Any, **options: Any) -> Any:
        lease = "clock_timestamp() + COALESCE(lease_ttl,"
        if lease not in sql:
            raise SystemExit("a lease is not reckoned here any more: the mutant needs a new place")
        return run(alias, sql.replace(lease, f"to_timestamp({time.time()}) + COALESCE(lease_ttl,"), params, **options)

    claim.run_alone = beats.run_alone = by_our_own_clock


def believes_in_its_lease() -> None:
    """It goes on however long it has heard nothing, and whatever it hears."""

    def look(self: Run) -> None:
        self.lost = False

    Run.look = look  # type: ignore[method-assign]
    Run.lease_remaining = lambda self: 60.0  # type: ignore[method-assign]


def delete_on_claim() -> None:
    """Take the job out of the table, as from a list."""
    grant = claim._claim

    def deleting(jobs: Any, *arguments: Any) -> Any:
        claims = grant(jobs, *arguments)
        transactions.run_alone(
            jobs.write_alias,
            "DELETE FROM pulse_django_job WHERE id = ANY (%s::bigint[]) RETURNING id",
            [[one.job_id for one in claims]],
        )
        return claims

    claim._claim = deleting


def delete_the_lost() -> None:
    reaps = JobManager.reap

    def deleting(self: Any, **options: Any) -> Any:
        transactions.run_alone(self.write_alias, f"{DELETE} RETURNING id", [])
        return reaps(self, **options)

    JobManager.reap = deleting  # type: ignore[method-assign]


def reaps_whatever_runs() -> None:
    JobQuerySet.reapable = lambda self: self.running().filter(  # type: ignore[method-assign]
        started_at__lt=StatementTimestamp() - timedelta(seconds=1)
    )


def nobody_looks_behind_the_bounds() -> None:
    """A claim starts where the last one of its lane stopped, always."""
    LaneBounds.of = lambda self, lanes: self._since  # type: ignore[method-assign]
    LaneBounds.must_look_behind = lambda self, found: False  # type: ignore[method-assign]


def looks_for_the_key_first() -> None:
    """Look whether another job has the key, and insert if none has. That is how it is done without an index."""
    insert = enqueue._insert

    def looking(jobs: Any, new: Any, *rest: Any) -> Any:
        key = new.unique
        if key is not None and key.rule.per is None and unique.holders(jobs, key.rule, [(new.task, key.key)]):
            return []
        return insert(jobs, new, *rest)

    enqueue._insert = looking
    unique.conflict_of = admission.conflict_of = lambda rule: unique.Clauses(conflict="ON CONFLICT DO NOTHING")


def all_of(*plants: Callable[[], None]) -> Callable[[], None]:
    def plant() -> None:
        for one in plants:
            one()

    return plant


def without_fence(instead: str) -> Callable[[], None]:
    """Write what a run left, whether the job is still its holder's or not."""
    held = "job.locked_by::text = {0}.holder AND job.attempts = {0}.attempt"
    return all_of(
        replaced(
            "_SETTLE",
            (f"job.id = report.id AND {held.format('report')}", f"job.id = report.id AND {instead.format('report')}"),
        ),
        replaced("ends", *((held.format(rows), instead.format(rows)) for rows in ("staying", "ending"))),
    )


DELETE = "DELETE FROM pulse_django_job WHERE status = 'RUNNING' AND lease_until < statement_timestamp()"
REAP_AGAIN = """
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.progress_timeout < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        )"""
TTL_FROM_NOW = "clock_timestamp() + COALESCE({}lease_ttl"
TTL_FROM_BEFORE = "clock_timestamp() - interval '1.9 s' + COALESCE({}lease_ttl"
BEAT_FENCE = "ON job.id = held.id AND job.locked_by::text = held.holder AND job.attempts = held.attempt"
LONG_FREEZE = ("freeze, longer than a lease", "freeze of a child", "black hole")
KILLS = ("kill -9 of a worker", "kill -9 of a keeper")

MUTANTS: dict[str, Mutant] = {
    "status-only fence": Mutant(
        plant=without_fence("job.status = 'RUNNING'"),
        nemeses=LONG_FREEZE,
        breaks=("no stale write is accepted",),
    ),
    "no fence at all": Mutant(
        plant=without_fence("true"),
        nemeses=LONG_FREEZE,
        breaks=("no stale write is accepted", "terminal once"),
    ),
    "no attempt in the fence": Mutant(
        plant=all_of(one_holder_for_all, without_fence("job.locked_by::text = {0}.holder")),
        nemeses=("black hole, just longer than a lease",),
        breaks=("no stale write is accepted",),
    ),
    "a heartbeat without holder": Mutant(
        plant=replaced("_HEARTBEAT", (BEAT_FENCE, "ON job.id = held.id AND job.locked_by IS NOT NULL")),
        nemeses=LONG_FREEZE,
        breaks=("only its holder extends a lease",),
    ),
    "no self-fencing": Mutant(
        plant=believes_in_its_lease,
        nemeses=("black hole",),
        breaks=("who loses its lease stops",),
    ),
    "claim reads, then writes": Mutant(
        plant=all_of(
            unlocked,
            replaced("grant", ("\n        AND job.locked_by IS NULL", "")),
            replaced("grant on Citus", (" AND job.locked_by IS NULL", "")),
        ),
        nemeses=("connections reset", *KILLS),
        breaks=("no live lease is stolen",),
    ),
    "reap reads, then writes": Mutant(
        plant=all_of(
            unlocked,
            replaced(
                "_reap_sql",
                # Once, and for less than a statement may take: a sleep for each row would end it.
                ("WITH over AS", "WITH nap AS MATERIALIZED (SELECT pg_sleep(0.4)), over AS"),
                ("FROM ({pick}) AS pick", "FROM ({pick}) AS pick CROSS JOIN nap"),
                (REAP_AGAIN, ""),
            ),
        ),
        nemeses=("freeze, just longer than a lease",),
        breaks=("no reap before its time",),
    ),
    "a lost worker costs nothing": Mutant(
        plant=replaced(
            "_reap_sql",
            (
                "(free AND verdict = 'RETRYING')::int AS refund",
                "(outcome = 'WORKER_LOST')::int AS refund",
            ),
        ),
        nemeses=KILLS,
        breaks=("a lost worker costs an attempt",),
    ),
    "a retry lowers attempts": Mutant(
        plant=replaced(
            "ends",
            (
                "        refunds = staying.refunds",
                "        attempts = job.attempts - (staying.verdict = 'RETRYING')::int, refunds = staying.refunds",
            ),
        ),
        nemeses=KILLS,
        breaks=("attempts only rise",),
    ),
    "leases by the clock of the application": Mutant(
        plant=leases_by_our_own_clock,
        nemeses=("wall clock an hour behind",),
        breaks=("no healthy job is reaped",),
    ),
    "leases by a clock that is behind": Mutant(
        plant=all_of(
            replaced("grant", (TTL_FROM_NOW.format("job."), TTL_FROM_BEFORE.format("job."))),
            replaced("grant on Citus", (TTL_FROM_NOW.format(""), TTL_FROM_BEFORE.format(""))),
            replaced(
                "_HEARTBEAT",
                ("GREATEST(lease_until, clock_timestamp() +", "(clock_timestamp() - interval '1.9 s' +"),
            ),
        ),
        nemeses=("connections reset",),
        breaks=("no healthy job is reaped", "a heartbeat never shortens"),
    ),
    "no grace after an outage": Mutant(
        plant=no_outage_grace,
        nemeses=("PostgreSQL away, just longer than a lease",),
        breaks=("no healthy job is reaped",),
    ),
    "no grace after refused writes": Mutant(
        plant=no_outage_grace,
        nemeses=("writes refused",),
        breaks=("no healthy job is reaped",),
    ),
    "a reap that waits for the table": Mutant(
        plant=a_reap_waits_for_the_table,
        nemeses=("table locked",),
        breaks=("no healthy job is reaped",),
    ),
    "a watchdog that is quicker than holders": Mutant(
        plant=a_watchdog_is_quicker_than_holders,
        nemeses=("running rows locked",),
        breaks=("no healthy job is reaped",),
    ),
    "a dead thread that nobody notices": Mutant(
        plant=nobody_notices_a_dead_thread,
        nemeses=("thread 'reports' ends", "thread 'event-loop' ends"),
        breaks=("quiescent at the end", "recovery is in time"),
    ),
    "commits that do not wait": Mutant(
        plant=all_of(
            replaced("_BEGIN", ("synchronous_commit = on", "synchronous_commit = off")),
            replaced("_SESSION", ("synchronous_commit = on", "synchronous_commit = off")),
        ),
        nemeses=("PostgreSQL crashed",),
        breaks=("no execution without a claim", "tokens rise", "no fence is minted twice"),
    ),
    "jobs are deleted on claim": Mutant(
        plant=delete_on_claim, nemeses=("connections reset",), breaks=("nothing is lost",)
    ),
    "not all that leaves arrives": Mutant(
        plant=replaced("ends", (" FROM gone\n)", " FROM gone WHERE random() < 0.8\n)")),
        nemeses=("connections reset",),
        breaks=("nothing is lost",),
    ),
    "a claim that never looks behind its bounds": Mutant(
        plant=nobody_looks_behind_the_bounds, nemeses=("connections reset",), breaks=("quiescent at the end",)
    ),
    "a lost job is deleted": Mutant(plant=delete_the_lost, nemeses=KILLS, breaks=("nothing is lost",)),
    "a dead letter without a reason": Mutant(
        plant=replaced("ends", ("COALESCE(staying.last_error, job.last_error)", "''")),
        nemeses=KILLS,
        breaks=("every dead letter has its reason",),
        schema="ALTER TABLE pulse_django_job_hot DROP CONSTRAINT pulse_job_dead_letter_has_reason",
    ),
    "a death without its hook": Mutant(
        plant=replaced("ends", ("ON job.id = ended.dead_id", "ON job.id = ended.dead_id AND random() < 0.5")),
        nemeses=KILLS,
        breaks=("each death has one hook",),
    ),
    "at most once, and handed back": Mutant(
        plant=hands_back_what_has_begun,
        nemeses=("PostgreSQL away", "SIGTERM"),
        breaks=("at most once",),
    ),
    "expired jobs are claimed all the same": Mutant(
        plant=claims_what_has_expired, nemeses=("connections reset",), breaks=("no expired job starts",)
    ),
    "amend changes a running job": Mutant(
        plant=amends_what_runs,
        nemeses=("connections reset",),
        breaks=("arguments change only while a job waits",),
        in_callers=True,
    ),
    "a unique key that is looked up first": Mutant(
        plant=looks_for_the_key_first,
        nemeses=("connections reset",),
        breaks=("one holder of a key",),
        in_callers=True,
        schema="DROP INDEX pulse_job_one_per_unique_key",
    ),
    "a call that changes the time and not the arguments": Mutant(
        plant=replaced("_CHANGE", ("args = excluded.args", "args = job.args")),
        nemeses=("connections reset",),
        breaks=("the last wish is run",),
        in_callers=True,
    ),
    "a job that starts before its caller commits": Mutant(
        plant=replaced("_HOLD_BACK", ("UPDATE SET unique_key = job.unique_key WHERE false", "NOTHING")),
        nemeses=("connections reset",),
        breaks=("the last wish is run",),
        in_callers=True,
    ),
    "debounce without a longest": Mutant(
        plant=replaced("_UP_TO_LONGEST", ("LEAST(excluded", "GREATEST(excluded")),
        nemeses=("connections reset",),
        breaks=("no unique job is postponed for longer than allowed",),
        in_callers=True,
    ),
    "a period that ends early": Mutant(
        plant=replaced(  # what the statement saw, and what it finds after it waited for a rival
            "TAKE_WINDOW",
            ("statement_timestamp()", "(statement_timestamp() + interval '50 ms')"),
            (">= %s::float8 * interval '1 second'", ">= %s::float8 * interval '1 second' - interval '50 ms'"),
        ),
        nemeses=("connections reset",),
        breaks=("one in a period",),
        in_callers=True,
    ),
    "a watchdog that does not look at the lease": Mutant(
        plant=all_of(reaps_whatever_runs, replaced("_reap_sql", (REAP_AGAIN, ""))),
        nemeses=("connections reset",),
        breaks=("no reap before its time",),
    ),
}


if (name := os.environ.get("CHAOS_MUTANT", "")) in MUTANTS:
    MUTANTS[name].plant()
