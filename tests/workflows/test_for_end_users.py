"""What end users see of a batch: a bar in a template, and four numbers as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.http import Http404, HttpRequest
from django.template import Context, Template
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from pulse_django import Batch
from pulse_django.testing import drain
from pulse_django.views import batch_progress
from tests.workflows.tasks import BROKEN, note

pytestmark = pytest.mark.django_db


def made() -> Batch:
    """A batch of four: two completed, one dead letter, one open."""
    BROKEN.add("c")
    batch = Batch.open("import", context={"secret": 1})
    for name in "abc":
        batch.add(note.prepare(name))
    drain(failures="keep")
    batch.add(note.prepare("d"))
    batch.seal()
    return batch


def shown(batch: object) -> str:
    return Template("{% load pulse %}{% pulse_batch_progress batch %}").render(Context({"batch": batch})).strip()


def asked(batch_id: int, *, may: bool = True, method: str = "get") -> Any:
    def may_see(request: HttpRequest, asked_for: int) -> bool:
        assert asked_for == batch_id
        return may

    return batch_progress(getattr(RequestFactory(), method)("/"), batch_id, may_see=may_see)


def test_a_template_shows_a_bar_and_the_numbers_as_text() -> None:
    batch = made()
    assert shown(batch.id) == (
        '<span class="pulse-batch-progress"><progress max="100" value="50" aria-label="Progress">50 %</progress>'
        " 2 of 4 done, 1 failed</span>"
    )
    assert shown(batch) == shown(batch.row) == shown(str(batch.id)) == shown(batch.id)
    with translation.override("de"):
        assert "2 von 4 fertig, 1 fehlgeschlagen" in shown(batch)


def test_of_an_empty_batch_all_is_done_and_of_none_nothing_is_shown() -> None:
    assert 'value="100"' in shown(Batch.open("empty"))
    assert shown(987654) == ""


def test_the_view_returns_four_numbers_and_nothing_else() -> None:
    batch = made()
    with CaptureQueriesContext(connection) as sent:
        answer = asked(batch.id)
    assert json.loads(answer.content) == {"done": 2, "failed": 1, "open": 1, "percent": 50}
    assert "no-store" in answer["Cache-Control"]
    assert len(sent) == 1


def test_who_may_not_see_it_learns_as_much_as_of_one_that_there_is_not() -> None:
    batch = made()
    with pytest.raises(Http404):
        asked(batch.id, may=False)
    for nothing in (0, 987654, 10**30):
        with pytest.raises(Http404):
            asked(nothing)


def test_the_view_only_reads() -> None:
    assert asked(made().id, method="post").status_code == 405
