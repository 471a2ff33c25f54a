"""Columns of short text behave in a project's expressions as any other CharField does."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import Case, Value, When
from django.db.models.functions import Coalesce, Concat

from pulse_django.models import Job
from tests.database import empty_tables
from tests.factories import make_job
from tests.faults import each

pytestmark = pytest.mark.usefixtures("pulse_db")


@each(
    [
        (Concat("queue", Value("-"), "task"), "mail-shop.echo"),
        (Concat(Value("-"), "queue"), "-mail"),
        (Case(When(priority__gt=5, then=Value("high")), default="queue"), "mail"),
        (Coalesce("locked_by", Value("nobody")), "nobody"),
        (Coalesce(Value("x"), "locked_by"), "x"),
    ],
    before=empty_tables,
)
def test_they_mix_with_other_text(expression: Any, expected: Any) -> None:
    make_job(task="shop.echo", queue="mail")
    assert Job.objects.annotate(found=expression).get().found == expected
