"""Encrypted tasks, for tests. They are not imported with the tests: without keys the system checks refuse them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pulse_django import Context, Unique, retry_unless, task

SECRET = "kestrel-4711"  # stands in arguments, progress, results and errors, and may stand nowhere else


@task(name="encrypted.echo", encrypted=True)
def echo(value: Any = None, **more: Any) -> Any:
    return {"value": value, **more}


@task(name="encrypted.found", encrypted=True, searchable=["email"])
def found(email: str) -> None: ...


@task(name="encrypted.alone", encrypted=True, isolation="process", takes_context=True)
def alone(context: Context, value: Any) -> Any:
    context.progress(1, note=value)
    return value


@task(name="encrypted.echo_async", encrypted=True)
async def echo_async(value: Any) -> Any:
    return value


@task(name="encrypted.by_hand", encrypted=True, takes_context=True)
def by_hand(context: Context, value: Any) -> None:
    with context.atomic() as completion:
        completion.result = value


@task(name="encrypted.resumes", encrypted=True, takes_context=True)
def resumes(context: Context, value: str) -> Any:
    if context.checkpoint is None:
        context.progress(1, 2, note=value)
        raise RuntimeError(f"the first run of {value} fails")
    return context.checkpoint["note"]


@task(name="encrypted.fails", encrypted=True, retry=retry_unless(ValueError), takes_context=True)
def fails(context: Context, value: str, *, more: str = "") -> None:
    context.progress(1, note=value)
    try:
        raise KeyError(value)
    except KeyError as error:
        raise ValueError(f"refused: {value} {more}") from error


@task(name="encrypted.wrong_result", encrypted=True)
def wrong_result(value: str) -> Any:
    return {value: {1, 2}}


@task(name="encrypted.unique", encrypted=True, unique=Unique(by=("value",)))
def unique(value: str, note: str = "") -> None: ...


@task(name="encrypted.waits", encrypted=True, unique=Unique(by=("value",), on_conflict="debounce"))
def waits(value: str, note: str = "") -> str:
    return note


@task(name="encrypted.raises_unique", encrypted=True, unique=Unique(per=timedelta(hours=1)))
def windowed(value: str) -> None: ...


@task(name="encrypted.waits_for", takes_context=True, retry=retry_unless(Exception))
def waits_for(context: Context, job_id: str) -> Any:
    return context.wait_for(job_id)


@task(name="encrypted.not")
def plain(value: Any) -> Any:
    return value
