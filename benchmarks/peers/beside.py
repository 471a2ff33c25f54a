"""How fast everybody drains beside finished jobs of their own: some are run, and a row copied until there are many."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.peers.contender import Contender, MeasureFailed
from benchmarks.peers.measures import FEWEST, LONGEST_START, Figures, wait_for_calls, wait_for_end
from benchmarks.peers.peer import task_of
from benchmarks.peers.stores import Database

POINTS = (10_000, 100_000, 1_000_000, 5_000_000)
_COLUMNS = """
SELECT
    a.attname,
    a.attidentity <> '' OR a.attgenerated <> '' OR COALESCE(pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval%%', false),
    EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey)),
    a.atttypid::regtype::text
FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
# A primary key without a default is an identifier that its client makes.
NEW_KEYS = {"uuid": "gen_random_uuid()", "character varying": "md5(random()::text || n::text)"}
Keep = Callable[[str, Figures], None]


def drain_beside(who: Contender, jobs: int, most: int, limit: float, keep: Keep) -> None:
    """Drain beside more and more finished jobs, and hand over each rate as soon as it is known."""
    if who.peer.finished is None:
        raise MeasureFailed("its finished jobs are not rows of one table")
    table, condition = who.peer.finished
    who.reset()
    drain_once(who, FEWEST, 0, limit)  # there is something to copy, and everything has run once
    finished = FEWEST
    for point in (FEWEST, *(point for point in POINTS if point <= most)):
        if point > finished:
            finished += copy_rows(who, table, condition, point - finished)
        rate = drain_once(who, jobs, finished, limit)
        keep(f"finished rows: {point:,}", {"jobs_per_s": rate, "jobs": float(jobs)})
        finished += jobs


def copy_rows(who: Contender, table: str, condition: str, count: int) -> int:
    """Add so many finished jobs, each a copy of one that was run."""
    assert isinstance(who.store, Database)
    session = who.store.session
    names, expressions = [], []
    for name, has_default, is_key, kind in session.execute(_COLUMNS, [table]).fetchall():
        if not has_default:
            names.append(f'"{name}"')
            expressions.append(NEW_KEYS.get(kind, f'"{name}"') if is_key else f'"{name}"')
    copied = (
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(expressions)}"
        f" FROM (SELECT * FROM {table} WHERE {condition} LIMIT 1) AS done, generate_series(1, {count}) AS n"
    )
    with session.transaction():  # neither triggers nor the checks of foreign keys: it is to be there, no more
        session.execute("SET LOCAL session_replication_role = replica")
        return session.execute(copied.encode()).rowcount


def drain_once(who: Contender, jobs: int, finished: int, limit: float) -> float:
    mode = who.peer.main_mode
    who.forget()
    who.enqueue(jobs, "fill", task_of(mode))
    who.store.settle_down()
    with who.workers(mode) as workers:
        wait_for_calls(who, workers, 1, LONGEST_START)
        wait_for_calls(who, workers, jobs, limit)
        ended = wait_for_end(who, jobs + finished)
        called, first, _ = who.calls()
    left, done = who.counts()
    if called != jobs or left or done != jobs + finished:
        raise MeasureFailed(f"{jobs} jobs, {called} calls, {left} left, {done} done beside {finished}: no figure")
    return jobs / ((ended - first) / 1e9)
