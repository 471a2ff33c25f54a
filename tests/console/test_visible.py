"""What is invisible is spelt out on a page, and what a form sends back stays what it is."""

from __future__ import annotations

from contextlib import suppress
from html import unescape
from io import StringIO
from typing import Any

import pytest
from django.contrib import admin
from django.core.management import CommandError, call_command
from django.test import Client

from pulse_django.console.pages import ConsoleAdmin, all_visible
from pulse_django.queue.words.display import UNSEEN, inert
from pulse_django.queue.words.states import Status
from tests.console.test_every_page import fill
from tests.factories import make_job
from tests.faults import all_faults, each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db

TURNED = "gpj.\u202eexe"


@each_of(
    1,
    0x1B,
    0x7F,
    0x9B,
    0xAD,
    0x61C,
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x206A),
    0xFEFF,
    0xE0041,
)
def test_each_unseen_character_is_spelt_as_a_terminal_spells_it(*, number: Any) -> None:
    assert all_visible(f"<td>a{chr(number)}b</td>") == f"<td>{inert(f'a{chr(number)}b')}</td>"


@each_of("a\tb\nc", "naïve", "5\xa0minutes", "日本", "❤\ufe0f", "e\u0301", "שלום")
def test_what_is_seen_stays(*, text: Any) -> None:
    assert all_visible(text) is text


@each_of("👨\u200d👩\u200d👧", "می\u200cخواهم")
def test_joiners_within_a_word_or_a_picture_stay(*, text: Any) -> None:
    assert all_visible(f"<td>{text}</td>") == f"<td>{text}</td>"
    assert all_visible("<td>pay\u200dpal \u200d</td>") == "<td>pay\\u200dpal \\u200d</td>"


@each_of('<input value="{}">', "<textarea name='x' rows=3>\n{}</textarea>", '<option selected value="{}">')
def test_a_form_sends_back_what_it_was_given(*, page: Any) -> None:
    shown = all_visible(page.format(TURNED))
    assert UNSEEN.search(shown) is None
    assert unescape(shown) == page.format(TURNED)


def test_words_of_persian_keep_their_joiners_and_nothing_turns_them_around() -> None:
    assert all_visible("می\u200cشود \u202e", "fa") == "می\u200cشود \\u202e"
    assert all_visible("a\u200cb", "de") == "a\\u200cb"


def test_every_admin_of_ours_is_covered() -> None:
    ours = [one for model, one in admin.site._registry.items() if model._meta.app_label == "pulse_django"]
    assert len(ours) > 8
    assert [one for one in ours if not isinstance(one, ConsoleAdmin)] == []


def test_a_filter_by_such_a_name_still_finds_its_jobs(admin_client: Client) -> None:
    job = make_job(Status.DEAD_LETTERED, task=TURNED, queue=TURNED, last_error=TURNED)
    page = admin_client.get("/admin/pulse_django/job/", {"task": TURNED}).content.decode()
    assert UNSEEN.search(page) is None
    assert f"/{job.pk}/change/" in page
    assert "gpj.\\u202eexe" in page


def test_a_terminal_obeys_none_of_them_either() -> None:
    commands = [
        "pulse_status",
        "pulse_status --status DEAD_LETTERED",
        "pulse_limits",
        "pulse_schedules",
        "pulse_workflows",
        "pulse_check",
        "pulse_explain",
        "pulse_shards",
    ]
    rows = fill(f"{TURNED}\u200b\x1b[2J")
    with all_faults() as about:
        for command in commands:
            with about(command), undone():
                name, *options = command.split()
                if name == "pulse_explain":
                    options.append(str(rows["member"]))
                out, err = StringIO(), StringIO()
                with suppress(CommandError, SystemExit):
                    call_command(name, *options, stdout=out, stderr=err)
                said = out.getvalue() + err.getvalue()
                assert said.strip()
                assert UNSEEN.findall(said) == []
