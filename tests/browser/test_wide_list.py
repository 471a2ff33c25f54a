"""On a screen of 1366 pixels each job of the list is one line, with its last error in sight and its id in one piece.

That is beside Django's navigation and the filter, which leave half of the screen to the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Browser

from pulse_django.queue.words.states import Status
from tests.browser.conftest import Visit, logged_in
from tests.factories import make_job

WIDTH = 1366
LONG = "shop.orders.fulfilment.tasks.send_the_confirmation_of_an_order_to_its_customer"
ERROR = "ConnectionRefusedError: [Errno 111] Connection refused while the mail of order 4711 was sent to its customer"

MEASURE = """() => [...document.querySelectorAll('#result_list tbody tr')].map(row => {
    const lines = name => {
        const range = document.createRange();
        range.selectNodeContents(row.querySelector(`.field-${name}`));
        return new Set([...range.getClientRects()].map(box => Math.round(box.top / 10))).size;
    };
    const error = row.querySelector('.field-error_in_short').getBoundingClientRect();
    const scrolls = document.querySelector('#result_list').parentElement.getBoundingClientRect();
    return {hidden: error.right - scrolls.right, error: lines('error_in_short'), id: lines('id'), task: lines('task')};
})"""


@pytest.fixture
def visit(browser: Browser, site: str) -> Iterator[Visit]:
    size: Any = {"width": WIDTH, "height": 768}
    context = browser.new_context(viewport=size, locale="en-US", timezone_id="UTC")
    visit = Visit(logged_in(context, site), site)
    yield visit
    context.close()
    assert visit.troubles == []


def test_each_job_is_one_line_with_its_error_in_sight(visit: Visit) -> None:
    for number in range(3):
        make_job(
            Status.DEAD_LETTERED, task=LONG, queue="the-mails-of-all-customers", args=[number, "x" * 200],
            id=9_000_000_000_000_000 + number, last_error=ERROR, locked_by=None,
        )  # fmt: skip
    visit.page.goto(f"{visit.site}{reverse('admin:pulse_django_job_changelist')}?status__exact=DEAD_LETTERED")
    rows = visit.page.evaluate(MEASURE)
    assert len(rows) == 3
    assert [row for row in rows if row["hidden"] > 0] == []
    assert [row for row in rows if (row["error"], row["id"], row["task"]) != (1, 1, 1)] == []
