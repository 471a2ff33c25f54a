"""Tasks as a project writes them: plain, careful, careless, slow and hopeless."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from pulse_django import Context, fenced_update, retry_unless, task
from testproject.shop.models import Invoice, Line, Order


@task
def add(a: int, b: int) -> int:
    return a + b


@task(name="shop.echo", aliases=("shop.parrot",))
def echo(value: Any) -> Any:
    return value


@task
async def add_async(a: int, b: int) -> int:
    return a + b


@task(atomic=True)
def make_invoice(order_number: int) -> int:
    """One invoice per order: the row and the completion are one transaction."""
    invoice = Invoice.objects.create(order_number=order_number)
    Line.objects.create(invoice=invoice, text="the goods")
    return order_number


@task
def make_invoice_carelessly(order_number: int) -> int:
    """An invoice per run, and there may be two runs."""
    Invoice.objects.create(order_number=order_number)
    return order_number


@task(takes_context=True)
def make_invoice_by_hand(context: Context, order_number: int) -> str:
    """Long work first, then its effects and the completion in one transaction."""
    with context.atomic() as completion:
        Invoice.objects.create(order_number=order_number)
        completion.result = {"order": order_number}
    return "not the result: the job was complete before"


@task(takes_context=True, progress_timeout=timedelta(minutes=5))
def send_letters(context: Context, total: int) -> list[int]:
    """Resume where the last attempt stopped."""
    done = context.checkpoint["done"] if context.checkpoint else 0
    sent = []
    while done < total:
        context.check()
        sent.append(done)
        done += 1
        context.progress(done, total, flush=True)
    return sent


@task(takes_context=True)
def write_report(context: Context, number: int, text: str) -> int:
    """Several of these may run for one order; the newest has the last word."""
    return fenced_update(Order.objects.filter(number=number), context, report=text, state="reported")


@task(retry=retry_unless(ValueError), max_attempts=3)
def fail(message: str, kind: str = "RuntimeError") -> None:
    raise {"ValueError": ValueError, "RuntimeError": RuntimeError, "SystemExit": SystemExit}[kind](message)


@task(takes_context=True, queue_name="mail", priority=5)
def later(context: Context, what: str) -> None:
    """Snooze once, or find that nobody wants it."""
    if what == "snooze" and context.attempt == 1:
        context.snooze(timedelta(hours=1))
    if what == "discard":
        context.discard("nobody wants it")


@task(takes_context=True)
def start_children(context: Context, count: int) -> list[str]:
    return [str(add.enqueue(n, n).id) for n in range(count)]


@task
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@task(name="shop.send_invoice", sensitive=("card",))
def send_invoice(order: int, card: str = "") -> str:
    """A card's number is nobody's business: it is masked wherever people look."""
    return f"invoice for order {order}"


@task(name="shop.send_mail")
def send_mail(order: int) -> str:
    return f"mail about order {order}"


@task(name="shop.export_report", takes_context=True)
def export_report(context: Context, month: str, rows: int = 1_000) -> int:
    """Tell how far it is, and listen."""
    for done in range(rows):
        context.check()
        context.progress(done + 1, rows, month=month)
        time.sleep(0.05)
    return rows
