"""Free slots go to who holds the fewest leases: long jobs do not crowd out short ones, nor many jobs a few."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from pulse_django.models import Attempt, Job
from pulse_django.queue.database.lane_queries import WaitingLane
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.lanes import deal, lane_of
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Succeeded
from pulse_django.queue.words.verb_results import Report
from tests.crash.workers import Workers, wait_until
from tests.limits import handlers as limited_handlers
from tests.limits.handlers import LONG, MODULES, SHORT
from tests.queue.steps import sql

CLAIM, SLOTS = 100, 20


def enqueue(tenant: str, count: int) -> None:
    Job.objects.enqueue_many([NewJob(task="t", lane_key=lane_key("", tenant))] * count)


def run_some() -> Counter[str]:
    """Look, deal, claim and settle, as a worker does that runs each job at once. Return the lanes of what it ran."""
    waiting: list[WaitingLane] = Job.objects.waiting()
    lanes = [one.lane for one in waiting if one.due_in <= 0]
    takes = deal(lanes, CLAIM, held={})
    claims = Job.objects.claim(Identity("w"), limit=CLAIM, lanes=list(takes), takes=takes)
    Job.objects.settle([Report(claim.lease, Succeeded(), Complete()) for claim in claims])
    return Counter(lane_of(claim).key for claim in claims)


@pytest.mark.usefixtures("pulse_db")
def test_a_few_jobs_of_many_are_run_before_a_backlog_of_one() -> None:
    enqueue("heavy", 20_000)
    for tenant in range(100):
        enqueue(f"light-{tenant}", 10)
    heavy = lane_key("", "heavy")
    first = run_some()
    assert first[heavy] <= CLAIM // 8, "it gets the share of one among those that are dealt"
    ran, light = sum(first.values()), sum(first.values()) - first[heavy]
    while light < 1_000:
        some = run_some()
        assert some, "nothing is left, and not all light jobs have run"
        ran += sum(some.values())
        light += sum(some.values()) - some[heavy]
    assert ran <= 1_000 + 400, "2 % of the backlog"


@pytest.mark.parametrize("share", ["", "acme"], ids=["plain", "share"])
@pytest.mark.parametrize(("ageing", "is_first"), [(60, True), (0, False)])
def test_a_job_of_low_priority_that_has_waited_for_long_comes_first(
    workers: Workers, share: str, ageing: int, is_first: bool
) -> None:
    key = lane_key("", share) if share else ""
    low = Job.objects.enqueue(NewJob(task="limits.does_nothing", priority=-5, lane_key=key)).id
    sql("UPDATE pulse_django_job_hot SET next_run_at = next_run_at - interval '1 h'")
    Job.objects.enqueue_many([NewJob(task="limits.does_nothing", priority=5, lane_key=key)] * 30)
    workers.start("--concurrency", "1", settings=MODULES | {"PRIORITY_AGEING": ageing})
    wait_until(lambda: Attempt.objects.count() == 31)
    order = list(Attempt.objects.order_by("token").values_list("job_id", flat=True))
    assert (order[0] == low) is is_first  # the first claim is of one job


@pytest.mark.usefixtures("pulse_db")
def test_long_jobs_hold_their_share_of_the_slots(workers: Workers) -> None:
    """One tenant has jobs of 500 ms, ten have jobs of 20 ms: leases are counted, and not starts."""
    seconds = timedelta(seconds=6)
    for _ in range(200):
        limited_handlers.takes.enqueue("long", LONG)
    for tenant in range(10):
        Job.objects.enqueue_many(
            [
                NewJob(task="shares.takes", args=[f"short-{tenant}", SHORT], lane_key=lane_key("", f"short-{tenant}"))
                for _ in range(1_200)
            ]
        )
    for name in ("one", "two"):
        workers.start("--name", name, "--concurrency", str(SLOTS // 2), settings=MODULES)
    wait_until(lambda: Attempt.objects.exists(), lambda: "no run has ended", patience=30)
    [(begin,)] = sql("SELECT min(started_at) + interval '1 s' FROM pulse_django_ledger")
    end = begin + seconds
    wait_until(lambda: sql("SELECT clock_timestamp()")[0][0] > end + timedelta(seconds=1), lambda: "", patience=30)
    held = dict(
        sql(
            "SELECT job.args ->> 0, sum(EXTRACT(epoch FROM LEAST(ran.finished_at, %s) - GREATEST(ran.started_at, %s)))"
            " FROM pulse_django_ledger AS ran JOIN pulse_django_job AS job ON job.id = ran.job_id"
            " WHERE ran.started_at < %s AND ran.finished_at > %s GROUP BY 1",
            end,
            begin,
            end,
            begin,
        )
    )
    shares = {tenant: float(seconds / sum(held.values())) for tenant, seconds in held.items()}
    assert len(shares) == 11
    assert min(shares.values()) >= 1 / 1.5 / 11, f"{shares}; a fair share is 9 %"
    assert max(shares.values()) <= 1.5 / 11, f"{shares}; a fair share is 9 %"
