"""A thread past its deadline is not overtaken by its own retry in the same worker."""

from __future__ import annotations

import pytest

from pulse_django.models import Attempt
from pulse_django.queue.words.states import Status
from tests.crash.workers import Workers, outcomes, wait_for
from tests.worker import handlers


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_retry_waits_until_the_handler_of_the_run_before_has_ended(workers: Workers, processes: str) -> None:
    # A watchdog may end the run before its process has seen that it is overdue: the process has a second for it.
    workers.ready("--processes", processes, "--concurrency", "4", settings={"RETRY_BACKOFF_CAP": 1})
    job = handlers.overstays.enqueue().id
    wait_for(Status.COMPLETED, job)
    steps = [(line["what"], line["attempt"]) for line in workers.trace.lines() if line["job"] == int(job)]
    last = Attempt.objects.filter(job_id=job).order_by("number").values_list("number", flat=True).last()
    assert steps == [("begin", 1), ("end", 1), ("begin", last), ("end", last)]
    ended = outcomes(job)
    assert (ended[0], set(ended[1:-1]), ended[-1]) == ("TIMED_OUT", {"RELEASED"}, "SUCCEEDED")
    released = Attempt.objects.filter(job_id=job, outcome="RELEASED").first()
    assert released is not None
    assert "has not ended in this worker" in released.message
