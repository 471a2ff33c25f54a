"""Handlers of workflows for tests with real workers."""

from __future__ import annotations

import os
import signal
from typing import Any

from django.db import transaction
from django.db.models import F

from pulse_django import Context, task
from pulse_django.models import Fence
from tests.worker.handlers import trace

MODULES: dict[str, Any] = {"TASK_MODULES": ["tests.workflows.handlers", "tests.worker.handlers"]}


@task(name="workflow.part", takes_context=True)
def part(context: Context, name: str) -> str:
    trace("ran", context.job_id, name=name)
    return name


@task(name="workflow.callback", takes_context=True)
def callback(context: Context, name: str) -> str:
    trace("called back", context.job_id, name=name)
    return name


def child(order: str) -> int:
    row, _ = Fence.objects.get_or_create(resource=order, defaults={"token": 0})
    Fence.objects.filter(pk=row.pk).update(token=F("token") + 1)
    return int(Fence.objects.get(pk=row.pk).token)


@task(name="workflow.order", takes_context=True)
def order(context: Context, name: str) -> int:
    """Charge once, die once, wait for approval, and say how often it was charged."""
    charged = context.step("child", child, name, atomic=True)
    trace("charged", context.job_id, times=charged)
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    context.wait_for_event(f"approved:{name}")
    return charged


@task(name="workflow.atomic", takes_context=True)
def atomic(context: Context, name: str) -> None:
    """Complete the job in a transaction of the handler's own."""
    with context.atomic() as completion:
        completion.result = name


@task(name="workflow.atomic_then_dies", takes_context=True)
def atomic_then_dies(context: Context) -> None:
    """Complete the job, and kill the child and its keeper after the commit, before anything else is done."""

    def die() -> None:
        trace("committed", context.job_id)
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    with context.atomic():
        transaction.on_commit(die)
