"""A handler whose effect and completion are one transaction, killed at every point of its run: one row each time."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain, expire_lease, jump_to_next_run
from testproject.shop import tasks
from testproject.shop.models import Invoice
from tests.crash.processes import run_script, start_script

pytestmark = pytest.mark.usefixtures("pulse_db")

# Each point is a call that happens once in the run; the process dies before it, or after it.
POINTS = {
    "after the claim": ("before", "pulse_django.run.execute._invoke"),
    "before the effect": ("before", "testproject.shop.models.Invoice.objects.create"),
    "after the effect": ("after", "testproject.shop.models.Invoice.objects.create"),
    "before the completion": ("before", "pulse_django.models.Job.objects.settle"),
    "after the completion, before the commit": ("after", "pulse_django.models.Job.objects.settle"),
    "after the commit": ("after", "pulse_django.run.execute._invoke"),
}

SCRIPT = """
import os, signal
from django.utils.module_loading import import_string
from pulse_django.queue.words.leases import Identity
from pulse_django.models import Job
from pulse_django.run import execute
from pulse_django.run.run import Run
import testproject.shop.models, pulse_django.models

when, path = os.environ["POINT"].split(" ")
owner_path, name = path.rsplit(".", 1)
parts = owner_path.split(".")
owner = None
for length in range(len(parts), 0, -1):
    try:
        owner = __import__(".".join(parts[:length]), fromlist=["x"])
    except ImportError:
        continue
    for part in parts[length:]:
        owner = getattr(owner, part)
    break
original = getattr(owner, name)

fired = []

def deadly(*args, **kwargs):
    if fired:
        return original(*args, **kwargs)
    fired.append(True)
    if when == "before":
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    result = original(*args, **kwargs)
    if when == "after":
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    return result

[claim] = Job.objects.claim(Identity("doomed"))
setattr(owner, name, deadly)
performed = execute.perform(Run(claim))
Job.objects.settle([performed.report] if performed.report else [])
"""


def killed_at(point: str) -> None:
    done = run_script(SCRIPT, POINT=" ".join(POINTS[point]), SIGNAL=str(int(signal.SIGKILL)))
    assert done.returncode == -signal.SIGKILL, f"it was not killed: {done.stdout}{done.stderr}"


def recovered() -> None:
    """The lease runs out, a watchdog reaps, another worker runs what is left to run."""
    job = Job.objects.get()
    if job.status == Status.RUNNING:
        expire_lease(job)
        Job.objects.reap()
        jump_to_next_run(job)
        drain()
    job.refresh_from_db()
    assert job.status == Status.COMPLETED


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("task", [tasks.make_invoice, tasks.make_invoice_by_hand], ids=lambda task: task.name)
def test_one_row_wherever_the_process_is_killed(task: Any, point: str) -> None:
    task.enqueue(7)
    killed_at(point)
    recovered()
    assert Invoice.objects.count() == 1


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("task", [tasks.make_invoice, tasks.make_invoice_by_hand], ids=lambda task: task.name)
def test_one_row_wherever_the_process_is_frozen_past_its_lease_and_resumed(task: Any, point: str) -> None:
    result = task.enqueue(7)
    frozen = start_script(SCRIPT, POINT=" ".join(POINTS[point]), SIGNAL=str(int(signal.SIGSTOP)))
    try:
        _, how = os.waitpid(frozen.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(how), "it was not frozen"
        if point == "after the completion, before the commit":
            assert Job.objects.reap() == []  # its row is locked: whoever is that far is waited for
        else:
            recovered()
        frozen.send_signal(signal.SIGCONT)
        assert frozen.wait(20) == 0, frozen.stderr.read() if frozen.stderr else ""
    finally:
        frozen.kill()
        frozen.communicate()
    assert Job.objects.get(pk=result.id).status == Status.COMPLETED
    assert Invoice.objects.count() == 1


def test_without_the_transaction_there_are_two_rows_so_that_this_can_fail() -> None:
    tasks.make_invoice_carelessly.enqueue(7)
    killed_at("after the effect")
    recovered()
    assert Invoice.objects.count() == 2
