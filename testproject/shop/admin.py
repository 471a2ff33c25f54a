"""Orders in the admin, with their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin

from pulse_django.admin import JobsOfObject

from .models import Order

if TYPE_CHECKING:
    OrderAdminBase = admin.ModelAdmin[Order]
else:
    OrderAdminBase = admin.ModelAdmin


@admin.register(Order)
class OrderAdmin(JobsOfObject, OrderAdminBase):
    list_display = ("number", "state")
