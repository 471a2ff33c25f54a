"""In German no page of the console says anything in English but what rows say."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse

from pulse_django.models import Job, Pause, Schedule, StoredAttempt
from tests.browser import scene
from tests.console.test_every_page import Address, with_rows
from tests.console.test_languages import catalogue

pytestmark = [pytest.mark.usefixtures("pulse_db")]

# Texts that Django does not have in German in all of its releases.
OF_DJANGO = re.compile(r"Run|- Select an option -|Are you sure you want to delete .*")
_WORD = re.compile(r"(?<![\w./:=-])[A-Za-z]{3,}(?![\w/:=-]|\.\w)")
_SHOWN = ("title", "aria-label", "placeholder", "alt")


class Texts(HTMLParser):
    """What a page says in its content: texts and the attributes that are read out or shown."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._quiet = 0  # within scripts, styles, and what is quoted from rows
        self._open: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if dict(attrs).get("lang") != "en":
            self.found += [value for name, value in attrs if name in _SHOWN and value and not self._quiet]
        if tag in ("input", "br", "img", "hr", "link", "meta", "wbr"):
            return
        told = dict(attrs)
        is_quiet = (
            tag in ("script", "style", "code", "pre", "bdi", "textarea", "head")
            or told.get("lang") == "en"  # it says that it is English: details of conditions, times of schedules
            or told.get("id") in ("nav-sidebar", "header")
        )
        self._open.append(is_quiet)
        self._quiet += is_quiet

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("input", "br", "img", "hr", "link", "meta", "wbr") and self._open:
            self._quiet -= self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._quiet and data.strip():
            self.found.append(" ".join(data.split()))


def words(text: str) -> set[str]:
    """Return the words of a text, without constants and acronyms: FAILED and JSON are so in all languages."""
    return {word.lower() for word in _WORD.findall(text) if not word.isupper()}


def english_words() -> set[str]:
    """Return the words that our texts have in English and nowhere in German."""
    texts = catalogue()
    english = {word for text in texts for word in words(re.sub(r"%\(\w+\)[sd]", " ", text))}
    german = {word for text in texts.values() for word in words(re.sub(r"%\(\w+\)[sd]", " ", text))}
    return english - german


def same(text: str) -> str:
    """Return a text as groups of errors show it."""
    return re.sub(r"'[^']*'|\d+", "#", " ".join(text.split()))


def of_rows() -> set[str]:
    """Return what rows say."""
    said = [
        *Job.objects.values_list("last_error", "cancel_reason"),
        *Schedule.objects.values_list("name", "pause_reason"),
    ]
    said += [*StoredAttempt.objects.values_list("message"), *Pause.objects.values_list("reason")]
    texts = {same(text) for row in said for text in row if text}
    return texts | {text.partition(": ")[2] for text in texts}


def of_ours(text: str, rows: set[str]) -> str:
    """Return what is left of a text without what rows say."""
    text = same(text)
    if text.strip(": ") in rows:
        return ""
    for one in sorted(rows, key=len, reverse=True):
        text = text.replace(one, " ") if " " in one else text  # a short one may be a part of any word
    return "" if OF_DJANGO.fullmatch(text) else text


def pages(client: Client, rows: list[Address]) -> dict[str, str]:
    found = {}
    for address in rows:
        for query in ({}, {"name": "mail"}, {"error": "KeyError: x"}):
            answer = client.get(address.url, query)
            if answer.status_code == 200 and "html" in answer["Content-Type"]:
                found[f"{address.name}?{query}"] = answer.content.decode()
    return found


@override_settings(LANGUAGE_CODE="de")
def test_no_page_has_an_english_word_of_ours() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("operator"))
    english = english_words()
    assert {"dead", "letters", "queue", "waiting"} & english, "or it would find nothing"
    rows = with_rows()
    shown = scene.build()
    found = pages(client, rows)
    found["the zombie"] = client.get(reverse("admin:pulse_django_job_change", args=[shown.zombie.pk])).content.decode()
    left: dict[str, set[str]] = {}
    said = of_rows()
    for name, page in found.items():
        texts = Texts()
        texts.feed(page)
        for text in texts.found:
            if words(of_ours(text, said)) & english:
                left.setdefault(text, set()).add(name)
    User.objects.all().delete()
    assert sorted(left) == []
