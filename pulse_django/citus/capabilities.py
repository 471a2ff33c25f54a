"""The statements of capabilities that differ on Citus."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pulse_django.expiry.expire import CANCELLED, HAS_NOT_STARTED, PICKED, Expiring
from pulse_django.limits.claim_limited import (
    AGAIN,
    COUNT,
    INTO_BUCKETS,
    LIMITERS,
    LOCK,
    SPENDING,
    LimitedClaiming,
)
from pulse_django.queue.claim import claims_of
from pulse_django.queue.database.transactions import Row, joined, run_joined
from pulse_django.queue.enqueue import Clauses
from pulse_django.queue.statements import Compiled
from pulse_django.queue.words.leases import Lease
from pulse_django.schedules.tick import WRITE_KEYS, WRITE_TICKS, Firing
from pulse_django.unique.admission import TakingWindow
from pulse_django.unique.clauses import NEXT_ID, ONE_WANTED, WINDOW
from pulse_django.workflows import batch_verbs as batches
from pulse_django.workflows import resolve
from pulse_django.workflows.needs import FOUND, WALKED_AT_ONCE, Walking
from pulse_django.workflows.steps import BEGIN_SLEEP, HELD, Sleeping

from .jobs import leave
from .one_task import Given, act_on


class ExpiringOnCitus(Expiring):
    def expire(self, pick: str, limit_or_ids: int | list[int]) -> list[Row]:
        def leave_expired(given: Given) -> list[Compiled]:
            return leave(given, HAS_NOT_STARTED, CANCELLED)

        picked = PICKED.format(pick=pick), (limit_or_ids,)
        _, answers = act_on(self.alias, picked, "expired", {"id": "bigint"}, leave_expired)
        return answers[-1] if answers else []


class TakingWindowOnCitus(TakingWindow):
    """The id is drawn first, because a node would use the sequence of another shard."""

    _TAKE = f"WITH taken AS ({WINDOW.format(wanted=ONE_WANTED.format(id='%s::bigint'))})\n"

    def clauses(self, task: str, key: str, seconds: float) -> Clauses:
        [drawn] = run_joined(self.alias, f"SELECT {NEXT_ID}", [])
        return Clauses(self._TAKE, (seconds, task, key, *drawn, seconds))


class FiringOnCitus(Firing):
    """Two statements; the second gets the rows that the first one wrote."""

    def write(self, columns: list[list[Any]]) -> list[Row]:
        with joined(self.alias):
            written = set(run_joined(self.alias, WRITE_TICKS, columns))
            new = [row for row in zip(*columns, strict=True) if row[:2] in written]
            columns = [list(column) for column in zip(*new, strict=True)] or [[] for _ in columns]
            return run_joined(self.alias, WRITE_KEYS, columns)


# The results that one statement of a limited claim passes to the next, in settings of the transaction.
_SAID = ("at", "most", "takes", "slots", "heaviest", "key_slots", "probe")
_SETTING = re.compile(r"pg_catalog\.current_setting\('pulse\.(\w+)'\)")
_PLAIN_VALUE = re.compile(r"[\w{},:.+ -]*")  # numbers, arrays of them, true, false, an instant

# Citus cannot send a CTE for this to a node: it computes the spent tokens from the lanes of the claimed jobs.
_SPENT_BY = f"WITH claimed AS MATERIALIZED (SELECT pg_catalog.unnest(%s::text[]) AS lane_key),{LIMITERS}{SPENDING}"
_SPEND = f"""
{INTO_BUCKETS}
SELECT *
FROM ROWS FROM (
    pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::float8[]), pg_catalog.unnest(%s::timestamptz[])
) AS taken (scope, tokens, at)
{AGAIN}
RETURNING scope
"""  # noqa: S608 - made of constants


class LimitedClaimingOnCitus(LimitedClaiming):
    """Sends one message for each statement, with the results of the previous one as values."""

    spent = ""

    def send(
        self, lock: list[Any], count: list[Any], claim: str, params: list[Any], limiters: list[str]
    ) -> list[list[Row]]:
        with joined(self.alias):
            locked = run_joined(self.alias, LOCK, lock)
            counted = run_joined(self.alias, spelt_out(COUNT, {"got": locked[0][0]}), count)
            said = dict(zip(_SAID, counted[0], strict=False))
            rows = run_joined(self.alias, spelt_out(claim, said), params)
            if lanes := [claim.lane_key for claim in claims_of(rows, "")]:
                spent = run_joined(self.alias, spelt_out(_SPENT_BY, said), [lanes, *limiters])
                if spent:
                    run_joined(self.alias, _SPEND, [list(column) for column in zip(*spent, strict=True)])
            return [locked, counted, rows]


def spelt_out(sql: str, values: Mapping[str, str]) -> str:
    """Return the statement with values in place of these settings, which Citus keeps on the node that set them."""
    for value in values.values():
        if not _PLAIN_VALUE.fullmatch(value):
            raise ValueError("unexpected result of a statement of a limited claim")
    return _SETTING.sub(lambda found: f"'{values[found[1]]}'::text", sql)


class SleepingOnCitus(Sleeping):
    """A separate statement begins the sleep."""

    _REST = """
