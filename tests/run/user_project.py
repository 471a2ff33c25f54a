"""A user's code as a type checker sees it; run through mypy by test_typing.py. Lines marked E must be errors."""

from datetime import timedelta
from typing import Any, assert_type

from pulse_django import (
    NO_RETRIES,
    Backoff,
    Chunk,
    Context,
    Every,
    Limit,
    Rate,
    RetryPolicy,
    Unique,
    retry_unless,
    task,
)
from pulse_django.testing import fake_context


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task(max_attempts=3, retry=retry_unless(ValueError), timeout=timedelta(minutes=5))
def send(address: str) -> None: ...


@task(takes_context=True, retry=NO_RETRIES)
def careful(context: Context, order: int) -> None:
    context.progress(1, 2, page="a")
    context.snooze(timedelta(minutes=1))


@task(unique=Unique(by=("order",), on_conflict="debounce", max_delay=timedelta(minutes=10)))
def gather(order: int) -> None: ...


@task(unique=Unique(by=lambda order: order))
def computed(order: int) -> None: ...


@task(chunk=100, chunk_wait=timedelta(seconds=2), max_attempts=3)
def index(chunk: Chunk) -> None:
    for job in chunk:
        job.context.progress(1)
        job.succeed(job.kwargs["document"])
        job.fail("no")  # E


@task(chunk=100)  # E
def no_chunk(document: int) -> None: ...


@task(unique=Unique(on_conflict="skip"))  # E
def skipping() -> None: ...


@task(unique="keep")  # E
def keeping() -> None: ...


@task(colour="red")  # E
def unknown() -> None: ...


@task(timeout="30")  # E
def untimed() -> None: ...


@task(
    timeout=30,
    sensitive="order",
    unique=Unique(by="order", per=60),
    limit=Limit(rate=Rate(5, per="minute")),
    retry=RetryPolicy(backoff=Backoff(unit=60)),
    schedule=Every(minutes=5, jitter=10),
)
def short(order: int = 0) -> None: ...


@task(retry=retry_unless(ValueError, backoff=lambda attempt: 30 * attempt))
def paced() -> None: ...


@task
async def greet(number: int) -> str:
    return f"{number}"


@task(takes_context=True, max_attempts=3)
async def wave(context: Context, number: int) -> str:
    return f"{number}"


@task(priority=1)
def loose(number: int) -> Any:
    return number


@task(idempotency_key="k")  # E
def declared_with_a_key() -> None: ...


async def caller() -> int:
    index.enqueue(document=5)
    index.enqueue(5)  # E
    index.using(priority=1).prepare(5)  # E
    add.delay(1)  # E
    add.enqueue(1).get()  # E
    careful.using(priority=1).delay(1)  # E
    assert_type((await greet.aenqueue(1)).return_value, str | None)
    assert_type((await wave.using(priority=1).aenqueue(1)).return_value, str | None)
    assert_type(loose.enqueue(1).return_value, Any | None)
    assert_type((add.call(1, b=2), greet.call(1), await greet.acall(1)), tuple[int, str, str])
    add.call("1")  # E
    careful.using(priority=1).call(fake_context(), 7)
    careful.call(7)  # E
    assert_type(wave.call(fake_context(), number=7), str)
    index.call(5)  # E
    add.enqueue(1, 2)
    add.enqueue(1, b=2)
    add.enqueue("1")  # E
    add.enqueue()  # E
    add.enqueue(1, 2, 3)  # E
    send.enqueue(address="a@example.com")
    send.enqueue(5)  # E
    careful.enqueue(7)
    careful.enqueue(order="x")  # E
    add.using(priority=5, run_after=timedelta(hours=1)).enqueue(1)
    add.using(idempotency_key="k").enqueue("1")  # E
    add.using(colour="red")  # E
    add.using(max_attempts="3")  # E
    add.using(isolation="process")  # E
    add.using(max_attempts=None, run_after=None)
    attempts: int | None = send.max_attempts
    text: str = send.max_attempts  # E
    await add.aenqueue(1)
    result: int = add.get_result("1").return_value or 0
    known: str = add.enqueue(1).id
    wrong: int = add.enqueue(1).id  # E
    returned: str = add.enqueue(1).return_value or ""  # E
    return result + (attempts or 0) + len(text + known + returned) + wrong
