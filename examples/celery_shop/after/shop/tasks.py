from django.core.mail import send_mail as send
from pulse_django import Cron, Limit, Rate, chain, chord, group, retry_on, task

from shop.models import Charge, Order
from shop.suppliers import SUPPLIERS, TemporarilyDown, price_of


@task
def reserve(order_id):
    Order.objects.filter(pk=order_id).update(status="reserved")


def take_money(order_id):
    return Charge.objects.create(order_id=order_id, receipt=f"receipt-{order_id}").receipt


@task(takes_context=True)
def charge(context, order_id):
    # The charge and the note that it was made are one transaction: a run after a kill does not call it again.
    return context.step("take money", take_money, order_id, atomic=True)


@task(takes_context=True)
def ship(context, order_id):
    Order.objects.filter(pk=order_id).update(status="shipped")
    return context.results["charge"]


@task(queue_name="mail", limit=Limit(rate=Rate(60, per="minute")), takes_context=True)
def send_mail(context, order_id, text=None):
    order = Order.objects.get(pk=order_id)
    text = text or context.results["ship"]
    send("Your order", f"It is on its way. {text}", None, [order.email])


@task(retry=retry_on(TemporarilyDown), max_attempts=6)
def fetch_price(supplier):
    return [supplier, price_of(supplier)]


@task(takes_context=True)
def choose_cheapest(context):
    prices = context.results.values()
    return min(prices, key=lambda one: one[1])[0]


@task(schedule=Cron("0 3 * * *", tz="Europe/Berlin"))
def refresh_prices():
    flow = chord([fetch_price.prepare(supplier) for supplier in SUPPLIERS], choose_cheapest.prepare())
    return flow.enqueue().job_ids["choose_cheapest"]


def place_order(order_id):
    parts = (reserve.prepare(order_id), charge.prepare(order_id), ship.prepare(order_id), send_mail.prepare(order_id))
    return chain(*parts).enqueue()


def remind(order_ids):
    later = send_mail.using(run_after=3600)
    return group(later.prepare(order_id, text="A reminder") for order_id in order_ids).enqueue()
