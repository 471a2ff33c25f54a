from django.core import mail
from django.test import TestCase, override_settings

from shop.models import Charge, Order
from shop.tasks import place_order


@override_settings(CELERY_TASK_ALWAYS_EAGER=True)
class OrderTests(TestCase):
    def test_an_order_is_charged_and_shipped(self):
        order = Order.objects.create(email="ada@example.com")
        place_order(order.pk)
        order.refresh_from_db()
        self.assertEqual(order.status, "shipped")
        self.assertEqual(Charge.objects.count(), 1)
        self.assertEqual(len(mail.outbox), 1)
