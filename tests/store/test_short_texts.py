"""Columns of short text behave in a project's expressions as any other CharField does."""

from __future__ import annotations

import pytest
from django.db.models import Case, Expression, Value, When
from django.db.models.functions import Coalesce, Concat

from pulse_django.models import Job
from tests.factories import make_job

pytestmark = pytest.mark.usefixtures("pulse_db")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Concat("queue", Value("-"), "task"), "mail-shop.echo"),
        (Concat(Value("-"), "queue"), "-mail"),
        (Case(When(priority__gt=5, then=Value("high")), default="queue"), "mail"),
        (Coalesce("locked_by", Value("nobody")), "nobody"),
        (Coalesce(Value("x"), "locked_by"), "x"),
    ],
    ids=["concat", "value first", "case", "coalesce", "coalesce, value first"],
)
def test_they_mix_with_other_text(expression: Expression, expected: str) -> None:
    make_job(task="shop.echo", queue="mail")
    assert Job.objects.annotate(found=expression).get().found == expected
