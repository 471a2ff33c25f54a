"""The handlers of those that speak Django's own task API. Django must have been set up."""

from __future__ import annotations

from typing import Any

import rows
import witness

try:
    from django.tasks import task
except ImportError:  # before Django 6.0
    from django_tasks import task


@task
def nothing() -> None:
    witness.call()


@task
async def nothing_async() -> None:
    witness.call()


@task
def insert() -> None:
    rows.insert()


@task
async def insert_async() -> None:
    await rows.insert_async()


@task
def stamp(number: int) -> None:
    witness.stamp(number)


@task
def hold() -> None:
    witness.hold()


TASKS: dict[str, Any] = {
    "nothing": nothing,
    "nothing_async": nothing_async,
    "insert": insert,
    "insert_async": insert_async,
    "stamp": stamp,
    "hold": hold,
}
