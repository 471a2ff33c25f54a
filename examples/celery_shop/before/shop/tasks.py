from celery import chain, chord, group, shared_task
from django.core.mail import send_mail as send
from django.db import transaction

from shop.models import Charge, Order
from shop.suppliers import SUPPLIERS, TemporarilyDown, price_of


@shared_task
def reserve(order_id):
    Order.objects.filter(pk=order_id).update(status="reserved")


@shared_task(bind=True)
def charge(self, order_id):
    # A worker that dies after the INSERT and before the acknowledgement charges twice, so look first.
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=order_id)
        found = Charge.objects.filter(order=order).first()
        if found is None:
            found = Charge.objects.create(order=order, receipt=f"receipt-{order_id}")
    return found.receipt


@shared_task
def ship(receipt, order_id):
    Order.objects.filter(pk=order_id).update(status="shipped")
    return receipt


@shared_task(rate_limit="60/m", ignore_result=True)
def send_mail(receipt, order_id):
    order = Order.objects.get(pk=order_id)
    send("Your order", f"It is on its way. {receipt}", None, [order.email])


@shared_task(autoretry_for=(TemporarilyDown,), retry_backoff=True, max_retries=5)
def fetch_price(supplier):
    return [supplier, price_of(supplier)]


@shared_task
def choose_cheapest(prices):
    return min(prices, key=lambda one: one[1])[0]


@shared_task
def refresh_prices():
    return chord(fetch_price.s(supplier) for supplier in SUPPLIERS)(choose_cheapest.s()).id


def place_order(order_id):
    return chain(reserve.si(order_id), charge.si(order_id), ship.s(order_id), send_mail.s(order_id)).apply_async()


def remind(order_ids):
    return group(send_mail.s("A reminder", order_id) for order_id in order_ids).apply_async(countdown=3600)
