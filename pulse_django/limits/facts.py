"""Limits as users see them: their numbers, their use, and the jobs that wait."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pulse_django.health.snapshot import to_json
from pulse_django.queue.database.lane_queries import IN_LANE, LANES_CTE, limits_of
from pulse_django.queue.database.read_only import read_only
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.lane_keys import key_of

from .limiters import IN_FORCE
from .rules import in_words

MOST_LISTED = 1_000
MOST_COUNTED = 10_000  # waiting jobs of all limits together
MOST_KEYS = 10  # keys of one limit: those with the most runs

# Runs are counted in the index of leases, and waiting jobs lane by lane, each up to a maximum.
_LIMITS = f"""{LANES_CTE},
share (most) AS MATERIALIZED (
    SELECT GREATEST(10, %(counted)s / GREATEST(count(*), 1)) FROM lane WHERE NOT (lane_key::text = '')
),
waiting AS (
    SELECT
        limits.limiter, pg_catalog.sum(due.jobs)::bigint AS jobs,
        pg_catalog.bool_or(due.jobs > share.most) AS is_more,
        EXTRACT(epoch FROM statement_timestamp() - pg_catalog.min(due.since))::float8 AS since
    FROM lane
    CROSS JOIN share
    CROSS JOIN LATERAL (
        SELECT pg_catalog.count(*) AS jobs, pg_catalog.min(next_run_at) AS since
        FROM (
            SELECT next_run_at FROM pulse_django_job_hot
            WHERE {IN_LANE} AND next_run_at <= statement_timestamp()
            ORDER BY next_run_at, id
            LIMIT share.most + 1
        ) AS counted
    ) AS due
    CROSS JOIN LATERAL ({limits_of("lane")}) AS limits
    WHERE NOT (lane.lane_key::text = '') AND due.jobs > 0
    GROUP BY 1
),
held AS (
    SELECT
        limits.limiter, lane_key::text AS lane_key, pg_catalog.sum(weight) AS jobs,
        row_number() OVER (PARTITION BY limits.limiter ORDER BY pg_catalog.sum(weight) DESC, lane_key::text) AS place
    FROM pulse_django_job_hot AS job
    CROSS JOIN LATERAL ({limits_of("job")}) AS limits
    WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '')
    GROUP BY 1, 2
),
used AS (
    SELECT
        limiter, pg_catalog.sum(jobs)::bigint AS jobs,
        pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(lane_key, jobs) ORDER BY place)
            FILTER (WHERE place <= {MOST_KEYS}) AS most
    FROM held
    GROUP BY limiter
)
SELECT
    limiter.name, {IN_FORCE}::text, limiter.numbers::text,
    CASE
        WHEN limiter.override_until IS NULL OR limiter.override_until > statement_timestamp()
        THEN limiter.override::text
    END,
    limiter.override_until, limiter.overridden_by, limiter.override_reason, limiter.declared_at IS NOT NULL,
    CASE WHEN limiter.paused_until > statement_timestamp() THEN limiter.paused_until END, limiter.pause_reason,
    limiter.half_open, COALESCE(used.jobs, 0), COALESCE(used.most, '[]')::text, COALESCE(waiting.jobs, 0),
    COALESCE(waiting.is_more, false), waiting.since
FROM pulse_django_limiter AS limiter
LEFT JOIN used ON used.limiter = limiter.name::text
LEFT JOIN waiting ON waiting.limiter = limiter.name::text
WHERE %(name)s::text IS NULL OR limiter.name::text = %(name)s
ORDER BY limiter.name
LIMIT {MOST_LISTED}
"""  # noqa: S608 - made of constants


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """One limit, as it is now."""

    name: str
    numbers: dict[str, Any]  # in force
    of_code: dict[str, Any]
    override: dict[str, Any] | None
    override_until: datetime | None
    overridden_by: str
    override_reason: str
    is_declared: bool
    paused_until: datetime | None
    pause_reason: str
    half_open: bool
    running: int  # the sum of the weights of jobs
    keys: list[tuple[str, int]]  # those with the most runs, with the sums of their weights
    waiting: int  # due jobs
    is_more: bool  # there are more than were counted
    waiting_for: float | None  # seconds since the first of them became due

    @property
    def in_words(self) -> str:
        return in_words(self.numbers)

    @property
    def state(self) -> str:
        """Return ``paused``, ``probing``, ``full`` or ``open``."""
        if self.paused_until is not None:
            return "paused"
        if self.half_open:
            return "probing"
        most = self.numbers.get("max_running")
        return "full" if most is not None and self.running >= most else "open"

    @property
    def full_keys(self) -> list[str]:
        """The keys of those listed that allow no further run."""
        most = self.numbers.get("max_running_per_key")
        return [] if most is None else [key for key, runs in self.keys if runs >= most]

    def as_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = to_json(self)
        keys = [{"key": key, "running": runs} for key, runs in self.keys]
        reason = self.pause_reason if self.state in ("paused", "probing") else ""
        return facts | {"state": self.state, "keys": keys, "pause_reason": reason}


def limits(alias: str, name: str | None = None) -> list[LimitFacts]:
    """Return all limits, or the one of that name."""
    with read_only(alias):
        rows = run_joined(alias, _LIMITS, {"counted": MOST_COUNTED, "name": name})
    return [_facts(*row) for row in rows]


def _facts(name: str, numbers: str, of_code: str, override: str | None, *rest: Any) -> LimitFacts:
    *about, most, waiting, is_more, waiting_for = rest
    declared = (json.loads(said or "null") for said in (numbers, of_code, override))
    keys = [(key, runs) for lane_key, runs in json.loads(most) if (key := key_of(lane_key)) is not None]
    values = (name, *declared, *about, keys, waiting, is_more, waiting_for)
    return LimitFacts(*values)
