"""Handlers that nobody should write, for tests."""

from __future__ import annotations

import builtins
import itertools
from typing import Any

from pulse_django import Context, task
from testproject.shop.models import Invoice, Line


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
def raises(kind: str) -> None:
    raise getattr(builtins, kind)("no")


@task
def cannot_be_told(trouble: str) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise getattr(builtins, trouble)

    raise Unspeakable


@task
def recurses() -> None:
    recurses.call()


@task(takes_context=True)
async def counts_on_the_loop(context: Context, total: int) -> Any:
    for done in range(1, total + 1):
        context.check()
        await context.acheck()
        context.progress(done, total)
        await context.aprogress(done, total, flush=True)
    return context.checkpoint
