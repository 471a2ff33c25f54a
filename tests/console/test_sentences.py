"""What the server says in English is shown in the language of the page, and what is not known stays as it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils.translation import override

from pulse_django.console import sentences
from pulse_django.health.conditions import Limits, Sentence, ask, named
from pulse_django.models import Schedule
from tests.faults import each_of
from tests.health.states import SIMPLE, WITH_AN_END, brought_about, empty_and_vacuum
from tests.rival import Rival

# It lists names of threads and how often each was restarted.
NO_SENTENCE = {"thread-restarted"}


@pytest.mark.usefixtures("vacuumed")
@each_of(*sorted({*SIMPLE, *WITH_AN_END} - NO_SENTENCE))
def test_what_a_condition_found_is_translated(rival: Rival, *, name: Any) -> None:
    empty_and_vacuum()
    with brought_about(name, rival):
        finding = ask(named(name), "default", Limits(dead_rows=20, long_transaction=timedelta()))
    assert finding.subjects
    with override("de"):
        for subject in finding.subjects:
            shown = sentences.sentence_shown(subject.words)
            assert "lang=" not in shown, subject.words
            assert shown != subject.words, "it has no translation"
    with override("en"):
        assert sentences.sentence_shown(subject.words) == subject.words.replace("'", "&#x27;")


def test_what_has_no_known_form_is_shown_as_it_is_and_marked_as_english() -> None:
    with override("de"):
        assert sentences.sentence_shown("7 invoices <b>wait</b>") == (
            '<span lang="en">7 invoices &lt;b&gt;wait&lt;/b&gt;</span>'
        )
        assert sentences.subject_shown("mail <b>") == "mail &lt;b&gt;"
        assert sentences.reason_shown("the bank is down") == "the bank is down"
    with override("en"):
        assert sentences.sentence_shown("7 invoices <b>wait</b>") == "7 invoices &lt;b&gt;wait&lt;/b&gt;"


def test_a_language_without_a_translation_shows_english_and_says_so() -> None:
    with override("fr"):
        assert sentences.sentence_shown(Sentence("due for %(time)s and not ready", {"time": "00:05:00"})) == (
            '<span lang="en">due for 00:05:00 and not ready</span>'
        )
        assert sentences.limit_shown({"max_running": 5}) == '<span lang="en">5 running</span>'
        hourly = Schedule(name="a", task="shop.echo", every=timedelta(hours=1))
        assert sentences.timing_shown(hourly) == '<span lang="en">every 1h</span>'


def test_what_rows_say_within_a_sentence_is_kept_and_escaped() -> None:
    with override("de"):
        shown = sentences.sentence_shown(
            Sentence(
                "paused for %(time)s without an end (%(reason)s), jobs due for %(due)s",
                {"time": "00:05:00", "reason": "<i>, 100% (bank)", "due": "1 day 02:00:00"},
            )
        )  # fmt: skip
    assert shown == ("seit 00:05:00 ohne Ende pausiert (&lt;i&gt;, 100% (bank)), Jobs seit 1 Tag, 02:00:00 fällig")


def test_what_a_condition_is_about_is_translated_but_no_name() -> None:
    with override("de"):
        assert sentences.subject_shown("all queues") == "alle Queues"
        assert sentences.subject_shown("the end of attempt 2 of job 71") == "das Ende von Versuch 2 von Job 71"
        assert sentences.subject_shown("queue mail") == "Queue mail"


@each_of(
    ({"max_running": 5}, "5 laufend"),
    (
        {"max_running": 5, "max_running_per_key": 1, "rate": 100, "rate_per": 60},
        "5 laufend, 1 je Schlüssel, 100 pro 1m",
    ),
    ({"key_rate": 3, "key_rate_per": 3600}, "3 je Schlüssel in 1h"),
    ({}, "keine Grenze"),
)
def test_what_a_limit_allows_is_translated(*, numbers: Any, words: Any) -> None:
    with override("de"):
        assert sentences.limit_shown(numbers) == words


def test_a_schedule_is_a_sentence_in_english_and_its_expression_in_other_languages() -> None:
    daily = Schedule(name="a", task="shop.echo", cron="0 3 * * *", tz="Europe/Berlin")
    hourly = Schedule(name="b", task="shop.echo", every=timedelta(hours=1))
    broken = Schedule(name="c", task="shop.echo")
    assert sentences.timing_shown(daily) == "At 03:00 every day (Europe/Berlin)"
    assert sentences.timing_shown(hourly) == "Every hour"
    with override("de"):
        assert "0 3 * * *</code> Europe/Berlin" in sentences.timing_shown(daily)
        assert sentences.timing_shown(hourly) == "alle 1h"
        assert 'lang="en"' in sentences.timing_shown(broken)


def test_why_pulse_cancelled_a_job_is_translated() -> None:
    with override("de"):
        assert sentences.reason_shown("stopped: 3 of the first 10 died again") == (
            "gestoppt: 3 der ersten 10 wurden erneut Dead Letters"
        )
        assert sentences.reason_shown("job 7, which it needs, was cancelled") == (
            "Job 7, den er braucht, wurde abgebrochen"
        )
