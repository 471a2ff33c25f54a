"""Limiters: the numbers of the code, the numbers that users set instead, and pauses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pulse_django.queue.database.transactions import Table, TableManager, run_joined
from pulse_django.queue.declarations import MAX_SCOPE, Declarer, declare_once
from pulse_django.queue.words.bounds import MAX_STORED_REASON, MAX_USER
from pulse_django.queue.words.durations import Seconds, as_timedelta, seconds_of
from pulse_django.queue.words.lane_keys import check_limiter_name
from pulse_django.queue.words.options import Duration, Note
from pulse_django.safe_logging import SafeLogger

from .rules import Breaker, check_numbers

logger = SafeLogger("pulse_django.limits")

# The numbers of a row that are in force now.
IN_FORCE = """(
    numbers || CASE
        WHEN override IS NOT NULL AND (override_until IS NULL OR override_until > statement_timestamp()) THEN override
        ELSE '{}'::jsonb
    END
)"""

# It replaces numbers that other code has declared, or no code yet.
_DECLARE = """
INSERT INTO pulse_django_limiter AS limiter (name, numbers, declared_at, declared_in)
SELECT name, numbers, clock_timestamp(), %s
FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::jsonb[])) AS declared (name, numbers)
ORDER BY name
ON CONFLICT (name) DO UPDATE
SET numbers = excluded.numbers, declared_at = excluded.declared_at, declared_in = excluded.declared_in
WHERE {where}
RETURNING name
"""
_DECLARE_NEW = _DECLARE.format(where="limiter.declared_at IS NULL")
_DECLARE_ALL = _DECLARE.format(
    where="limiter.declared_at IS NULL OR limiter.numbers <> excluded.numbers "
    "OR limiter.declared_in::text <> excluded.declared_in::text"
)

_TAKEN = "Limit %s was declared by the settings module %s and is declared by %s now"

# A limiter that no code declares any more has only the numbers that users have set.
_FORGET = """
UPDATE pulse_django_limiter SET numbers = '{}', declared_at = NULL
WHERE declared_in::text = %s AND declared_at IS NOT NULL AND name::text <> ALL (%s::text[])
RETURNING name
"""

_OVERRIDE = """
INSERT INTO pulse_django_limiter (name, numbers, override, override_until, overridden_by, override_reason)
VALUES (
    %(name)s, '{}', %(override)s::jsonb, clock_timestamp() + %(seconds)s::float8 * interval '1 second', %(by)s,
    %(reason)s
)
ON CONFLICT (name) DO UPDATE SET
    override = excluded.override, override_until = excluded.override_until,
    overridden_by = excluded.overridden_by, override_reason = excluded.override_reason
