"""Tasks for tests of workflows. They write down what they saw."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from pulse_django import NO_RETRIES, Context, task
from pulse_django.models import Fence

SAW: list[tuple[str, Any]] = []
BROKEN: set[str] = set()


@task(takes_context=True, retry=NO_RETRIES)
def note(context: Context, name: str) -> str:
    """Write down its name and what it needed, or fail while its name is in BROKEN."""
    if name in BROKEN:
        raise ValueError(name)
    SAW.append((name, {key: context.results[key] for key in context.results if key not in context.results.not_done}))
    return name.upper()


@task
def plain(name: str) -> str:
    SAW.append((name, None))
    return name.upper()


@task
def count_up(name: str) -> int:
    """Add one to a fence's token, so that a test sees how often it was committed."""
    return bump(name)


def bump(name: str) -> int:
    row, _ = Fence.objects.get_or_create(resource=name, defaults={"token": 0})
    Fence.objects.filter(pk=row.pk).update(token=F("token") + 1)
    return int(Fence.objects.get(pk=row.pk).token)


@task(takes_context=True, retry=NO_RETRIES)
def fan_out(context: Context, count: int) -> list[str]:
    """Enqueue children once, wait for them, and return what they returned."""
    ids = context.step("children", lambda: [plain.enqueue(str(number)).id for number in range(count)])
    return list(context.wait_for(ids))


@task(takes_context=True, retry=NO_RETRIES)
def approved(context: Context, name: str, seconds: float | None = None) -> object:
    timeout = None if seconds is None else timedelta(seconds=seconds)
    answer = context.wait_for_event(name, timeout=timeout)
    SAW.append((name, answer))
    return answer


@task(takes_context=True, retry=NO_RETRIES)
def stepwise(context: Context, name: str) -> list[int]:
    """Two steps that count how often they are done, and a place to fail between them."""
    first = context.step("first", bump, f"{name} first", atomic=True)
    if name in BROKEN:
        raise ValueError(name)
    second = context.step("second", bump, f"{name} second")
    return [first, second]


@task(takes_context=True)
def sleeper(context: Context) -> str:
    SAW.append(("before", None))
    context.sleep(timedelta(hours=1))
    SAW.append(("after", None))
    return "awake"


@task(takes_context=True)
async def async_steps(context: Context) -> int:
    async def three() -> int:
        return 3

    return await context.astep("three", three)


CALL: list[Callable[[Context], object]] = []


@task(takes_context=True)
def in_transaction(context: Context) -> None:
    with transaction.atomic():
        CALL[0](context)


@task(takes_context=True, atomic=True)
def in_own_transaction(context: Context) -> None:
    CALL[0](context)
