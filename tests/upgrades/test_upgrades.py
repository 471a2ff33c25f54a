"""Upgrades of a live queue: the newest schema comes, from any earlier state, while workers of the older code run."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from testproject.harness.processes import StartedWorker
from tests.crash.processes import database_url
from tests.crash.workers import wait_until
from tests.upgrades.history import Earlier, earlier_states, migrations_in
from tests.upgrades.locks import watched_locks
from tests.upgrades.scene import LONG, Scene, scratch_database

LONGEST_LOCK = LONGEST_WAIT = 1.0  # seconds
AFTER = 20  # jobs: so many of those that came after the migration have to be completed by older workers
PATIENCE = 60.0

logger = logging.getLogger(__name__)


def chosen(states: Sequence[Earlier]) -> Sequence[Earlier]:
    """Choose as many states as PULSE_UPGRADES says, from the oldest, which meets all migrations, to the newest."""
    many = int(os.environ.get("PULSE_UPGRADES", len(states)))
    if many >= len(states):
        return states
    assert many > 1, "the oldest and the newest"
    return [states[round(place * (len(states) - 1) / (many - 1))] for place in range(many)]


def parameters(states: Sequence[Earlier | None]) -> list[Any]:
    return [pytest.param(one, id=one.state if one else "present") for one in states]


def in_state(number: str) -> list[Any]:
    """Return the parameter of the earlier state whose last migration has this number, however few states are chosen."""
    return parameters([one for one in earlier_states() if one.state.startswith(number)])


# From each earlier state; while there is none, from the present one to a migration that a test adds.
EARLIER: list[Earlier | None] = [*chosen(earlier_states())] or [None]
EACH = parameters(EARLIER)

_UNFINISHED = "SELECT count(*) FROM pulse_django_job WHERE finished_at IS NULL"
# Of a completed job the ledger holds one success, all attempts, and nothing else but that it was handed back.
_ODD = """
SELECT job.id, array_agg(attempt.outcome ORDER BY attempt.number)
FROM pulse_django_job AS job LEFT JOIN pulse_django_ledger AS attempt ON attempt.job_id = job.id
WHERE job.status = 'COMPLETED'
GROUP BY job.id, job.attempts
HAVING count(*) FILTER (WHERE attempt.outcome = 'SUCCEEDED') <> 1 OR count(attempt.id) <> job.attempts
    OR count(*) FILTER (WHERE attempt.outcome NOT IN ('SUCCEEDED', 'RELEASED')) > 0
"""
_SCHEDULED = """SELECT count(*) FROM pulse_django_job WHERE args = '["tick"]'"""
# Code that knows one table looks for its indexes there, and for all attempts in their table. And a watchdog waits for a
# lock for less time than a migration may hold it.
_OF_OLDER_CODE = re.compile(
    r"Alert (schema-incomplete|attempt-missing)|watchdog: busy \(55P03\)|watchdog: .* responding again"
)
# What makes a log line of a worker's a complaint. The oldest one does not write levels.
_COMPLAINT = re.compile(r" (WARNING|ERROR|CRITICAL) |^Traceback|did not answer")


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """A database in the state of the test's parameter, with nobody at work yet."""
    earlier: Earlier | None = request.param
    if earlier is not None and earlier.code is None:
        pytest.skip("there is no git history here that holds older code")
    with scratch_database() as url:
        scene = Scene(url, tmp_path, earlier)
        try:
            scene.set_up()
            yield scene
        finally:
            scene.end()


@pytest.mark.parametrize("scene", EACH, indirect=True)
def test_a_live_queue_is_upgraded_without_losing_or_repeating_a_job(scene: Scene) -> None:
    """Older workers run on before, during and after; newer ones come beside them; in the end all is done, once."""
    scene.fill()
    scene.start_enqueuer()
    if scene.has_schedules:
        scene.start_schedule()
    older = start_older_workers(scene)
    [(long,)] = scene.ask(
        "INSERT INTO pulse_django_job (task, args, priority) VALUES (%s, '[3]', 10) RETURNING id", LONG
    )
    wait_until(lambda: scene.is_true("status = 'RUNNING' FROM pulse_django_job WHERE id = %s", long), logs(older))

    before = len(scene.enqueued())
    with watched_locks(scene.url) as watch:
        said = scene.migrate()
    during = len(scene.enqueued())
    assert len(re.findall(r"Applying pulse_django\.\S+ OK", said)) == len(migrations_after(scene))
    assert scene.state() == migrations_in(scene.new)[-1]

    newest = max(scene.enqueued())
    wait_until(lambda: goes_on(scene, newest), logs(older), PATIENCE)
    assert scene.refusals() == []
    newer = scene.start_worker(scene.new, "new").wait_until_ready()
    wait_until(lambda: have_completed(scene, "new:", 0, AFTER), logs([newer]), PATIENCE)
    stop(*older)
    scene.stop_enqueuer()
    if scene.has_schedules:
        wait_until(lambda: has_fired_since(scene, newest), logs([newer]), PATIENCE)
        scene.pause_schedule()
    wait_until(lambda: scene.ask(_UNFINISHED) == [(0,)], logs([newer]), PATIENCE)
    stop(newer)

    waits = [seconds for _, seconds in scene.enqueued().values()][before : during + 1]  # one may have been on its way
    longest = max(watch.at_most.values(), default=0.0)
    logger.info(
        "%s: %d enqueued meanwhile, longest wait %.3f s; %d looks, %.3f s apart, longest lock at most %.3f s: %s",
        *(scene.earlier_state, len(waits), max(waits), watch.looks, watch.longest_gap, longest, watch.at_most),
    )
    assert_nothing_is_lost_or_repeated(scene)
    if scene.has_schedules:
        assert_each_tick_fired_once(scene)
    assert watch.looks > 10
    assert watch.longer_than(LONGEST_LOCK) == {}
    assert max(waits) < LONGEST_WAIT
    assert complaints(newer) == []
    assert [line for line in complaints(*older) if not _OF_OLDER_CODE.search(line)] == []


