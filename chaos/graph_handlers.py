"""The tasks of the chaos of graphs: they need each other, wait, and leave effects that can be counted."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import Any

from django.db import connection

from pulse_django import Batch, Context, EventTimedOut, retry_unless, task

SHORT = (0.005, 0.05)  # seconds
LONG = (0.1, 0.8)  # so that a freeze often falls into a step


class Dies(Exception):
    """The job is to become a dead letter, until an operator has pardoned it."""


HOW: dict[str, Any] = {"takes_context": True, "max_attempts": 200, "retry": retry_unless(Dies)}

# The effects of a completed job of each task, each exactly once.
EFFECTS = {
    "graph.steps": ("first", "second"),
    "graph.atom": ("atom",),
    "graph.approve": ("before", "after"),
    "graph.callback": ("callback",),
}


def effect(context: Context, name: str, pause: tuple[float, float] = SHORT) -> str:
    """Write down that this was done, in a transaction that is open for a while."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO chaos_effect (job_id, name) VALUES (%s, %s)", [context.job_id, name])
    work_for(pause)
    return name


def work_for(pause: tuple[float, float]) -> None:
    time.sleep(random.uniform(*pause))


def die_once(context: Context, dies: bool) -> None:
    if not dies:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM chaos_pardon WHERE job_id = %s", [context.job_id])
        if cursor.fetchone() is None:
            raise Dies("not pardoned yet")


@task(name="graph.work", **HOW)
def work(context: Context, dies: bool = False) -> int:
    work_for(SHORT)
    die_once(context, dies)
    return context.job_id


@task(name="graph.steps", **HOW)
def steps(context: Context, dies: bool = False) -> float:
    """A plain step, whose result all later runs have to see, between two that are exactly once."""
    context.step("first", effect, context, "first", atomic=True)
    drawn = context.step("drawn", random.random)
    die_once(context, dies)
    context.step("second", effect, context, "second", LONG, atomic=True)
    return drawn


@task(name="graph.atom", **HOW)
def atom(context: Context, dies: bool = False) -> None:
    work_for(SHORT)
    die_once(context, dies)
    with context.atomic() as completion:
        effect(context, "atom")
        completion.result = context.job_id


@task(name="graph.fan", **HOW)
def fan(context: Context, count: int) -> int:
    """Wait for jobs of its own."""
    ids = context.step("children", lambda: [work.enqueue().id for _ in range(count)], atomic=True)
    return len(context.wait_for(ids))


@task(name="graph.spread", **HOW)
def spread(context: Context, count: int, kinds: list[str]) -> int:
    """Wait for a batch of its own."""

    def fill() -> int:
        batch = Batch.open("spread", context={"planned": count, "callbacks": kinds})
        batch.add_many(work, [()] * count)
        seal(batch, kinds)
        return batch.id

    batch = Batch.get(context.step("batch", fill, atomic=True))
    return int(context.wait_for(batch).percent)


@task(name="graph.grow", **HOW)
def grow(context: Context, count: int, at_the_end: bool) -> None:
    """Add members to the batch that it is in."""

    def add() -> None:
        batch = context.batch
        assert batch is not None
        for _ in range(count):
            batch.add(work.prepare())

    if at_the_end:
        with context.atomic():
            add()
    else:
        context.step("added", add, atomic=True)
        work_for(SHORT)


@task(name="graph.after", **HOW)
def after(context: Context, job_ids: list[int]) -> int:
    """Wait for jobs that were there before."""
    work_for(SHORT)
    return len(context.wait_for(job_ids))


@task(name="graph.approve", **HOW)
def approve(context: Context, event: str) -> Any:
    context.step("before", effect, context, "before", atomic=True)
    answer = context.wait_for_event(event)
    context.step("after", effect, context, "after", LONG, atomic=True)
    return answer


@task(name="graph.late", **HOW)
def late(context: Context, event: str, seconds: float) -> str:
    """Wait for an event that never comes."""
    try:
        context.wait_for_event(event, timeout=timedelta(seconds=seconds))
    except EventTimedOut:
        return "timed out"
    raise AssertionError("nobody has sent it")


@task(name="graph.callback", **HOW)
def callback(context: Context, batch_id: int, kind: str) -> None:
    context.step("callback", effect, context, "callback", atomic=True)


def seal(batch: Batch, kinds: list[str]) -> None:
    """Seal a batch with callbacks of these kinds: success, dead and end."""
    batch.seal(**{f"on_{kind}": callback.prepare(batch.id, kind) for kind in kinds})
