"""Moving waiting jobs between shards: whatever step a process dies at, each job is in one place and runs once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connections
from django.test import override_settings
from django.utils import timezone

from pulse_django import Batch, Limit, Unique, api, task
from pulse_django.exceptions import JobIsMoving
from pulse_django.health.conditions import ask, named, repair
from pulse_django.metrics.minute_stats import counted_in
from pulse_django.metrics.vital_signs import JOBS_ENQUEUED
from pulse_django.models import Arrival, Attempt, Departure, IdempotencyKey, Job
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import Status
from pulse_django.shards import moving, placement, transfer
from pulse_django.shards.ids import TOKENS, position_of
from pulse_django.shards.moving import deliver, finish, movable, move
from pulse_django.testing import run_job
from testproject.shop import tasks
from tests.crash.processes import ROOT
from tests.crash.processes import environment as environment_of
from tests.crash.workers import Workers, wait_until
from tests.operations.steps import run
from tests.queue.steps import sql
from tests.shards.conftest import away
from tests.two_databases import SECOND, SHARDS, new_database
from tests.worker import handlers

pytestmark = pytest.mark.usefixtures("two_shards")


def all_in(alias: str) -> Any:
    return Job.objects.using(alias).order_by("id")


def ids_in(alias: str) -> list[int]:
    return list(all_in(alias).values_list("id", flat=True))


def move_all(source: str = "default", to: str = SECOND) -> moving.Moved:
    return move(all_in(source), to)


@task(unique=Unique())
def once(number: int) -> None: ...


@task(max_attempts=100, max_lost_workers=100)
def often() -> None: ...


@task(limit=Limit(max_running=5))
def limited() -> None: ...


class TestWhatMoves:
    def test_a_job_keeps_its_id_its_attempts_and_its_key(self) -> None:
        keyed = tasks.fail.using(idempotency_key="k", run_after=timedelta()).enqueue("no")
        assert run_job(keyed, failures="keep").status == Status.RETRYING
        before = all_in("default").values().get()
        attempts = list(Attempt.objects.filter(job=int(keyed.id)).values("id", "number", "outcome", "message"))
        assert len(move_all().moved) == 1
        assert all_in(SECOND).values().get() == before
        there = Attempt.objects.using(SECOND).filter(job=int(keyed.id))
        assert list(there.values("id", "number", "outcome", "message")) == attempts
        assert IdempotencyKey.objects.using(SECOND).get().job_id == int(keyed.id)
        assert not IdempotencyKey.objects.exists()
        assert not Attempt.objects.exists()
        assert tasks.fail.get_result(keyed.id).attempts == 1
        assert api.cancel(keyed.id).cancelled == {int(keyed.id)}

    def test_a_job_is_found_by_its_argument_there(self) -> None:
        job = Job.objects.create(task="t", search_terms=["order_id:17"])
        assert len(move_all().moved) == 1
        assert Job.objects.using(SECOND).found_by(["order_id:17"]).get().pk == job.pk

    def test_what_it_is_counted_by_keeps_a_job(self) -> None:
        parent = tasks.start_children.enqueue(1)
        [claim] = Job.objects.claim_these(Identity("me"), [int(parent.id)])
        child = Job.objects.create(task="t", parent_id=claim.job_id)
        batch = Batch.open("b")
        kept = {int(batch.add(tasks.add.prepare(1, 1)).id), int(limited.enqueue().id), child.pk}
        free = int(tasks.add.enqueue(1, 1).id)
        later = int(tasks.add.using(run_after=timedelta(hours=1)).enqueue(1, 1).id)
        assert set(movable(all_in("default")).values_list("id", flat=True)) == {free, later}
        assert len(move_all().moved) == 2
        assert set(ids_in("default")) == kept | {claim.job_id}

    def test_a_job_that_another_session_has_locked_stays(self) -> None:
        tasks.add.enqueue(1, 1)
        other = connections.create_connection("default")
        try:
            with other.cursor() as cursor:
                cursor.execute("BEGIN; SELECT * FROM pulse_django_job FOR UPDATE")
                assert len(move_all().moved) == 0
                cursor.execute("ROLLBACK")  # the server may see a closed connection later
        finally:
            other.close()
        assert len(move_all().moved) == 1

    def test_a_job_whose_key_is_held_there_goes_back(self) -> None:
        here, other = once.enqueue(1), once.enqueue(2)
        move(all_in("default").filter(pk=here.id), SECOND)
        twin = once.enqueue(1)
        assert move_all() == moving.Moved(moved=(int(other.id),), went_back=(int(twin.id),))
        assert ids_in("default") == [int(twin.id)]
        assert ids_in(SECOND) == [int(here.id), int(other.id)]
        assert not Departure.objects.exists()
        assert not Arrival.objects.using(SECOND).filter(forgotten_at=None).exists()

    def test_tokens_never_fall_over_ten_moves(self) -> None:
        result = often.enqueue()
        tokens, source, to = [], "default", SECOND
        for _ in range(10):
            for _ in range(3):
                [claim] = Job.objects.db_manager(source).claim_these(Identity("me"), [int(result.id)])
                tokens.append(claim.token)
                api.release(result.id)
            assert len(move_all(source, to).moved) == 1
            source, to = to, source
        assert tokens == sorted(set(tokens))
        assert position_of(SECOND, TOKENS) >= tokens[-1]


class Died(BaseException):
    """Stands for a process that is gone."""


STEPS = ["arrive", "forget_departures", "forget_arrivals"]


class TestWhoDies:
    @pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
    @pytest.mark.parametrize("step", STEPS)
    def test_at_any_step_the_move_is_finished_by_the_next(
        self, step: str, before: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ids = api.enqueue_many(tasks.add, [(number, 1) for number in range(20)])
        done: Callable[..., Any] = getattr(moving, step)

        def die(*args: Any) -> None:
            if not before:
                done(*args)
            raise Died

        monkeypatch.setattr(moving, step, die)
        with pytest.raises(Died):
            move_all()
        monkeypatch.undo()
        assert not set(ids_in("default")) & set(ids_in(SECOND)), "in the tables of one shard at most"
        finish("default")
        assert move_all() == moving.Moved()
        assert ids_in(SECOND) == ids
        assert not Departure.objects.exists()

    def test_who_comes_late_changes_nothing(self) -> None:
        """Two processes deliver the same departure, and the job has ended in between."""
        tasks.add.enqueue(1, 1)
        transfer.depart(Job.objects, all_in("default"), SHARDS[SECOND])
        until, sent = transfer.deadline(SECOND), transfer.departures("default")
        transfer.arrive(SECOND, sent, until)
        [job] = all_in(SECOND)
        assert run_job(job).status == Status.COMPLETED
        transfer.arrive(SECOND, sent, until)
        assert all_in(SECOND).get().status == Status.COMPLETED
        assert len(deliver("default", sent).moved) == 1
        assert all_in(SECOND).get().status == Status.COMPLETED

    def test_statement_that_comes_after_all_was_forgotten_writes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its sender is dead, and a network or a lock has held it."""
        tasks.add.enqueue(1, 1)
        transfer.depart(Job.objects, all_in("default"), SHARDS[SECOND])
        until, sent = transfer.deadline(SECOND), transfer.departures("default")
        assert len(deliver("default", sent).moved) == 1
        assert run_job(all_in(SECOND).get()).status == Status.COMPLETED
        assert transfer.arrive(SECOND, sent, until).there == {sent[0].departure_id}, "it is known for a time"
        arrivals = Arrival.objects.using(SECOND)
        arrivals.update(forgotten_at=timezone.now() - 2 * transfer.KEPT_FOR)
        transfer.forget_arrivals(SECOND, [])
        assert not arrivals.exists()
        monkeypatch.setattr(transfer, "GOOD_FOR", timedelta())
        assert transfer.arrive(SECOND, sent, transfer.deadline(SECOND)) == transfer.Arrived(set(), set(), set())
        assert all_in(SECOND).get().status == Status.COMPLETED

    def test_what_was_refused_never_arrives(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process dies before a refused job is back, and its key there is free again."""
        here = once.enqueue(1)
        move(all_in("default").filter(pk=here.id), SECOND)
        once.enqueue(1)

        def die(*_: Any) -> None:
            raise Died

        monkeypatch.setattr(moving, "go_back", die)
        with pytest.raises(Died):
            move_all()
        monkeypatch.undo()
        all_in(SECOND).delete()
        assert len(finish("default").went_back) == 1
        assert len(ids_in("default")) == 1
        assert ids_in(SECOND) == []

    def test_a_shard_that_is_away_keeps_them_on_their_way(self) -> None:
        tasks.add.enqueue(1, 1)
        with away(SECOND), pytest.raises(Exception, match="not currently accepting connections"):
            move_all()
        assert Departure.objects.count() == 1
        assert len(finish("default").moved) == 1
        assert len(ids_in(SECOND)) == 1


shards_command = partial(run, "pulse_shards")


class TestCommand:
    def test_status(self) -> None:
        tasks.add.using(database=SECOND).enqueue(1, 1)
        said = json.loads(shards_command("status", "--json"))["shards"]
        assert [(one["alias"], one["number"], one["waiting"]) for one in said] == [("default", 0, 0), (SECOND, 1, 1)]
        assert "s2" in shards_command()
        with away(SECOND), pytest.raises(CommandError, match="1 of 2 shards have a problem: s2"):
            shards_command("status")

    def test_move_shows_first_and_moves_then(self) -> None:
        api.enqueue_many(tasks.add.using(queue_name="mail"), [(1, 1)] * 3)
        tasks.add.enqueue(1, 1)
        args = ("move", "--from", "default", "--to", SECOND, "--queue", "mail")
        assert "Would move 3 to shard 's2'" in shards_command(*args)
        assert len(ids_in("default")) == 4
        assert "3 moved." in shards_command(*args, "--yes")
        assert (len(ids_in("default")), len(ids_in(SECOND))) == (1, 3)

    def test_a_range_of_keys_moves(self) -> None:
        shared = tasks.add.using(queue_name="shared")
        with override_settings(PULSE={"SHARDS": SHARDS, "FAIR_BY_QUEUE": {"shared": "a"}}):
            api.enqueue_many(shared, [(number, 1) for number in range(40)])
            said = shards_command("move", "--from", "default", "--to", SECOND, "--keys", "0000-7fff", "--yes")
        assert all(key[1] in "01234567" for key in all_in(SECOND).values_list("lane_key", flat=True))
        assert all(key[1] in "89abcdef" for key in all_in("default").values_list("lane_key", flat=True))
        assert 8 <= len(ids_in(SECOND)) <= 32, said

    def test_drain(self) -> None:
        api.enqueue_many(tasks.add, [(1, 1)] * 3, using=SECOND)
        batch = Batch.open("b", using=SECOND)
        batch.add(tasks.add.prepare(1, 1))
        args = ("drain", "--from", SECOND, "--to", "default", "--yes")
        with pytest.raises(CommandError, match="1 waiting, 0 running and 0 jobs that wait for others are left"):
            shards_command(*args)
        assert len(ids_in("default")) == 3
        run_job(all_in(SECOND).get())
        assert "Shard 's2' is empty" in shards_command(*args)
        with pytest.raises(CommandError, match="still gets new jobs: the router sends jobs without a shard there"):
            shards_command("drain", "--from", "default", "--to", SECOND)

    def test_add_can_be_repeated_and_raises_the_tokens(self) -> None:
        [claim] = Job.objects.claim_these(Identity("me"), [int(tasks.add.enqueue(1, 1).id)])
        assert "Shard 's2' is ready" in shards_command("add", "--shard", SECOND)
        assert position_of(SECOND, TOKENS) >= claim.token
        with pytest.raises(CommandError, match="'nowhere' is not in DATABASES"):
            shards_command("add", "--shard", "nowhere")


def test_a_minute_counts_its_own_jobs_beside_those_that_were_moved_here() -> None:
    """Their ids are higher than all others, and they are older."""
    api.enqueue_many(tasks.add, [(1, 1)] * 40, using=SECOND)
    with connections[SECOND].cursor() as cursor:
        cursor.execute("UPDATE pulse_django_job_hot SET created_at = created_at - interval '1 day'")
    move_all(SECOND, "default")
    api.enqueue_many(tasks.add, [(1, 1)] * 30, using="default")
    begin = Job.objects.latest("created_at").created_at - timedelta(seconds=50)
    tally = counted_in("default", begin).signs
    assert tally[JOBS_ENQUEUED.name] == {"default": 30}


def test_a_shard_is_added_while_another_has_no_tables() -> None:
    """SHARDS names all that will be there, and they are added one by one."""
    [claim] = Job.objects.claim_these(Identity("me"), [int(tasks.add.enqueue(1, 1).id)])
    with new_database("s3"), override_settings(PULSE={"SHARDS": {**SHARDS, "s3": 2}}):
        assert "Shard 's2' is ready" in shards_command("add", "--shard", SECOND)
        assert position_of(SECOND, TOKENS) >= claim.token
        assert "Shard 's3' is ready" in shards_command("add", "--shard", "s3")
        assert position_of("s3", TOKENS) >= claim.token


class TestOnItsWay:
    """Calls wait for a job that is being moved. If the move does not end, they fail, and a condition names the job."""

    @pytest.fixture
    def pauses(self, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
        """Do these, one after the other, instead of the pauses between looks."""
        todo: list[Callable[[], object]] = []

        def pause(_: float) -> None:
            if todo:
                todo.pop(0)()

        monkeypatch.setattr(placement, "time", SimpleNamespace(sleep=pause, monotonic=count().__next__))
        monkeypatch.setattr(placement, "LONGEST_WAIT", 5)
        return todo

    def test_calls_wait_until_it_arrives(self, pauses: list[Callable[[], object]]) -> None:
        job_id = int(tasks.add.enqueue(1, 1).id)
        transfer.depart(Job.objects, all_in("default"), SHARDS[SECOND])
        pauses += [int, lambda: finish("default")]
        assert api.get(job_id)._state.db == SECOND
        assert pauses == []

    @pytest.mark.usefixtures("pauses")
    def test_calls_fail_if_the_move_does_not_end(self) -> None:
        job_id = int(tasks.add.enqueue(1, 1).id)
        transfer.depart(Job.objects, all_in("default"), SHARDS[SECOND])
        for call in (api.get, api.cancel, api.retry):
            with pytest.raises(JobIsMoving, match=f"job {job_id} left one shard and did not arrive in another"):
                call(job_id)
        finish("default")
        assert api.get(job_id).pk == job_id

    def test_calls_do_not_wait_for_an_id_of_no_job(self, pauses: list[Callable[[], object]]) -> None:
        pauses.append(int)
        with pytest.raises(Job.DoesNotExist):
            api.get(1)
        assert api.cancel(1).refused == {1}
        assert pauses == [int]

    def test_the_condition_is_repaired(self) -> None:
        job_id = int(tasks.add.enqueue(1, 1).id)
        transfer.depart(Job.objects, all_in("default"), SHARDS[SECOND])
        condition = named("move-unfinished")
        assert not ask(condition, "default").subjects
        sql("UPDATE pulse_django_departure SET at = at - interval '5 min'")
        assert [one.key for one in ask(condition, "default").subjects] == [f"job {job_id}"]
        assert [step.repaired for step in repair(condition, "default")] == [1]
        assert ids_in(SECOND) == [job_id]
        assert not ask(condition, "default").subjects


KILLS = 10


def move_and_kill(source: str, to: str, arrivals: int, env: dict[str, str]) -> bool:
    """Start a mover, kill it after so many jobs have arrived, and return False if it ended before."""
    command = [sys.executable, "manage.py", "pulse_shards", "move", "--all", "--yes", "--batch", "20"]
    command += ["--from", source, "--to", to]
    enough = all_in(to).count() + arrivals
    mover = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: mover.poll() is not None or all_in(to).count() >= enough)
    is_alive = mover.poll() is None
    mover.kill()
    assert mover.wait() in (0, -signal.SIGKILL)
    return is_alive


def test_a_mover_that_is_killed_again_and_again_loses_nothing(workers: Workers, environment: dict[str, str]) -> None:
    """Waiting jobs are moved to and fro under live workers. PULSE_MOVED_JOBS says how many."""
    ids: set[int] = set()

    def enqueue_thousand() -> None:
        ids.update(api.enqueue_many(handlers.naps, [(0.005,)] * 1_000))

    for _ in range(int(os.environ.get("PULSE_MOVED_JOBS", "10000")) // 1_000):
        enqueue_thousand()
    workers.ready("--concurrency", "2", env=environment, settings={"POLL_INTERVAL": 0.5})
    kills = 0
    while kills < KILLS:
        waiting = {alias: movable(all_in(alias)).count() for alias in SHARDS}
        if max(waiting.values()) < 1_000:  # the workers are faster than the movers start
            enqueue_thousand()
        source = max(waiting, key=waiting.__getitem__)
        [to] = set(SHARDS) - {source}
        kills += move_and_kill(source, to, 20 + kills * 37 % 200, environment_of() | environment)
    for alias in SHARDS:
        finish(alias)

    def is_over() -> bool:
        return sum(Job.objects.using(alias).filter(status=Status.COMPLETED).count() for alias in SHARDS) == len(ids)

    wait_until(
        is_over,
        explain=lambda: [Counter(all_in(alias).values_list("status", flat=True)) for alias in SHARDS],
        patience=300,
    )
    found = Counter(job_id for alias in SHARDS for job_id in ids_in(alias))
    assert found.keys() == ids, "none is lost"
    assert set(found.values()) == {1}, "none is there twice"
    # On a slow machine a lease may run out, and a child may hand back what it did not begin. Nothing else begins again.
    runs = Counter(run for alias in SHARDS for run in Attempt.objects.using(alias).values_list("job_id", "outcome"))
    assert {job_id for job_id, outcome in runs if outcome == OutcomeName.SUCCEEDED} == ids
    again = {run: often for run, often in runs.items() if often > 1 or run[1] != OutcomeName.SUCCEEDED}
    assert {outcome for _, outcome in again} <= {OutcomeName.WORKER_LOST, OutcomeName.RELEASED}, again
    attempts = sum(sum(all_in(alias).values_list("attempts", flat=True)) for alias in SHARDS)
    assert attempts == runs.total(), f"a run is not in the ledger; these began again: {again}"
    located = {where.alias: set(where.ids) for where in placement.located_by_shard(ids)}
    assert located == {alias: set(ids_in(alias)) for alias in located}, "each is found by its id"
    assert all(api.get(job_id).pk == job_id for job_id in list(ids)[:200])
