"""Handlers that nobody should write, for tests."""

from __future__ import annotations

import builtins
import datetime
import itertools
from typing import Any

from django.db import transaction

from pulse_django import Context, task
from pulse_django.exceptions import Discard, Snooze
from testproject.shop.models import Invoice, Line
from testproject.shop.tasks import add, send_invoice


@task
def returns_a_set() -> Any:
    return {1, 2}


@task(takes_context=True)
def swallows_everything(context: Context) -> str:
    try:
        context.check()
    except Exception:
        return "swallowed"
    return "not cancelled"


@task(takes_context=True)
def completes_and_raises(context: Context) -> None:
    with context.atomic():
        pass
    raise RuntimeError("too late to matter")


@task
def enqueues_itself() -> None:
    enqueues_itself.enqueue()


@task
def is_interrupted() -> None:
    raise KeyboardInterrupt


@task
def get_or_create_invoice(order_number: int) -> None:
    Invoice.objects.get_or_create(order_number=order_number)


@task
def replace_invoice(order_number: int) -> None:
    Invoice.objects.filter(order_number=order_number).delete()
    invoice = Invoice.objects.create(order_number=order_number)
    Line.objects.create(invoice=invoice, text="the goods")


_runs = itertools.count()


@task
def replace_invoice_and_count(order_number: int) -> None:
    Invoice.objects.filter(order_number=order_number).delete()
    invoice = Invoice.objects.create(order_number=order_number)
    Line.objects.create(invoice=invoice, text=f"run {next(_runs)}")


@task(takes_context=True)
def gets_halfway(context: Context) -> None:
    if context.checkpoint is None:
        context.progress(1, 2)
        raise RuntimeError("and no further")
    assert context.checkpoint == {"done": 1, "total": 2}


@task
def cannot_be_told(trouble: str) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise getattr(builtins, trouble)

    raise Unspeakable


@task(takes_context=True)
async def counts_on_the_loop(context: Context, total: int) -> Any:
    for done in range(1, total + 1):
        context.check()
        await context.acheck()
        context.progress(done, total)
        await context.aprogress(done, total, flush=True)
    return context.checkpoint


@task(takes_context=True)
def snoozes_badly(context: Context) -> None:
    context.snooze("30")  # type: ignore[arg-type]


@task(takes_context=True)
def discards_an_exception(context: Context) -> None:
    context.discard(ValueError("x"))  # type: ignore[arg-type]


class Shifty(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError("changed meanwhile")


@task
def returns_something_shifty() -> Any:
    return Shifty(a=1)


@task(takes_context=True)
def snoozes_after_completion(context: Context) -> None:
    with context.atomic():
        pass
    context.snooze(datetime.timedelta(1))


@task(takes_context=True)
def completes_twice(context: Context) -> None:
    for number in (1, 2):
        with context.atomic():
            Invoice.objects.create(order_number=number)


@task(takes_context=True)
def completes_and_checks(context: Context) -> None:
    with context.atomic():
        pass
    context.check()


def _raise() -> None:
    raise RuntimeError("a rude callback")


@task(takes_context=True)
def has_a_rude_callback(context: Context) -> None:
    with context.atomic():
        transaction.on_commit(_raise)


@task(takes_context=True)
def checks_in_transactions(context: Context) -> None:
    with transaction.atomic():
        context.check()
    with context.atomic():
        context.check()


@task(atomic=True, takes_context=True)
def checks_while_atomic(context: Context) -> None:
    context.check()


@task
def fans_out() -> None:
    get_or_create_invoice.enqueue(1)


@task
def fans_out_with_a_key() -> None:
    get_or_create_invoice.using(idempotency_key="once").enqueue(1)


@task
def refuses_to_run_twice(order_number: int) -> None:
    if Invoice.objects.filter(order_number=order_number).exists():
        raise ValueError("already billed")
    Invoice.objects.create(order_number=order_number)


@task(max_attempts=1)
def has_one_attempt() -> int:
    return 1


@task(at_most_once=True)
def runs_once() -> None:
    pass


@task
def raises_sync() -> None:
    raise ValueError("no luck")


@task
async def raises_async() -> None:
    raise ValueError("no luck")


@task
def snoozes_sync() -> None:
    raise Snooze(datetime.timedelta(hours=1))


@task
async def snoozes_async() -> None:
    raise Snooze(datetime.timedelta(hours=1))


@task
def returns_sync() -> str:
    return "done"


@task
async def returns_async() -> str:
    return "done"


@task
def sends_an_invoice(card: str) -> None:
    send_invoice.enqueue(1, card=card)


@task(sensitive=("card", "return"))
def returns_a_secret(card: str) -> str:
    return f"{card} {next(_runs)}"


@task
def gives_up() -> None:
    raise Discard("nothing to do")


@task
def enqueues_after_the_commit() -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: add.enqueue(1, 2))
