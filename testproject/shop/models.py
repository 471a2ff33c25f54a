"""A shop that sends invoices: what real tasks write to."""

from __future__ import annotations

from django.db import models

from pulse_django.run.fencing import FencedModel


class Order(FencedModel):
    """An order. Several jobs write to it, so it remembers the newest token that did."""

    number = models.IntegerField(unique=True)
    state = models.CharField(max_length=20, default="new")
    report = models.TextField(blank=True, default="")

    def __str__(self) -> str:
        return f"order {self.number}"


class Invoice(models.Model):
    """An invoice. There should be one per order, and nothing but the tasks sees to it."""

    order_number = models.IntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"invoice of order {self.order_number}"


class Line(models.Model):
    """A line of an invoice."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines")
    text = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.text
