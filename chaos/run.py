"""``python -m chaos.run``: one run, one seed, one verdict.

Exits with 0 if nothing was broken, 1 if something was, 3 if nothing happened that could have broken anything.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

from tests import citus
from tests.cluster import Cluster

WORKERS = 4
TORMENTORS = 2  # each has workers of its own; the first one torments the server as well
BETWEEN = (0.3, 1.2)  # seconds between two nemeses
QUIET = 90.0  # seconds that a run may take to come to rest
MOST_AT_ONCE = 40  # jobs, so that claims and reports of many at a time are tormented as well
LATE, LATE_AT_ONCE = 1.0, 2  # seconds from the enqueue to the commit, and so many transactions at a time
LONG_OVER = datetime(2020, 1, 1, tzinfo=UTC)  # of jobs that have expired when they are enqueued
CALLERS, KEYS, ROLLED_BACK = 3, "ab", 0.3  # of unique jobs
MOST_STORIES = 3  # of jobs with which something was wrong
SLACK = timedelta(seconds=3)  # a tick, and what a busy machine of two processors may add
GRACE = timedelta(seconds=5)  # a lease, a tick, and that slack


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="decides the order of what happens")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nemesis", action="append", default=[], help="only these, by name")
    parser.add_argument("--mutant", default="", help="a bug to plant in the workers: the run must find it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    if citus.is_on_citus():
        return play_on_citus(options)
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # a server that root starts runs as somebody else
        cluster = Cluster(Path(folder))
        try:
            cluster.start()
            os.environ["DATABASE_URL"] = cluster.primary.url
            return play(cluster, Path(folder), options)
        finally:
            cluster.end()


def play(cluster: Cluster | citus.Cluster, folder: Path, options: argparse.Namespace) -> int:
    import django

    django.setup()
    from django.core.management import call_command

    if not citus.is_on_citus():  # where it has been done
        call_command("migrate", verbosity=0)
    from chaos import stage, witness

    witness.install()
    if options.mutant:
        from django.db import connection

        from chaos.mutants import MUTANTS

        mutant = MUTANTS[options.mutant]
        options.nemesis = options.nemesis or list(mutant.nemeses)
        if mutant.in_callers:
            mutant.plant()
        if mutant.schema:
            with connection.cursor() as cursor:
                cursor.execute(mutant.schema)
    return Run(stage.Database(cluster), folder, options).verdict()


def play_on_citus(options: argparse.Namespace) -> int:
    """Play in a schema of the cluster that DATABASE_URL leads to, whose servers are not stopped."""
    import django

    django.setup()
    from django.db import connection

    from tests.crash.processes import database_url

    connection.settings_dict["OPTIONS"]["options"] = citus.options()
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder, citus.distributed_schema():
        return play(citus.Cluster(database_url()), Path(folder), options)


class Run:
    def __init__(self, database: Any, folder: Path, options: argparse.Namespace) -> None:
        from chaos import clock, stage

        self.options, self.folder, self.database = options, folder, database
        jumping = clock.compile_into(folder)
        self.workers = [stage.Worker(f"w{number}", folder, options.mutant, jumping) for number in range(WORKERS)]
        self.acknowledged: set[int] = set()
        self.acknowledged_late: list[int] = []  # other threads add to it
        self.faults: list[Any] = []
        self.unanswered: dict[str, list[Any]] = {}
        self.happened: Counter[str] = Counter()
        self.amended: Counter[str] = Counter()  # answers to calls of amend
        self.epoch = database.now() - timedelta(seconds=time.monotonic())

    def verdict(self) -> int:
        from chaos import checker, stage, witness

        say(f"seed {self.options.seed}, {self.options.seconds:g} s, {WORKERS} workers, leases of {stage.TTL:g} s")
        try:
            for worker in self.workers:
                worker.start()
            self._torment()
            is_quiet = self._rest()
        finally:
            for worker in self.workers:
                worker.end()
        self.unanswered = stage.unanswered_claims(self.folder, self.workers)
        found = checker.judge(
            checker.History(
                acknowledged=frozenset(self.acknowledged),
                changes=witness.changes(),
                ledger=witness.ledger(),
                executions=stage.executions(self.folder),
                faults=self.faults,
                slack=SLACK,
                grace=GRACE,
                epoch=self.epoch,
                deadlocks=self.database.deadlocks(),
                unanswered=self.unanswered,
                wishes=witness.wishes(),
            )
        )
        code = self._tell(found, is_quiet)
        for job in sorted({one.job for one in found.violations})[:MOST_STORIES]:
            self._tell_story(job)
        return self._tell_mutant(found) if self.options.mutant else code

    def _tell_story(self, job: int) -> None:
        """All that is known of a job with which something was wrong."""
        from chaos import stage, witness

        say(f"The story of job {job}:")
        for one in witness.changes():
            if one.job == job and (row := one.after) is not None:
                held = f", {row.locked_by} until {row.lease_until}" if row.locked_by else ""
                say(f"  {one.at} {one.by or 'somebody'}: {row.status}, attempt {row.attempts}{held}; {row.last_error}")
        for execution in stage.executions(self.folder):
            if execution.job == job:
                begin = self.epoch + timedelta(seconds=execution.began_at)
                say(f"  {begin} {execution.holder} began attempt {execution.attempt}; ended: {execution.ended or '?'}")
        for log in sorted(self.folder.glob("w*-*.log")):
            for line in log.read_text(errors="replace").splitlines():
                if f"job {job} " in line:
                    say(f"  {log.stem}: {line}")

    def _tell_mutant(self, found: Any) -> int:
        """A mutant has to be found, by a rule that fits it."""
        from chaos.mutants import MUTANTS

        wanted = MUTANTS[self.options.mutant].breaks
        hits = sorted({one.rule for one in found.violations} & set(wanted))
        say(f"MUTANT {self.options.mutant}: {'found: ' + ', '.join(hits) if hits else 'NOT FOUND'}")
        return 0 if hits else 1

    def _torment(self) -> None:
        """Enqueue without pause, and let one thing after the other go wrong."""
        over = threading.Event()
        load = threading.Thread(target=self._load, args=(over,), daemon=True)
        load.start()
        for worker in self.workers:
            worker.process.wait_until_ready()
        until = time.monotonic() + self.options.seconds
        with ThreadPoolExecutor(TORMENTORS) as tormentors:
            for tormented in [tormentors.submit(self._go_on, number, until) for number in range(TORMENTORS)]:
                tormented.result()
        over.set()
        load.join(20)

    def _go_on(self, number: int, until: float) -> None:
        """One tormentor: goes through all that can happen, in an order of its own, again and again."""
        from chaos import nemeses

        wait = nemeses.waiting(until)
        chance = random.Random(self.options.seed * TORMENTORS + number)
        workers = self.workers[number::TORMENTORS]
        plan = nemeses.schedule(chance, tuple(self.options.nemesis))
        if number > 0:
            plan = [one for one in plan if not one.is_for_all]
        while plan and time.monotonic() < until:
            for nemesis in plan:
                if time.monotonic() >= until:
                    break
                for worker in workers:
                    worker.supervise()
                self._strike(nemesis, chance.choice(workers), wait)
                wait(chance.uniform(*BETWEEN))

    def _strike(self, nemesis: Any, worker: Any, wait: Any) -> None:
        from chaos.checker import Window

        if not nemesis.can_be(worker):
            self.happened[f"{nemesis.name} (NOT: this machine has no C compiler)"] += 1
            return
        if nemesis.controls_server and citus.is_on_citus():
            self.happened[f"{nemesis.name} (NOT: the cluster is not this run's to stop)"] += 1
            return
        label, struck = ("", {""}) if nemesis.is_for_all else (worker.label, worker.labels)
        begin = self.database.now()
        nemesis.act(worker, self.database, wait)
        self.happened[nemesis.name] += 1
        if not nemesis.excuses:
            return
        end = self.database.now()
        if label:  # a new one may have been started, which comes up while the old one's jobs are lost
            struck |= worker.labels
        self.faults += [
            Window(begin=begin, end=end, worker=one, stops=nemesis.stops and one == label) for one in sorted(struck)
        ]

    def _load(self, over: threading.Event) -> None:
        """Enqueue in transactions of one's own; only what was answered counts as acknowledged.

        Now and then somebody cancels a job, whatever it is doing, or revives those that died.
        """
        from django.db import connection

        from chaos import handlers
        from pulse_django import enqueue_many
        from pulse_django.models import Job

        chance = random.Random(self.options.seed + 1)
        kinds = [
            lambda: handlers.quick.enqueue(),
            lambda: handlers.quick.enqueue(),
            *[lambda: handlers.slow.enqueue(chance.uniform(0.1, 6.0))] * 2,
            *[lambda: handlers.steps.enqueue(chance.randrange(3, 30), 0.2)] * 2,
            lambda: handlers.quick.using(expires=LONG_OVER).enqueue(),
            lambda: handlers.failing.enqueue(chance.randrange(0, 4)),
            lambda: handlers.poison.enqueue() if chance.random() < 0.1 else handlers.quick.enqueue(),
        ]
        late = ThreadPoolExecutor(LATE_AT_ONCE)
        callers = ThreadPoolExecutor(CALLERS + 1)
        callers.submit(self._amend, over, random.Random(self.options.seed + 2))
        for number in range(CALLERS):
            callers.submit(self._wish, over, random.Random(self.options.seed * CALLERS + number))
        while not over.wait(0.08):
            if chance.random() < 0.1:
                late.submit(self._enqueue_late)
            try:
                self.acknowledged.add(int(chance.choice(kinds)().id))
                if chance.random() < 0.2:
                    self.acknowledged.update(enqueue_many(handlers.quick, [()] * MOST_AT_ONCE))
                if chance.random() < 0.05:
                    Job.objects.request_cancel([max(self.acknowledged) - chance.randrange(5)])
                if chance.random() < 0.02:
                    Job.objects.retry(list(Job.objects.filter(status="DEAD_LETTERED").values_list("pk", flat=True)))
            except Exception:
                with suppress(Exception):
                    connection.close()  # the database is away: nothing was acknowledged
        late.shutdown()
        callers.shutdown()
        self.acknowledged.update(self.acknowledged_late)

    def _wish(self, over: threading.Event, chance: random.Random) -> None:
        """Enqueue unique jobs beside others who do, in transactions that take their time or are rolled back."""
        from django.db import connection, transaction

        from chaos import handlers

        while not over.wait(0.05):
            key = chance.choice(KEYS)
            try:
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute("SELECT nextval('chaos_wishes')")
                    [wish] = cursor.fetchone()
                    kind = chance.choice((handlers.kept, handlers.gathered, handlers.follower, handlers.periodic))
                    arguments = (key, wish) if kind in (handlers.kept, handlers.gathered) else (key,)
                    later = timedelta(seconds=0.3) if kind in (handlers.gathered, handlers.follower) else None
                    job = kind.using(run_after=later).enqueue(*arguments).id
                    row = [wish, kind.name, key, int(job)]
                    cursor.execute("INSERT INTO chaos_wish (wish, task, key, job_id) VALUES (%s, %s, %s, %s)", row)
                    if chance.random() < ROLLED_BACK:
                        transaction.set_rollback(True)
                    elif chance.random() < ROLLED_BACK:
                        time.sleep(0.3)  # for a worker to claim what should wait for the commit
            except Exception:
                with suppress(Exception):
                    connection.close()
        with suppress(Exception):
            connection.close()

    def _amend(self, over: threading.Event, chance: random.Random) -> None:
        """Amend jobs that are not over. Those that run must keep their arguments."""
        from django.db import connection

        from pulse_django import amend
        from pulse_django.models import Job

        while not over.wait(0.2):
            try:
                if found := list(Job.objects.filter(task="chaos.slow", finished_at=None).values_list("pk", flat=True)):
                    self.amended[amend(chance.choice(found), args=[chance.uniform(0.1, 6.0)]).refused or "amended"] += 1
            except Exception:
                with suppress(Exception):
                    connection.close()
        with suppress(Exception):
            connection.close()

    def _enqueue_late(self) -> None:
        """Commit a job when workers have claimed others that were enqueued after it."""
        from django.db import connection, transaction

        from chaos import handlers

        with suppress(Exception):  # the database is away: nothing was acknowledged
            with transaction.atomic():
                job = int(handlers.quick.enqueue().id)
                time.sleep(LATE)
            self.acknowledged_late.append(job)
        with suppress(Exception):
            connection.close()

    def _rest(self) -> bool:
        """Let everything heal, and wait until every job is over."""
        from django.db import connection

        from pulse_django.models import Job

        for worker in self.workers:
            worker.heal()
        until = time.monotonic() + QUIET
        while time.monotonic() < until:
            try:
                if not Job.objects.filter(finished_at=None).exists():
                    return True
            except Exception:
                with suppress(Exception):
                    connection.close()
            time.sleep(0.3)
        return False

    def _tell(self, found: Any, is_quiet: bool) -> int:
        for name, times in sorted(self.happened.items()):
            say(f"  {times} x {name}")
        for fault in found.violations and self.faults:
            say(f"  {fault.begin} to {fault.end}: {fault.worker or 'the server'}")
        for worker, times in found.violations and sorted(self.unanswered.items()):
            say(f"  {worker} says that claims went unanswered at {', '.join(f'{when:%H:%M:%S.%f}' for when in times)}")
        for name, count in sorted(found.counts.items()):
            say(f"  {count:6} {name}")
        for name, count in sorted(self.amended.items()):
            say(f"  {count:6} calls of amend: {name}")
        if times := sorted(found.recoveries):
            half, most = times[len(times) // 2], times[-1]
            say(f"  {half:.2f} s from a lease's end to its reap, in the middle, {most:.2f} s at most, outages left out")
        if not is_quiet:
            say(f"It did not come to rest within {QUIET:g} s.")
        by_rule = Counter(one.rule for one in found.violations)
        for rule, count in by_rule.most_common():
            example = next(one for one in found.violations if one.rule == rule)
            say(f"BROKEN: {rule}: {count}, as job {example.job}: {example.says}")
        if found.violations:
            return 1
        if not found.proves_something:
            say("Nothing went wrong that could have broken anything: this proves nothing.")
            return 3
        say("Nothing was broken.")
        return 0


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
