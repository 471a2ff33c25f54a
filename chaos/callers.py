"""Who enqueues in a chaos run, cancels, amends and revives, while things go wrong.

Each enqueues in transactions of its own; only what was answered counts as acknowledged.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from django.db import connections, transaction

from chaos import handlers
from pulse_django import amend, cancel, enqueue_many, shard_of
from pulse_django.models import Job
from tests.citus import is_on_citus

MOST_AT_ONCE = 40  # jobs, so that claims and reports of many at a time are tormented as well
LATE, LATE_AT_ONCE = 1.0, 2  # seconds from the enqueue to the commit, and so many transactions at a time
LONG_OVER = datetime(2020, 1, 1, tzinfo=UTC)  # of jobs that have expired when they are enqueued
# Their hooks fail, in the statement that ends the runs of others as well. The second takes a lease's length to end.
# On Citus there is no trigger that lets them fail.
NEIGHBOURS = (handlers.dies_with_refused_hook, handlers.dies_with_slow_hook)
WISHERS, KEYS, ROLLED_BACK = 3, "ab", 0.3  # of unique jobs


class Callers:
    def __init__(self, seed: int, aliases: Sequence[str]) -> None:
        self._seed, self._aliases = seed, aliases
        self._acknowledged: set[int] = set()
        self._latest: deque[int] = deque(maxlen=5)  # of them
        self._late: list[int] = []  # other threads add to it
        self.amended: Counter[str] = Counter()  # answers to calls of amend
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._load, daemon=True)

    @property
    def acknowledged(self) -> set[int]:
        return self._acknowledged | set(self._late)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(20)

    def _load(self) -> None:
        """Enqueue without pause. Now and then cancel a job, whatever it is doing, or revive those that died."""
        chance = random.Random(self._seed + 1)
        kinds = [
            lambda: handlers.quick.enqueue(),
            lambda: handlers.quick.enqueue(),
            *[lambda: handlers.slow.enqueue(chance.uniform(0.1, 6.0))] * 2,
            *[lambda: handlers.steps.enqueue(chance.randrange(3, 30), 0.2)] * 2,
            lambda: handlers.quick.using(expires=LONG_OVER).enqueue(),
            lambda: handlers.quick.using(run_after=timedelta(seconds=chance.uniform(0.2, 4.0))).enqueue(),
            lambda: handlers.once.enqueue(chance.randrange(1, 15)),
            lambda: handlers.failing.enqueue(chance.randrange(0, 4)),
            lambda: (handlers.quick if is_on_citus() else chance.choices(NEIGHBOURS, (9, 1))[0]).enqueue(),
            lambda: handlers.poison.enqueue() if chance.random() < 0.1 else handlers.quick.enqueue(),
        ]
        late = ThreadPoolExecutor(LATE_AT_ONCE)
        others = ThreadPoolExecutor(WISHERS + 1)
        others.submit(self._amend, random.Random(self._seed + 2))
        for number in range(WISHERS):
            others.submit(self._wish, random.Random(self._seed * WISHERS + number))
        while not self._over.wait(0.08):
            if chance.random() < 0.1:
                late.submit(self._enqueue_late, chance.choice(self._aliases))
            try:
                self._acknowledge([int(chance.choice(kinds)().id)])
                if chance.random() < 0.2:
                    self._acknowledge(enqueue_many(handlers.quick, [()] * MOST_AT_ONCE))
                if chance.random() < 0.05:
                    cancel(chance.choice(self._latest))
                if chance.random() < 0.02:
                    self._revive(chance.choice(self._aliases))
            except Exception:
                hang_up()  # a database is away: nothing was acknowledged
        late.shutdown()
        others.shutdown()

    def _acknowledge(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            self._acknowledged.add(job)
            self._latest.append(job)

    def _revive(self, alias: str) -> None:
        dead = Job.objects.using(alias).filter(status="DEAD_LETTERED")
        Job.objects.db_manager(alias).retry(list(dead.values_list("pk", flat=True)))

    def _wish(self, chance: random.Random) -> None:
        """Enqueue unique jobs beside others who do, in transactions that take their time or are rolled back."""
        while not self._over.wait(0.05):
            key = chance.choice(KEYS)
            kind = chance.choice((handlers.kept, handlers.gathered, handlers.follower, handlers.periodic))
            takes_wish = kind in (handlers.kept, handlers.gathered)
            alias = shard_of(kind, key, 0) if takes_wish else shard_of(kind, key)
            try:
                with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
                    cursor.execute("SELECT nextval('chaos_wishes')")
                    [wish] = cursor.fetchone()
                    later = timedelta(seconds=0.3) if kind in (handlers.gathered, handlers.follower) else None
                    job = kind.using(run_after=later).enqueue(*((key, wish) if takes_wish else (key,))).id
                    row = [wish, kind.name, key, int(job)]
                    cursor.execute("INSERT INTO chaos_wish (wish, task, key, job_id) VALUES (%s, %s, %s, %s)", row)
                    if chance.random() < ROLLED_BACK:
                        transaction.set_rollback(True, using=alias)
                    elif chance.random() < ROLLED_BACK:
                        time.sleep(0.3)  # for a worker to claim what should wait for the commit
            except Exception:
                hang_up()
        hang_up()

    def _amend(self, chance: random.Random) -> None:
        """Amend jobs that are not over. Those that run must keep their arguments."""
        while not self._over.wait(0.2):
            try:
                slow = Job.objects.using(chance.choice(self._aliases)).filter(task="chaos.slow", finished_at=None)
                if found := list(slow.values_list("pk", flat=True)):
                    self.amended[amend(chance.choice(found), args=[chance.uniform(0.1, 6.0)]).refused or "amended"] += 1
            except Exception:
                hang_up()
        hang_up()

    def _enqueue_late(self, alias: str) -> None:
        """Commit a job when workers have claimed others that were enqueued after it."""
        with suppress(Exception):  # the database is away: nothing was acknowledged
            with transaction.atomic(using=alias):
                job = int(handlers.quick.using(database=alias).enqueue().id)
                time.sleep(LATE)
            self._late.append(job)
        hang_up()


def hang_up() -> None:
    with suppress(Exception):
        connections.close_all()