RETURNING name
"""

# Keep a later end: the longer time is the safer one.
_PAUSE = """
INSERT INTO pulse_django_limiter AS limiter (name, numbers, paused_until, pause_reason)
VALUES (%(name)s, '{}', clock_timestamp() + %(seconds)s::float8 * interval '1 second', %(reason)s)
ON CONFLICT (name) DO UPDATE SET paused_until = excluded.paused_until, pause_reason = excluded.pause_reason
WHERE limiter.paused_until IS NULL OR limiter.paused_until < excluded.paused_until
RETURNING name
"""

_RESUME = """
UPDATE pulse_django_limiter SET paused_until = NULL, pause_reason = '', half_open = false, failures = 0
WHERE name::text = %s AND (paused_until IS NOT NULL OR half_open)
RETURNING name
"""

# Counts from the first failure on. During a pause it counts no failures of runs that began before.
_FAILED = """
WITH locked AS MATERIALIZED (
    SELECT name, failures, failures_since, paused_until, pause_reason, half_open
    FROM pulse_django_limiter
    WHERE name::text = %(name)s
    FOR NO KEY UPDATE
),
counted AS MATERIALIZED (
    SELECT
        *, clock_timestamp() AS now,
        CASE
            WHEN failures > 0 AND failures_since > clock_timestamp() - %(within)s::float8 * interval '1 second'
            THEN failures + 1
            ELSE 1
        END AS n
    FROM locked
),
judged AS MATERIALIZED (
    SELECT
        *, half_open OR n >= %(most)s AS opens,
        CASE WHEN n = 1 THEN now ELSE failures_since END AS since,
        now + %(seconds)s::float8 * interval '1 second' AS pauses_until
    FROM counted
    WHERE paused_until IS NULL OR paused_until <= now
),
written AS (
    UPDATE pulse_django_limiter AS limiter
    SET failures_since = judged.since,
        failures = CASE WHEN judged.opens THEN 0 ELSE judged.n END,
        paused_until = CASE WHEN judged.opens THEN judged.pauses_until ELSE judged.paused_until END,
        pause_reason = CASE WHEN judged.opens THEN %(reason)s ELSE judged.pause_reason END,
        half_open = judged.opens
    FROM judged
    WHERE limiter.name::text = judged.name::text
    RETURNING limiter.half_open
)
SELECT half_open FROM written
"""


# A bucket that would be full again needs no row. PostgreSQL checks a row again that a claim has changed meanwhile.
_FORGET_FULL = f"""
DELETE FROM pulse_django_bucket AS bucket
WHERE NOT EXISTS (
    SELECT 1 FROM (
        SELECT CASE WHEN bucket.scope::text = name::text THEN 'rate' ELSE 'key_rate' END AS rate, {IN_FORCE} AS n
        FROM pulse_django_limiter
        WHERE name::text = pg_catalog.split_part(bucket.scope::text, ':', 1)
    ) AS limiter
    WHERE EXTRACT(epoch FROM statement_timestamp() - bucket.at)::float8
        < (n ->> (rate || '_per'))::float8 * (n ->> rate)::float8
)
RETURNING scope
"""  # noqa: S608 - made of constants

_LASTING = Duration(or_zero=True)
_BY, _REASON = Note(MAX_USER), Note(MAX_STORED_REASON)


class LimiterManager(TableManager[Table]):
    """``Limiter.objects``: every write to a limiter."""

    def declare_new(self, scope: str, limits: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Store limits that no code has declared so far. Return their names.

        ``limits`` are the numbers by name. ``scope``: the settings module of the code.
        """
        return self._declare(_DECLARE_NEW, scope, limits)

    def declare(self, declarer: Declarer, limits: Mapping[str, Mapping[str, Any]], *, silence: timedelta) -> bool:
        """Store the limits that this code declares, unless a worker that started later has declared.

        Return whether it did.
        """
        scope = declarer.scope
        # Count rows of other settings modules, too: two modules would otherwise overwrite each other every minute.
        declared = self.using(self.write_alias).filter(name__in=list(limits), declared_at__isnull=False)

        def store() -> None:
            others = declared.exclude(declared_in=scope).values_list("name", "declared_in", "numbers")
            for name, other in [(name, other) for name, other, said in others if said != limits[name]]:
                logger.warning(_TAKEN, name, other, scope)
            self._declare(_DECLARE_ALL, scope, limits)
            run_joined(self.write_alias, _FORGET, [scope, list(limits)])

        return declare_once(
            self.write_alias,
            declarer._replace(scope=f"limits:{scope}"[:MAX_SCOPE]),
            limits,
            silence=silence,
            stored=declared.count,
            store=store,
        )

    def override(
        self,
        name: str,
        numbers: Mapping[str, Any] | None,
        *,
        duration: Seconds | None = None,
        by: str = "",
        reason: str = "",
    ) -> None:
        """Set numbers instead of the code's, field by field, for some time or until reset. None: the code's.

        They apply from the next claim on.
        """
        check_limiter_name(name)
        lasts = as_timedelta(duration)
        if lasts is not None:
            _LASTING.check("duration", lasts)
        values = {
            "name": name,
            "override": None if numbers is None else json.dumps(check_numbers(numbers)),
            "seconds": None if lasts is None else lasts.total_seconds(),
            "by": _BY.cleaned("by", by),
            "reason": _REASON.cleaned("reason", reason),
        }
        run_joined(self.write_alias, _OVERRIDE, values)

    def pause(self, name: str, *, duration: Seconds, reason: str = "") -> bool:
        """Pause the limit for some time. Return whether it was not already paused for longer."""
        check_limiter_name(name)
        _LASTING.check("duration", lasts := as_timedelta(duration))
        values = {"name": name, "seconds": lasts.total_seconds(), "reason": _REASON.cleaned("reason", reason)}
        return bool(run_joined(self.write_alias, _PAUSE, values))

    def failed(self, name: str, breaker: Breaker, *, reason: str) -> bool:
        """Count a failure. Return whether it paused the limit."""
        check_limiter_name(name)
        values = {
            "name": name,
            "most": breaker.failures,
            "within": seconds_of(breaker.window),
            "seconds": seconds_of(breaker.pause_for),
            "reason": _REASON.cleaned("reason", reason),
        }
        return [is_open for (is_open,) in run_joined(self.write_alias, _FAILED, values)] == [True]

    def resume(self, name: str) -> bool:
        """Resume the limit. Return whether it was paused."""
        check_limiter_name(name)
        return bool(run_joined(self.write_alias, _RESUME, [name]))

    def _declare(self, statement: str, scope: str, limits: Mapping[str, Mapping[str, Any]]) -> list[str]:
        numbers = [json.dumps(dict(one), sort_keys=True) for one in limits.values()]
        return [name for (name,) in run_joined(self.write_alias, statement, [scope, list(limits), numbers])]

    def forget_full_buckets(self) -> list[str]:
        """Delete the buckets that would be full by now. Return their scopes."""
        return [scope for (scope,) in run_joined(self.write_alias, _FORGET_FULL, [])]
