"""``python -m chaos.run``: one run, one seed, one verdict.

Exits with 0 if nothing was broken, 1 if something was, 3 if nothing happened that could have broken anything.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chaos.stage import Database
    from chaos.witness import Change

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

from tests import citus
from tests.cluster import Cluster

WORKERS = 4
TORMENTORS = 2  # each has workers of its own; the first one torments the server as well
MOST_ROUNDS = 3  # of a run in which nothing had to be recovered
BETWEEN = (0.3, 1.2)  # seconds between two nemeses
QUIET = 90.0  # seconds that a run may take to come to rest
MOST_STORIES = 3  # of jobs with which something was wrong
SLACK = timedelta(seconds=3)  # a tick, and what a busy machine of two processors may add
GRACE = timedelta(seconds=5)  # a lease, a tick, and that slack


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="decides the order of what happens")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nemesis", action="append", default=[], help="only these, by name")
    parser.add_argument("--shards", type=int, default=1, help="so many servers, among which jobs are moved as well")
    parser.add_argument("--mutant", default="", help="a bug to plant in the workers: the run must find it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
    if citus.is_on_citus():
        return play_on_citus(options)
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # a server that root starts runs as somebody else
        clusters = {alias: Cluster(_new_folder(Path(folder) / alias)) for alias in aliases(options.shards)}
        try:
            for cluster in clusters.values():
                cluster.start(with_standby=options.shards == 1)
            use(clusters)
            return play(clusters, Path(folder), options)
        finally:
            for cluster in clusters.values():
                cluster.end()


def aliases(count: int) -> list[str]:
    return ["default", *(f"shard_{number}" for number in range(1, count))]


def _new_folder(path: Path) -> Path:
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    return path


def use(clusters: Mapping[str, Cluster]) -> None:
    """Name the databases to this process, and to all that it starts."""
    urls = {alias: cluster.primary.url for alias, cluster in clusters.items()}
    os.environ["DATABASE_URL"] = urls.pop("default")
    if urls:
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings_of_databases"
        os.environ["PULSE_TEST_MORE_DATABASES"] = json.dumps(urls)


def play(clusters: Mapping[str, Cluster | citus.Cluster], folder: Path, options: argparse.Namespace) -> int:
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from chaos import stage, witness

    settings.PULSE |= stage.placement_over(list(clusters))
    for number, alias in enumerate(clusters):
        if not citus.is_on_citus():  # where it has been done
            call_command("migrate", database=alias, verbosity=0)
        witness.install(alias, number)
    if options.mutant:
        from django.db import connections

        from chaos.shard_mutants import ALL_MUTANTS

        mutant = ALL_MUTANTS[options.mutant]
        options.nemesis = options.nemesis or list(mutant.nemeses)
        if mutant.in_callers:
            mutant.plant()
        if mutant.schema:
            for alias in clusters:
                with connections[alias].cursor() as cursor:
                    cursor.execute(mutant.schema)
    databases = {alias: stage.Database(alias, cluster) for alias, cluster in clusters.items()}
    return Run(databases, folder, options).verdict()


def play_on_citus(options: argparse.Namespace) -> int:
    """Play in a schema of the cluster that DATABASE_URL leads to, whose servers are not stopped."""
    import django

    django.setup()
    from django.db import connection

    from tests.crash.processes import database_url

    connection.settings_dict["OPTIONS"]["options"] = citus.options()
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder, citus.distributed_schema():
        return play({"default": citus.Cluster(database_url())}, Path(folder), options)


class Run:
    def __init__(self, databases: Mapping[str, Database], folder: Path, options: argparse.Namespace) -> None:
        from chaos import callers, clock, movers, stage

        self.options, self.folder, self.databases = options, folder, databases
        jumping = clock.compile_into(folder)
        self.workers = [
            stage.Worker(f"w{number}", folder, options.mutant, jumping, list(databases)) for number in range(WORKERS)
        ]
        self.movers = movers.Movers(folder, options.mutant) if len(databases) > 1 else None
        self.callers = callers.Callers(options.seed, list(databases))
        self.faults: list[Any] = []
        self.unanswered: dict[str, list[Any]] = {}
        self.happened: Counter[str] = Counter()
        self.epoch = stage.now(databases) - timedelta(seconds=time.monotonic())

    def verdict(self) -> int:
        from chaos import checker, stage, witness

        of_shards = f", {len(self.databases)} shards" if self.movers else ""
        say(
            f"seed {self.options.seed}, {self.options.seconds:g} s, {WORKERS} workers, leases of {stage.TTL:g} s"
            f"{of_shards}"
        )
        try:
            for worker in self.workers:
                worker.start()
            self._torment()
            is_quiet = self._rest()
        finally:
            for worker in self.workers:
                worker.end()
            if self.movers:
                self.movers.end()
        self.unanswered = stage.unanswered_claims(self.folder, self.workers)
        found = checker.judge(
            checker.History(
                acknowledged=frozenset(self.callers.acknowledged),
                changes=self._changes(),
                ledger=[entry for alias in self.databases for entry in witness.ledger(alias)],
                executions=stage.executions(self.folder),
                faults=self.faults,
                slack=SLACK,
                grace=GRACE,
                epoch=self.epoch,
                deadlocks=[text for database in self.databases.values() for text in database.deadlocks()],
                unanswered=self.unanswered,
                wishes=[wish for alias in self.databases for wish in witness.wishes(alias)],
            )
        )
        code = self._tell(found, is_quiet)
        for job in sorted({one.job for one in found.violations})[:MOST_STORIES]:
            self._tell_story(job)
        return self._tell_mutant(found) if self.options.mutant else code

    def _changes(self) -> list[Change]:
        from chaos import shards, witness

        return shards.joined(witness.changes(alias) for alias in self.databases)

    def _tell_story(self, job: int) -> None:
        """All that is known of a job with which something was wrong."""
        from chaos import stage

        say(f"The story of job {job}:")
        for one in self._changes():
            if one.job == job and (row := one.after) is not None:
                held = f", {row.locked_by} until {row.lease_until}" if row.locked_by else ""
                what = f"{row.status}, attempt {row.attempts}{held}; {row.last_error}"
                say(f"  {one.at} {one.shard} {one.by or 'another session'}: {what}")
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
        from chaos.shard_mutants import ALL_MUTANTS

        wanted = ALL_MUTANTS[self.options.mutant].breaks
        hits = sorted({one.rule for one in found.violations} & set(wanted))
        say(f"MUTANT {self.options.mutant}: {'found: ' + ', '.join(hits) if hits else 'NOT FOUND'}")
        return 0 if hits else 1

    def _torment(self) -> None:
        """Enqueue without pause, and let one thing after the other go wrong."""
        self.callers.start()
        if self.movers:
            self.movers.start()
        try:
            for worker in self.workers:
                worker.process.wait_until_ready()
            for round_ in range(MOST_ROUNDS):
                until = time.monotonic() + self.options.seconds
                with ThreadPoolExecutor(TORMENTORS) as tormentors:
                    for tormented in [tormentors.submit(self._go_on, n, until, round_) for n in range(TORMENTORS)]:
                        tormented.result()
                if self.options.mutant or self._has_reaped():
                    break
        finally:  # this process would wait for their threads
            self.callers.end()

    def _has_reaped(self) -> bool:
        """Say whether a lease ran out and was reaped. In a short run it may be that none was held at the wrong time."""
        from chaos import callers, witness

        callers.hang_up()  # servers were restarted since the last look
        return any(entry.is_reaped for alias in self.databases for entry in witness.ledger(alias))

    def _go_on(self, number: int, until: float, round_: int) -> None:
        """One tormentor: goes through all that can happen, in an order of its own, again and again."""
        from chaos import nemeses

        wait = nemeses.waiting(until)
        chance = random.Random(self.options.seed * TORMENTORS + number + 1_000_000 * round_)
        workers = self.workers[number::TORMENTORS]
        plan = nemeses.schedule(chance, tuple(self.options.nemesis))
        if number > 0:
            plan = [one for one in plan if not one.is_for_all]
        if self.movers:
            plan = [one for one in plan if not one.needs_standby]
        while plan and time.monotonic() < until:
            for nemesis in plan:
                if time.monotonic() >= until:
                    break
                for worker in workers:
                    worker.supervise()
                self._strike(nemesis, chance.choice(workers), chance.choice(list(self.databases.values())), wait)
                wait(chance.uniform(*BETWEEN))

    def _strike(self, nemesis: Any, worker: Any, database: Any, wait: Any) -> None:
        from chaos import stage
        from chaos.checker import Window

        if not nemesis.can_be(worker):
            self.happened[f"{nemesis.name} (NOT: this machine has no C compiler)"] += 1
            return
        if nemesis.controls_server and citus.is_on_citus():
            self.happened[f"{nemesis.name} (NOT: the cluster is not this run's to stop)"] += 1
            return
        victims = ([] if nemesis.is_for_all else [worker]) + (self.workers if nemesis.strikes_workers else [])
        label = "" if nemesis.is_for_all else worker.label
        struck = {label}.union(*(one.labels for one in victims))
        shard = database.alias if nemesis.is_for_all or nemesis.in_one_shard else ""
        begin = stage.now(self.databases)
        nemesis.act(worker, database, wait)
        self.happened[nemesis.name] += 1
        if not nemesis.excuses:
            return
        end = stage.now(self.databases)
        # New ones may have been started, which come up while the old one's jobs are lost.
        struck |= set().union(*(one.labels for one in victims))
        self.faults += [
            Window(begin=begin, end=end, worker=one, shard=shard, stops=nemesis.stops and one == label)
            for one in sorted(struck)
        ]

    def _rest(self) -> bool:
        """Let everything heal, and wait until every job is over."""
        from django.db import connections

        from pulse_django.models import Departure, Job

        for worker in self.workers:
            worker.heal()
        if self.movers:
            self.happened["a mover killed"] += self.movers.killed
            self.movers.let_finish()
        until = time.monotonic() + QUIET
        while time.monotonic() < until:
            try:
                waiting = [Job.objects.using(alias).filter(finished_at=None) for alias in self.databases]
                moving = [Departure.objects.using(alias) for alias in self.databases]
                if not any(one.exists() for one in [*waiting, *moving]):
                    return True
            except Exception:
                with suppress(Exception):
                    connections.close_all()
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
        for name, count in sorted(self.callers.amended.items()):
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
