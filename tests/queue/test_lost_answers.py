"""The COMMIT happened and its answer was lost: nobody may guess, and nothing may be lost or doubled."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, connections

from pulse_django.managers import JobManager
from pulse_django.models import Attempt, Job
from pulse_django.queue.database.dialects import statements_for
from pulse_django.queue.prune import Carrying
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status
from tests.citus import is_on_citus
from tests.factories import make_job
from tests.proxy import SwallowingProxy
from tests.queue.steps import claim_one, expire, next_run_is_due, success

ALIAS = "through_the_proxy"


@pytest.fixture
def proxy(pulse_db: None) -> Iterator[SwallowingProxy]:
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # a short path: sockets have little room
        proxy = SwallowingProxy(Path(folder), connection.settings_dict)
        yield proxy
        proxy.close()


@pytest.fixture
def jobs(proxy: SwallowingProxy) -> Iterator[JobManager]:
    """``Job.objects`` of a worker whose connection goes through the proxy."""
    settings: dict[str, Any] = {**connection.settings_dict, "HOST": proxy.host, "PORT": proxy.port}
    connections.settings[ALIAS] = settings
    statements_for(Carrying, ALIAS)  # asked once in a process: its answer is not the one to be lost
    yield Job.objects.db_manager(ALIAS)
    connections[ALIAS].close()
    del connections[ALIAS]
    del connections.settings[ALIAS]


def test_a_claim_whose_answer_was_lost_belongs_to_nobody_until_its_lease_runs_out(
    proxy: SwallowingProxy, jobs: JobManager
) -> None:
    job = make_job()
    me = Identity("me")
    lanes = jobs.lanes()
    proxy.swallow_the_next_answer()
    with pytest.raises(OperationalError):
        jobs.claim(me, lanes=lanes)

    job.refresh_from_db()
    assert (job.status, job.attempts) == (Status.RUNNING, 1)  # the claim did happen
    lost_holder = job.locked_by
    connections[ALIAS].close_if_unusable_or_obsolete()
    assert jobs.claim(me) == []  # and the worker that made it does not get the job again by asking

    expire(job)
    Job.objects.reap()
    next_run_is_due(job)
    [again] = jobs.claim(me)
    assert again.attempt == 2
    assert again.lease.holder != lost_holder
    assert jobs.settle([success(again)]).accepted


def test_a_settle_whose_answer_was_lost_can_be_sent_again(proxy: SwallowingProxy, jobs: JobManager) -> None:
    make_job()
    claim = claim_one(Identity("me"))
    jobs.lanes()  # opens the connection
    proxy.swallow_the_next_answer(after=1 if is_on_citus() else 0)  # there the second message commits
    with pytest.raises(OperationalError):
        jobs.settle([success(claim)])
    connections[ALIAS].close_if_unusable_or_obsolete()

    assert jobs.settle([success(claim)]).repeated == {claim.lease}
    assert Job.objects.get().status == Status.COMPLETED
    assert Attempt.objects.count() == 1


def test_an_enqueue_whose_answer_was_lost_did_happen(proxy: SwallowingProxy, jobs: JobManager) -> None:
    jobs.lanes()
    proxy.swallow_the_next_answer()
    with pytest.raises(OperationalError):
        jobs.enqueue(NewJob(task="tests.add"))
    assert Job.objects.count() == 1  # so whoever sends it again needs a key to recognise it by
