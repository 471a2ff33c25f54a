"""Columns of short text behave in a project's expressions as any other CharField does."""

from __future__ import annotations

import pytest
from django.db.models import Case, Value, When
from django.db.models.functions import Coalesce, Concat

from pulse_django.models import Job
from tests.database import empty_tables
from tests.factories import make_job
from tests.faults import all_faults

pytestmark = pytest.mark.usefixtures("pulse_db")


def test_they_mix_with_other_text() -> None:
    cases = {
        "concat": (Concat("queue", Value("-"), "task"), "mail-shop.echo"),
        "value first": (Concat(Value("-"), "queue"), "-mail"),
        "case": (Case(When(priority__gt=5, then=Value("high")), default="queue"), "mail"),
        "coalesce": (Coalesce("locked_by", Value("nobody")), "nobody"),
        "coalesce, value first": (Coalesce(Value("x"), "locked_by"), "x"),
    }
    with all_faults() as about:
        for case, (expression, expected) in cases.items():
            with about(case):
                empty_tables()
                make_job(task="shop.echo", queue="mail")
                assert Job.objects.annotate(found=expression).get().found == expected
