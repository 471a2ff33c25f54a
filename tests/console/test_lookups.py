"""No list of the admin can be filtered, ordered or searched by values that its user may not see, or reads them."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import product

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import JSONField
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext

from pulse_django.models import Schedule
from pulse_django.queue.words.states import Status
from tests.console.staff import staff
from tests.factories import make_job
from tests.faults import all_faults

pytestmark = pytest.mark.django_db

LISTS = {
    one.__name__.lower(): page for one, page in admin.site._registry.items() if one._meta.app_label == "pulse_django"
}
# The names of columns in addresses of lists. All others are names of filters.
ALLOWED = {
    "worker": {"host", "host__isnull", "name"},
    "schedule": {"name", "task"},
    "job": {"batch", "queue", "status__exact", "task"},
}
LOOKUPS = ("", "__exact", "__isnull", "__gt", "__startswith", "__regex", "__card", "__card__startswith", "__0__gt")


def test_only_named_columns_can_be_in_the_address_of_a_list() -> None:
    request = RequestFactory().get("/")
    for name, page in LISTS.items():
        fields = [field.name for field in page.model._meta.get_fields()]
        found = {
            lookup for lookup in map("".join, product(fields, LOOKUPS)) if page.lookup_allowed(lookup, "x", request)
        }
        assert found == ALLOWED.get(name, set()), name
    assert any(isinstance(field, JSONField) for page in LISTS.values() for field in page.model._meta.get_fields())


def test_what_is_not_allowed_is_no_filter_no_order_and_no_search() -> None:
    client = staff("pulse_view_schedules", "pulse_view_jobs", "pulse_view_workers")
    Schedule.objects.create(name="one", task="shop.echo", args=["4711"], every=timedelta(hours=1))
    refused = ["kwargs__card__startswith=4", "args__0=1", "id__gt=0", "name=%00"]
    with all_faults() as about:
        for name, query in product(("schedule", "worker", "job"), refused):
            with about((name, query)):
                answer = client.get(f"/admin/pulse_django/{name}/?{query}")
                assert answer.status_code == 302
                assert answer.headers["Location"].endswith("?e=1")
    assert not client.get("/admin/pulse_django/schedule/?q=4711").context["cl"].result_list
    for place in range(1, 9):
        page = client.get(f"/admin/pulse_django/schedule/?o={place}")
        assert not {"args", "kwargs"} & {str(one).strip("-") for one in page.context["cl"].queryset.query.order_by}


def test_lists_read_no_column_that_they_do_not_show() -> None:
    unseen = {
        "job": ("args", "kwargs", "result", "meta", "on_dead", "cancel_reason", "search_terms"),
        "worker": ("versions", "tasks", "vitals", "stack"),
        "storedbatch": ("context",),
        "schedule": ("declared",),
    }
    make_job(Status.DEAD_LETTERED)
    client = staff("pulse_view_jobs", "pulse_view_workers", "pulse_view_workflows", "pulse_view_schedules")
    with all_faults() as about:
        for page, columns in unseen.items():
            with about(page), CaptureQueriesContext(connection) as sent:
                assert client.get(f"/admin/pulse_django/{page}/").status_code == 200
                table = f"pulse_django_{page.removeprefix('stored')}"
                read = " ".join(one["sql"] for one in sent if table in one["sql"])
                assert read
                assert [name for name in columns if re.search(rf"\b{name}\b", read)] == []
