"""Every statement of ours has a shape that Citus sends to its node as it is, or is named as an exception."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.faults import each_of
from tests.security import drive, shapes
from tests.security.shape_exceptions import EXCEPTIONS, is_excepted
from tests.security.shapes import Finding, findings

_OURS = re.compile(r"\bpulse_django_\w+")
# A claim is sent so to plain servers alone: Citus has a text of its own for it.
_ONLY_PLAIN = "ARRAY(SELECT id FROM fitting"


@pytest.fixture(scope="module")
def found(django_db_setup: None, django_db_blocker: Any) -> dict[Finding, str]:
    """What is found in all statements that the drive sends, and one of the statements in which it is."""
    with django_db_blocker.unblock(), drive.recording() as statements:
        drive.drive(*drive.EVERYTHING)
    ours = {spelt: text for spelt, text in statements.items() if _OURS.search(text)}
    assert len(ours) > 300, "what was not sent was not looked at"
    for_both = {spelt: text for spelt, text in ours.items() if _ONLY_PLAIN not in spelt}
    assert len(for_both) < len(ours), "what is left out is sent"
    return {finding: text for spelt, text in for_both.items() for finding in findings(spelt)}


def test_every_statement_has_a_shape_that_is_pushed_down(found: dict[Finding, str]) -> None:
    wrong = {finding: text for finding, text in found.items() if not is_excepted(finding)}
    assert not wrong, "\n\n".join(f"{finding}\n  by {text}" for finding, text in wrong.items())


def test_every_exception_is_needed(found: dict[Finding, str]) -> None:
    excepted = {(rule, what) for rule, reasons in EXCEPTIONS.items() for what in reasons}
    assert not excepted - {(finding.rule, finding.what) for finding in found}, (
        "no statement does this any more: delete it"
    )


LOCKED = "WITH locked AS MATERIALIZED (SELECT id, a, n FROM t WHERE id = 1 FOR NO KEY UPDATE)"

# Of each rule: what it finds, and what does the same and is allowed.
PLANTED = [
    ("set", "UPDATE t SET at = clock_timestamp()",
     f"{LOCKED}, now AS (SELECT id, clock_timestamp() AS at FROM locked), "
     "w AS (UPDATE t SET at = now.at FROM now) SELECT 1"),
    ("set", "UPDATE t SET token = nextval('s')",
     f"{LOCKED}, next AS (SELECT id, nextval('s') AS token FROM locked), "
     "w AS (UPDATE t SET token = next.token FROM next) SELECT 1"),
    ("set", "UPDATE t SET lottery = random(), key = gen_random_uuid()", "UPDATE t SET lottery = 0.5, key = NULL"),
    ("set", "UPDATE t SET until = started_at + ttl", "UPDATE t SET until = now.until FROM now"),
    ("set", "UPDATE t SET until = started_at + interval '1 s'", "UPDATE t SET n = n + 1, m = t.m - 1"),
    ("set", "UPDATE t SET at = to_timestamp(seconds)", "UPDATE t SET at = '2026-01-01'::timestamptz"),
    ("set", "UPDATE t SET day = date_part('day', at)", "UPDATE t SET day = said.day FROM said"),
    ("set", "UPDATE t SET day = at::date", "UPDATE t SET day = $1::date"),
    ("set", "UPDATE t SET at = CASE WHEN a THEN clock_timestamp() END", "UPDATE t SET at = CASE WHEN a THEN b.at END"),
    ("set", "UPDATE t SET at = COALESCE(at, now())", "UPDATE t SET at = COALESCE(t.at, now.at), b = GREATEST(b, 1)"),
    ("set", "UPDATE t SET n = (SELECT max(n) FROM u)", "UPDATE t SET n = highest.n FROM highest"),
    ("set", "UPDATE t SET at = current_timestamp", "UPDATE t SET at = DEFAULT"),
    ("set", "UPDATE t SET a = a || 'more'", "UPDATE t SET a = a || '{}'::jsonb"),
    ("set", "UPDATE t SET (a, at) = (1, clock_timestamp())", "UPDATE t SET a = 1, is_b = a IS NOT NULL AND b <> 2"),
    ("set", "WITH w AS (UPDATE t SET at = clock_timestamp() RETURNING id) SELECT id FROM w",
     "WITH w AS (UPDATE t SET at = c.at FROM c RETURNING t.id) SELECT id FROM w"),
    ("on conflict", "INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET at = clock_timestamp()",
     "INSERT INTO t VALUES (clock_timestamp()) ON CONFLICT (id) DO UPDATE SET at = excluded.at"),
    ("on conflict", "INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET until = t.at + interval '1 s'",
     "INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE "
     "SET until = (t.at AT TIME ZONE 'UTC' + 2 * interval '1 s') AT TIME ZONE 'UTC'"),
    ("on conflict", "INSERT INTO t AS t VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 1 WHERE t.at < now()",
     "INSERT INTO t AS t VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 1 WHERE t.at < excluded.at"),
    ("returning", "UPDATE t SET a = 1 RETURNING extract(epoch FROM at)",
     "WITH w AS (UPDATE t SET a = 1 RETURNING at) SELECT extract(epoch FROM at) FROM w"),
    ("returning", "DELETE FROM t RETURNING clock_timestamp()", "DELETE FROM t RETURNING t.*, at IS NULL, a = 1"),
    ("returning", "INSERT INTO t VALUES (1) RETURNING a::text", "INSERT INTO t VALUES (clock_timestamp()) RETURNING a"),
    ("where", "UPDATE t SET a = 1 WHERE at < clock_timestamp()", "UPDATE t SET a = 1 WHERE at < statement_timestamp()"),
    ("where", "DELETE FROM t WHERE until < statement_timestamp() - ttl",
     "DELETE FROM t WHERE until < statement_timestamp() - interval '1 s'"),
    ("where", "UPDATE t SET a = 1 WHERE COALESCE(at, now()) < b_at", "UPDATE t SET a = 1 WHERE COALESCE(n, 1) < 2"),
    ("where", "UPDATE t SET a = 1 WHERE at::date = '2026-01-01'", "UPDATE t SET a = 1 WHERE name::text = 'a'"),
    ("where", "DELETE FROM t WHERE id = ANY (ARRAY(SELECT id FROM u WHERE random() < 0.5))",
     "DELETE FROM t WHERE id = ANY (ARRAY(SELECT id FROM u LIMIT 5))"),
    ("lock", "SELECT id, clock_timestamp() FROM t FOR UPDATE",
     f"{LOCKED} SELECT id, clock_timestamp() FROM locked"),
    ("lock", "WITH a AS (SELECT id, nextval('s') FROM t FOR SHARE) SELECT id FROM a",
     "SELECT id, clock_timestamp() FROM t FOR UPDATE SKIP LOCKED"),
    ("row", "WITH a AS (SELECT 1 AS id) DELETE FROM t USING a WHERE t.id = a.id RETURNING t.id, a AS source",
     "WITH a AS (SELECT 1 AS id) DELETE FROM t USING a WHERE t.id = a.id RETURNING t.id, a.id AS source_id"),
    ("writes", "WITH w AS (INSERT INTO a VALUES (1) RETURNING id) UPDATE b SET a = w.id FROM w",
     "WITH w AS (SELECT id FROM a) UPDATE b SET a = w.id FROM w"),
    ("writes", "WITH v AS (DELETE FROM a), w AS (DELETE FROM b) SELECT 1", "WITH v AS (DELETE FROM a) SELECT 1"),
    ("writes", "WITH w AS (INSERT INTO a VALUES (1) RETURNING id) SELECT id FROM w",
     "INSERT INTO a VALUES (1) RETURNING id"),
    ("top", f"{LOCKED}, now AS (SELECT id, clock_timestamp() AS at FROM locked) UPDATE t SET at = now.at FROM now",
     f"{LOCKED}, now AS (SELECT id, clock_timestamp() AS at FROM locked), "
     "w AS (UPDATE t SET at = now.at FROM now RETURNING t.id) SELECT id FROM w"),
    ("top", "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT n + 1 FROM r) DELETE FROM t USING r WHERE t.id = r.n",
     "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT n + 1 FROM r), "
     "w AS (DELETE FROM t USING r WHERE t.id = r.n RETURNING t.id) SELECT id FROM w"),
    ("no columns", "SELECT EXISTS (SELECT FROM t)", "SELECT EXISTS (SELECT 1 FROM t)"),
    ("catalogue", "SELECT reltuples, (SELECT count(*) FROM pulse_django_job) FROM pg_class",
     "SELECT reltuples FROM pg_class WHERE oid = 'pulse_django_job'::regclass"),
]  # fmt: skip


@each_of(*PLANTED)
def test_a_shape_that_is_refused_is_found_and_its_twin_is_not(*, rule: Any, refused: Any, allowed: Any) -> None:
    assert {finding.rule for finding in findings(refused)} == {rule}
    assert all(str(finding).endswith(".") for finding in findings(refused))
    assert findings(allowed) == []


def test_every_rule_is_planted() -> None:
    assert {rule for rule, *_ in PLANTED} == shapes.SENTENCES.keys()


def test_each_statement_of_a_message_is_looked_at() -> None:
    message = "BEGIN; SET LOCAL jit = off; SELECT 1; UPDATE t SET at = clock_timestamp(); COMMIT"
    assert [finding.what for finding in findings(message)] == ["at by clock_timestamp()"]
