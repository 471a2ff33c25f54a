"""The tasks of the chaos of limits: each kind of limit, with jobs of some 40 ms and of half a second."""

from __future__ import annotations

import random
import time
from datetime import timedelta

from django.db import connection

from pulse_django import Limit, Rate, task
from pulse_django.run.run import current_run

SECOND = timedelta(seconds=1)
API = Limit("chaos.api", max_running=20, max_running_per_key=2)
LONG = Limit("chaos.long", max_running=5)
RATE = Limit("chaos.rate", rate=Rate(100, per=SECOND))
KEY_RATE = Limit("chaos.key_rate", rate_per_key=Rate(10, per=SECOND))
IN_BULK = Limit("chaos.in_bulk", max_running=6)
HEAVY = Limit("chaos.heavy", max_running=12, max_running_per_key=6)
SHORT = Limit("chaos.short", max_running=400, max_running_per_key=80)
LIMITS = (API, LONG, RATE, KEY_RATE, IN_BULK, HEAVY, SHORT)
SHORT_QUEUE = "short"  # workers that serve nothing else claim ahead
QUEUES = {"bulk": Limit(max_running=10)}  # as the setting QUEUE_LIMITS of the run says
LONG_RUN = 0.5


@task(name="chaos.api", limit=API, limit_key="customer", max_attempts=200)
def api(customer: int) -> None:
    time.sleep(random.uniform(0.02, 0.06))


@task(name="chaos.long", limit=LONG, max_attempts=200)
def long(customer: int) -> None:
    time.sleep(LONG_RUN)


@task(name="chaos.rate", limit=RATE, max_attempts=200)
def rate(customer: int) -> None: ...


@task(name="chaos.key_rate", limit=KEY_RATE, limit_key="customer", max_attempts=200)
def key_rate(customer: int) -> None: ...


@task(name="chaos.share", fair_by="customer", max_attempts=200)
def share(customer: int) -> None:
    time.sleep(0.02)


@task(name="chaos.plain", max_attempts=200)
def plain(customer: int) -> None:
    time.sleep(0.02)


@task(name="chaos.bulk", queue_name="bulk", max_attempts=200)
def bulk(customer: int) -> None:
    time.sleep(random.uniform(0.02, 0.06))


@task(name="chaos.bulk_limited", queue_name="bulk", limit=IN_BULK, max_attempts=200)
def bulk_limited(customer: int) -> None:
    time.sleep(random.uniform(0.02, 0.06))


@task(name="chaos.heavy", limit=HEAVY, limit_key="customer", max_attempts=200)
def heavy(customer: int) -> None:
    time.sleep(random.uniform(0.02, 0.06))


@task(name="chaos.short", queue_name=SHORT_QUEUE, limit=SHORT, limit_key="customer", max_attempts=200)
def short(customer: int) -> None:
    if (run := current_run()) is not None and run.lease_remaining() <= 0:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO chaos_late (job_id) VALUES (%s)", [run.claim.job_id])
    time.sleep(random.uniform(0.05, 0.15))


# Of one task, how much its jobs weigh.
WEIGHTS = {heavy: (1, 2, 3, 6)}
# How many customers each has, and how many of its jobs wait at least.
LOAD = {
    api: (50, 300), long: (1, 60), rate: (1, 400), key_rate: (10, 400), share: (10, 60), plain: (1, 60), bulk: (1, 150),
    bulk_limited: (1, 100), heavy: (6, 150), short: (8, 2_000),
}  # fmt: skip
