"""The console in another language: every word that is to be translated is, and what is sent is the translation."""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client, override_settings
from django.urls import reverse
from django.utils.translation import override
from django.utils.translation.template import templatize

import pulse_django
from pulse_django.health.conditions import known
from pulse_django.limits.why import WhyOfLimits
from pulse_django.queue.database.sql_functions import OUTCOMES, STATUSES
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import Status
from tests.factories import make_job, now
from tests.faults import all_faults

APP = Path(pulse_django.__file__).parent
MESSAGES = APP / "locale/de/LC_MESSAGES"
MARKS = {"_", "gettext", "gettext_lazy", "ngettext"}
_IN_TEMPLATE = re.compile(r"""gettext\((u?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"))""")
_PLACE = re.compile(r"%\((\w+)\)[sd]|%[sd]")


def catalogue() -> dict[str, str]:
    """The texts and their translations, as the compiled file has them; of a plural both forms, in one text."""
    with (MESSAGES / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    found: dict[str, str] = {}
    for key, text in compiled._catalog.items():  # type: ignore[attr-defined]
        singular = key[0] if isinstance(key, tuple) else key
        found[singular] = f"{found.get(singular, '')}{text}"
    found.pop("")
    return found


def marked() -> Iterator[str]:
    """What the code marks for translation."""
    for path in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS and node.args:
                first = node.args[0]
                assert isinstance(first, ast.Constant), f"{path}:{node.lineno}: only a text can be translated"
                yield str(first.value)
    for path in APP.rglob("*.html"):
        # What Django itself looks up: of a block with its variables, and with each sign for percent doubled.
        source = templatize(path.read_text(), origin=str(path))
        yield from (ast.literal_eval(text) for text in _IN_TEMPLATE.findall(source))


def test_every_text_is_translated_and_none_is_left_over_from_before() -> None:
    known = catalogue()
    assert set(marked()) - known.keys() == set(), "django-admin makemessages -l de, in pulse_django"
    assert [text for text, translation in known.items() if not translation] == []


def test_a_translation_says_what_the_text_says() -> None:
    for text, translation in catalogue().items():
        assert set(_PLACE.findall(translation)) == set(_PLACE.findall(text)), text


def test_numbers_are_in_their_places() -> None:
    with override("de"):
        said = str(WhyOfLimits.sentences["limit-full"]) % {"limit": "x", "held": 17, "most": 5}
    assert said == "Das Limit x ist voll: 17 von 5 Jobs laufen."


def test_the_compiled_file_is_of_the_text_beside_it() -> None:
    written = (MESSAGES / "django.po").read_text()
    translated = {ast.literal_eval(line[6:]) for line in re.findall(r'^msgid ".*"$', written, re.MULTILINE)} - {""}
    assert translated == catalogue().keys(), "django-admin compilemessages, in pulse_django"
    assert re.findall(r'^msgid (".+")\nmsgstr ""\n(?!")', written, re.MULTILINE) == [], "these have no translation"
    for text in re.findall(r'^msgstr (".+")$', written, re.MULTILINE):
        assert ast.literal_eval(text) in catalogue().values()


def test_statuses_and_outcomes_are_all_named_and_translated() -> None:
    assert [value for value, _ in STATUSES] == list(Status)
    assert [value for value, _ in OUTCOMES] == list(OutcomeName)


def test_what_conditions_mean_and_what_to_do_is_translated() -> None:
    """They are marked by no call, because commands and logs say them in English."""
    texts = {text for one in known() for text in (one.means, one.to_do, str(one.severity))}
    assert texts - catalogue().keys() == set()


def test_each_form_of_a_sentence_in_the_query_of_a_condition_is_translated() -> None:
    """A query may put a form together, so each part with a value must be within a text of the catalogue."""
    of_sql = {part for one in known() for part in re.findall(r"'((?:[^']|'')*%%\((?:[^']|'')*)'", one.sql)}
    parts = {part.replace("%%", "%").replace("''", "'") for part in of_sql}
    assert len(parts) > 30
    assert {part for part in parts if not any(part in text for text in catalogue())} == set()


@pytest.mark.usefixtures("pulse_db")
@override_settings(LANGUAGE_CODE="de")
def test_the_board_says_in_german_what_to_do(admin_client: Client) -> None:
    make_job(queue="mail", next_run_at=now(timedelta(hours=-1)))
    page = admin_client.get(reverse("admin:pulse_django_board_changelist")).content.decode()
    assert "Kein lebender Worker bedient die Queue" in page
    assert "No live worker serves the queue" not in page


@pytest.mark.usefixtures("pulse_db")
@override_settings(LANGUAGE_CODE="de")
def test_every_list_opens_in_german(admin_client: Client) -> None:
    make_job(Status.DEAD_LETTERED)
    with all_faults() as about:
        for kind in ["job", "deadletter", "board", "queue", "worker"]:
            with about(kind):
                page = admin_client.get(reverse(f"admin:pulse_django_{kind}_changelist"))
                assert page.status_code == 200
                assert 'lang="de"' in page.content.decode()


@pytest.mark.usefixtures("pulse_db")
@override_settings(LANGUAGE_CODE="de")
def test_the_page_of_a_job_speaks_german(admin_client: Client) -> None:
    job = make_job(Status.DEAD_LETTERED)
    url = reverse("admin:pulse_django_job_change", args=[job.pk])
    page = admin_client.get(url).content.decode()
    assert "Verfügbare Aktionen" in page
    assert "Wiederholen" in page
    assert "Available actions" not in page
    assert "Dead Letter</span></strong>" in page