SELECT EXTRACT(epoch FROM at + seconds * interval '1 second' - clock_timestamp())::float8
FROM pulse_django_step
WHERE job_id = %s AND name::text = %s
"""

    def begin(self, lease: Lease, name: str, seconds: float) -> list[Row]:
        def begin(given: Given) -> list[Compiled]:
            sql, params = given.compiled(BEGIN_SLEEP.format(held="{given}"))
            return [(sql, (name, seconds, *params)), (self._REST, (lease.job_id, name))]

        types = {"id": "bigint", "attempts": "int", "token": "bigint"}
        _, answers = act_on(self.alias, (HELD, tuple(lease)), "held", types, begin)
        return answers[-1] if answers else []


class WalkingOnCitus(Walking):
    """A separate statement writes the notes."""

    _WALK = f"{{overlooked}}\n{FOUND}, ARRAY(SELECT id FROM overlooked) FROM walked"  # noqa: S608 - constants
    _NOTE = "INSERT INTO pulse_django_unresolved ({column}) SELECT pg_catalog.unnest(%s::bigint[]) RETURNING id"

    def note(self, walk: str, column: str, after: int) -> Row:
        with joined(self.alias):
            [(last, overlooked, ids)] = run_joined(
                self.alias, self._WALK.format(overlooked=walk), [after, WALKED_AT_ONCE]
            )
            if overlooked:
                run_joined(self.alias, self._NOTE.format(column=column), [ids])
        return last, overlooked


class SealingOnCitus(batches.Sealing):
    """A separate statement writes the note."""

    def seal(self, batch_id: int) -> list[Row]:
        with joined(self.alias):
            found = run_joined(self.alias, batches.SEAL_ALONE, [batch_id])
            run_joined(self.alias, batches.NOTE, [[batch_id] if found else []])
        return found


class JudgingOnCitus(batches.Judging):
    """Returns the notes, and a separate statement writes them."""

    _JUDGE = f"""{batches.JUDGED},
again (batch_id, died) AS MATERIALIZED ({batches.AGAIN}
)
SELECT id, finishes_at IS NOT NULL, has_wanted, ARRAY(SELECT batch_id FROM again), ARRAY(SELECT died FROM again)
FROM verdict
"""  # noqa: S608 - made of constants
    _NOTE = """
INSERT INTO pulse_django_unresolved (batch_id, died)
SELECT * FROM ROWS FROM (pg_catalog.unnest(%s::bigint[]), pg_catalog.unnest(%s::boolean[])) AS again (batch_id, died)
RETURNING id
"""

    def judge(self, rows: list[int], locked: list[int]) -> list[Row]:
        judged = run_joined(self.alias, self._JUDGE, [rows, locked])
        if judged and judged[0][3]:
            run_joined(self.alias, self._NOTE, judged[0][3:])
        return judged


class ResolvingOnCitus(resolve.Resolving):
    _TYPES_OF_HOW = {"id": "bigint", "job_id": "bigint", "met": "text", "met_at": "timestamptz"}
    _TYPES_OF_WAITER = {
        "id": "bigint", "task": "text", "queue": "text", "attempts": "int", "run_at": "timestamptz",
        "is_ready": "boolean", "reason": "text", "is_free": "boolean", "is_resumed": "boolean",
    }  # fmt: skip

    def mark(self, touched: dict[str, Any], locked: list[int]) -> list[Row]:
        def mark(given: Given) -> list[Compiled]:
            note, params = given.compiled(resolve.LEAVE_OVER.format(how="{given}", locked="%s"))
            return [given.compiled(resolve.MARK_THEM.format(how="{given}")), (note, (*params, locked))]

        _, answers = act_on(self.alias, (resolve.HOW_THEY_ARE_MET, touched), "how", self._TYPES_OF_HOW, mark)
        return answers[-1] if answers else []

    def free(self, waiting: list[int]) -> list[Row]:
        def free(given: Given) -> list[Compiled]:
            resumed = given.compiled(resolve.RESUMED.format(waiter="{given}"))
            statements = [resumed] if given.any("is_resumed") else []
            if lost := [row for row in given.rows if "reason" in row]:
                of_lost = replace(given, name="lost", rows=lost)
                statements += leave(of_lost, resolve.WAITS, resolve.LOST, brings=["reason"])
            return [*statements, given.compiled(f"WITH {resolve.FREED.format(waiter='{given}')}")]

        waiters = resolve.WAITERS, {"waiting": waiting}
        found, answers = act_on(self.alias, waiters, "waiter", self._TYPES_OF_WAITER, free)
        answered = ("id", "queue", "task", "attempts", "reason")
        lost = [tuple(row[name] for name in answered) for row in found if "reason" in row]
        return [*(answers[-1] if answers else []), *lost]


STATEMENTS = (
    ExpiringOnCitus, FiringOnCitus, JudgingOnCitus, LimitedClaimingOnCitus, ResolvingOnCitus, SealingOnCitus,
    SleepingOnCitus, TakingWindowOnCitus, WalkingOnCitus,
)  # fmt: skip
