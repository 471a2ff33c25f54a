import json
from datetime import timedelta

from django.core import mail
from django.test import RequestFactory, TestCase
from pulse_django.models import Job
from pulse_django.testing import assert_workflow_idempotent, drain
from pulse_django import chain

from shop import views
from shop.models import Charge, Order
from shop.tasks import charge, place_order, remind, reserve, ship


class OrderTests(TestCase):
    def setUp(self):
        self.order = Order.objects.create(email="ada@example.com")

    def test_an_order_is_charged_and_shipped(self):
        place_order(self.order.pk)
        drain()
        self.order.refresh_from_db()
        self.assertEqual(self.order.status, "shipped")
        self.assertEqual(Charge.objects.count(), 1)
        self.assertIn(f"receipt-{self.order.pk}", mail.outbox[0].body)

    def test_it_is_charged_once_whenever_a_worker_is_killed(self):
        pk = self.order.pk
        assert_workflow_idempotent(chain(reserve.prepare(pk), charge.prepare(pk), ship.prepare(pk)))

    def test_mail_has_a_queue_of_its_own(self):
        place_order(self.order.pk)
        self.assertEqual(Job.objects.get(node="send_mail").queue, "mail")

    def test_a_reminder_waits_for_an_hour(self):
        remind([self.order.pk])
        drain()
        self.assertEqual(len(mail.outbox), 0)
        job = Job.objects.get()
        self.assertAlmostEqual(job.next_run_at - job.created_at, timedelta(hours=1), delta=timedelta(minutes=1))

    def test_a_view_reads_the_result(self):
        request = RequestFactory().post("/")
        started = json.loads(views.refresh(request).content)["id"]
        before = json.loads(views.cheapest(request, started).content)
        drain()
        after = json.loads(views.cheapest(request, started).content)
        self.assertEqual((before["ready"], after), (False, {"ready": True, "supplier": "west"}))

    def test_an_order_that_is_rolled_back_leaves_no_jobs(self):
        request = RequestFactory().post("/", {"email": "x" * 300})  # longer than the column
        with self.assertRaises(Exception):
            views.order(request)
        self.assertEqual(Job.objects.count(), 0)