@pytest.mark.parametrize("scene", EACH[:1], indirect=True)
def test_with_a_lock_timeout_a_migration_gives_up_instead_of_keeping_the_queue_waiting(scene: Scene) -> None:
    """Somebody's transaction that enqueued, and stays open, is in the way of a migration; and nobody else in its."""
    scene.fill(finished=0, waiting=0)
    scene.start_enqueuer()
    with psycopg.connect(scene.url) as rival:
        rival.execute("INSERT INTO pulse_django_job (task, args) VALUES (%s, '[1]')", [LONG])
        gave_up = scene.try_to_manage(scene.new, "migrate", PGOPTIONS="-c lock_timeout=500ms")
        assert gave_up.returncode != 0
        assert "lock timeout" in gave_up.stderr
        count = len(scene.enqueued())
        wait_until(lambda: len(scene.enqueued()) > count + AFTER, lambda: scene.refusals())
        rival.commit()
    scene.manage(scene.new, "migrate", PGOPTIONS="-c lock_timeout=500ms")
    scene.stop_enqueuer()
    assert scene.state() == migrations_in(scene.new)[-1]
    assert scene.refusals() == []
    assert max(seconds for _, seconds in scene.enqueued().values()) < LONGEST_WAIT


def test_the_watch_sees_a_lock_and_how_long_it_is_held(django_db_setup: None) -> None:
    """Or the other tests would pass whatever a migration locks."""
    with psycopg.connect(database_url()) as holder, watched_locks(database_url()) as watch:
        holder.execute("LOCK TABLE pulse_django_queue IN ACCESS EXCLUSIVE MODE")
        seen = watch.looks
        wait_until(lambda: watch.looks > seen + 10, lambda: watch.looks)
        holder.rollback()
        pid = holder.info.backend_pid
    [holding] = [holding for holding in watch.at_most if holding.pid == pid]
    assert (holding.relation, holding.mode) == ("pulse_django_queue", "AccessExclusiveLock")
    assert holding in watch.longer_than(0.15)
    assert holding not in watch.longer_than(watch.at_most[holding])


# What these stories are made of


def start_older_workers(scene: Scene) -> list[StartedWorker]:
    older = [scene.start_worker(scene.old, f"old-{number}") for number in (1, 2)]
    wait_until(lambda: all(have_completed(scene, f"old-{number}:", 0, 3) for number in (1, 2)), logs(older), PATIENCE)
    return older


def goes_on(scene: Scene, newest: int) -> bool:
    """Whether older workers completed younger jobs than that one; or there will be none, because enqueueing failed."""
    return bool(scene.refusals()) or have_completed(scene, "old-", newest, AFTER)


def have_completed(scene: Scene, worker: str, after: int, count: int) -> bool:
    """Whether workers of such a name completed that many jobs that are younger than that one."""
    [(view,)] = scene.ask("SELECT to_regclass('pulse_django_ledger')::text")
    return scene.is_true(
        f"count(*) >= %s FROM {view or 'pulse_django_attempt'}"
        " WHERE starts_with(worker, %s) AND job_id > %s AND outcome = 'SUCCEEDED'",
        *(count, worker, after),
    )


def stop(*workers: StartedWorker) -> None:
    for worker in workers:
        worker.signal(signal.SIGTERM)
    for worker in workers:
        assert worker.wait(PATIENCE) == 0, worker.log


def assert_nothing_is_lost_or_repeated(scene: Scene) -> None:
    assert scene.refusals() == []
    completed = {pk for (pk,) in scene.ask("SELECT id FROM pulse_django_job WHERE status = 'COMPLETED'")}
    assert scene.enqueued().keys() - completed == set()
    assert scene.ask(_UNFINISHED) == [(0,)]
    assert scene.ask(_ODD) == []
    # The handlers' own witness: every run of one wrote a row.
    numbers = [number for (number,) in scene.ask("SELECT order_number FROM shop_invoice")]
    assert {number for number, _ in scene.enqueued().values()} <= set(numbers)
    assert len(numbers) == len(set(numbers))
    scene.manage(scene.new, "pulse_watchdog", "--check")


def has_fired_since(scene: Scene, job_id: int) -> bool:
    return scene.is_true("count(*) >= 3 FROM pulse_django_tick WHERE job_id > %s", job_id)


def assert_each_tick_fired_once(scene: Scene) -> None:
    """No second is left out from the first tick to the last, and each has a job of its own."""
    [(ticks, seconds, jobs, completed)] = scene.ask(
        "SELECT count(*), EXTRACT(epoch FROM max(tick.at) - min(tick.at))::int + 1, count(DISTINCT job.id),"
        " count(*) FILTER (WHERE job.status = 'COMPLETED')"
        " FROM pulse_django_tick AS tick LEFT JOIN pulse_django_job AS job ON job.id = tick.job_id"
        " WHERE tick.outcome = 'FIRED'"
    )
    assert ticks == seconds == jobs == completed
    assert scene.ask(_SCHEDULED) == [(ticks,)]


def complaints(*workers: StartedWorker) -> list[str]:
    return [line for worker in workers for line in worker.log.splitlines() if _COMPLAINT.search(line)]


def logs(workers: list[StartedWorker]) -> Callable[[], str]:
    return lambda: "\n".join(worker.log[-3000:] for worker in workers)


def migrations_after(scene: Scene) -> list[str]:
    return [name for name in migrations_in(scene.new) if name > scene.earlier_state]
