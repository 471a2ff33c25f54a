"""Bugs for the chaos of limits to find: each breaks one rule of claims with limits, in the workers of a run.

A worker imports this module as one of its task modules when ``CHAOS_MUTANT`` names a bug.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from pulse_django.limits import claim_limited, claiming
from pulse_django.queue.database.prepared_statements import PreparedStatements
from pulse_django.worker import in_flight

_PLACE_0 = "WHEN scope.place = 0 THEN true"
_TRIED = "pg_catalog.pg_try_advisory_xact_lock"


def _replaced(name: str, *pairs: tuple[str, str]) -> None:
    statement: str = getattr(claim_limited, name)
    for old, new in pairs:
        if old not in statement:
            raise SystemExit(f"{name} does not contain {old!r}: the mutant needs a new place")
        statement = statement.replace(old, new)
    setattr(claim_limited, name, statement)


def no_lock() -> None:
    """Take every lock for held."""
    _replaced("LOCK", (f"ELSE {_TRIED}(", "ELSE true OR pg_catalog.pg_try_advisory_xact_lock_shared("))


def queue_without_lock() -> None:
    """Take the lock of a queue's limit for held."""
    _replaced(
        "LOCK",
        ("WHEN scope.place = 0 AND queue_limit.running IS NULL AND queue_limit.rate IS NULL THEN false", _PLACE_0),
    )


def _wait_for_locks() -> None:
    """Wait, so that whoever has counted claims."""
    _replaced("LOCK", (f"ELSE {_TRIED}(", "ELSE '' = pg_catalog.pg_advisory_xact_lock("))
    _replaced("LOCK", (", pg_catalog.hashtext(scope.name))", ", pg_catalog.hashtext(scope.name))::text"))


def count_before_the_lock() -> None:
    """Count, then wait for the locks, then claim."""
    _wait_for_locks()
    _replaced("COUNT", ("pg_catalog.current_setting('pulse.got')::int[]", "ARRAY(SELECT generate_series(1, 100))"))
    run_message = claim_limited.run_message

    def in_another_order(alias: str, statements: Any) -> Any:
        lock, count, claim = statements
        counted, locked, claimed = run_message(alias, [count, lock, claim])
        return [locked, counted, claimed]

    claim_limited.run_message = in_another_order  # type: ignore[attr-defined]


def one_snapshot() -> None:
    """Count and claim under the snapshot of the statement that waits for the locks, as one statement would."""
    _wait_for_locks()
    PreparedStatements.can_run = lambda *_: False  # type: ignore[method-assign]  # a SET cannot be prepared
    run_message = claim_limited.run_message

    def with_one_snapshot(alias: str, statements: Any) -> Any:
        (lock, params), *others = statements
        isolated = f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; {lock}"
        _, *answers = run_message(alias, [(isolated, params), *others])
        return answers

    claim_limited.run_message = with_one_snapshot  # type: ignore[attr-defined]


def mark_too_high() -> None:
    """Count from the largest token on that was seen, and believe it at once."""
    claiming.SETTLES_IN = -1.0
    marks = claim_limited._marks

    def latest(lowest: Mapping[str, int | None], shared: tuple[str, str], claims: Any) -> dict[str, int]:
        last = max((claim.token for claim in claims), default=0)
        return dict.fromkeys(lowest, last) if last else marks(lowest, shared, claims)

    claim_limited._marks = latest  # type: ignore[attr-defined]


def heavy_as_one() -> None:
    """Count jobs, whatever they weigh."""
    _replaced("COUNT", ("pg_catalog.sum(weight)", "pg_catalog.count(*)"))


def bucket_without_reserve() -> None:
    """Let a bucket hold n tokens, and refill n in each period."""
    for name in ("LOCK", "COUNT", "SPENT"):
        statement: str = getattr(claim_limited, name)
        for rate in ("rate", "key_rate"):
            statement = statement.replace(f"COALESCE((n ->> '{rate}_burst'::text)::float8, 1)", "1e9::float8")
            for row in ("limiter", "queue_limit"):
                refilled = f"({row}.{rate} - {row}.{rate}_burst + 1::float8)"
                statement = statement.replace(refilled, f"{row}.{rate}")
        statement = statement.replace("(taken.n - taken.burst + 1::float8)", "taken.n")
        setattr(claim_limited, name, statement)


def bucket_that_waits() -> None:
    """Let a bucket that is ahead of the clock wait until the clock has caught up."""
    for name in ("COUNT", "SPENT"):
        statement: str = getattr(claim_limited, name)
        changed = re.sub(r"::float8 <= \S*per THEN", "::float8 <= 1e9::float8 THEN", statement)
        if changed == statement:
            raise SystemExit(f"{name} forgets no bucket: the mutant needs a new place")
        setattr(claim_limited, name, changed)


def begin_whatever_the_lease() -> None:
    """Begin what waits for a slot, though its lease may be over."""
    in_flight.FRESH = float("inf")


LIMIT_MUTANTS: dict[str, Callable[[], None]] = {
    "a limit without its lock": no_lock,
    "a limit of a queue without its lock": queue_without_lock,
    "count before the lock": count_before_the_lock,
    "count and claim under one snapshot": one_snapshot,
    "a mark that is too high": mark_too_high,
    "a heavy job that counts as one": heavy_as_one,
    "a bucket without a reserve": bucket_without_reserve,
    "a bucket that waits for the clock": bucket_that_waits,
    "a job that begins after its lease": begin_whatever_the_lease,
}


if (name := os.environ.get("CHAOS_MUTANT")) in LIMIT_MUTANTS:
    LIMIT_MUTANTS[name]()
