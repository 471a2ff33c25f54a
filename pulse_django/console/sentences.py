"""Show sentences that are written in English, for logs and commands too, in the language of the page.

The finding of a condition has its form and its values. A reason of a job is stored as text: it is recognised by its
form here. A sentence without a translation, such as that of an app's condition, is marked as English.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from django.utils import translation
from django.utils.html import format_html
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext_noop as _

from pulse_django.health.conditions import Sentence
from pulse_django.health.conditions.asking import MOST_CHARACTERS
from pulse_django.limits.rules import in_words as numbers_in_words
from pulse_django.models import Schedule
from pulse_django.queue.words.display import in_words as seconds_in_words
from pulse_django.queue.words.display import inert
from pulse_django.schedules.facts import in_words

# The subjects of conditions. The first form that matches is used.
_SUBJECTS = (
    _("all queues"),
    _("latest minute"),
    _("the creation of job %(job)s"),
    _("the start of job %(job)s"),
    _("the end of attempt %(number)s of job %(job)s"),
    _("the end of job %(job)s"),
    _("the pause of queue %(queue)s"),
    _("replication slot %(slot)s"),
    _("queue %(name)s"),
    _("task %(name)s"),
    _("worker %(name)s"),
    _("job %(name)s"),
)
_REASONS = (
    _("stopped: %(died)s of the first %(all)s died again"),
    _("stopped: none of the first could be retried"),
    _("stopped: %(going)s of the first %(all)s have not ended in time"),
    _("its parent was cancelled"),
    _("not started in time"),
    _("waited for the last job"),
    _("job %(job)s, which it needs, is a dead letter"),
    _("job %(job)s, which it needs, was cancelled"),
    _("no job of the batch became a dead letter"),
    _("batch %(batch)s, which it needs, has dead letters"),
    _("batch %(batch)s, which it needs, was cancelled"),
)
_PLACE = re.compile(r"%\\\((\w+)\\\)s")  # after re.escape()
_DAYS = re.compile(r"(\d+) days? (\d\d:\d\d:\d\d)")


@cache
def _pattern(form: str) -> re.Pattern[str]:
    return re.compile(_PLACE.sub(r"(?P<\1>.+?)", re.escape(form)), re.DOTALL)


def _translated(sentence: str, forms: tuple[str, ...]) -> str | None:
    """Return the sentence in the language of the page, or None if it has none of these forms or no translation."""
    for form in forms:
        if found := _pattern(form).fullmatch(sentence):
            translated = translation.gettext(form)
            values = {name: _days(value) for name, value in found.groupdict().items()}
            return None if translated == form else translated % values
    return None


def _days(value: str) -> str:
    if found := _DAYS.fullmatch(value):  # an interval as PostgreSQL writes it
        days = int(found[1])
        return ngettext("%(days)d day, %(time)s", "%(days)d days, %(time)s", days) % {"days": days, "time": found[2]}
    return value


def _is_english() -> bool:
    return (get_language() or "en").startswith("en")


def _shown(sentence: str, translated: str | None) -> str:
    if translated is None and not _is_english():
        return format_html('<span lang="en">{}</span>', sentence)
    return format_html("{}", sentence if translated is None else translated)


def sentence_shown(said: str) -> str:
    """Show the finding of a condition. Text from rows is made inert."""
    form, values = (said.form, said.values) if isinstance(said, Sentence) else (said, {})
    translated = translation.gettext(form) if form else form
    if translated == form:
        return _shown(inert(said, MOST_CHARACTERS), None)
    shown = {name: _days(str(value)) for name, value in values.items()}
    return format_html("{}", inert(translated % shown if shown else translated, MOST_CHARACTERS))


def reason_shown(reason: str) -> str:
    """Show the reason of a cancellation. Translate reasons written by Pulse, and leave those written by people."""
    return _translated(reason, _REASONS) or reason


def subject_shown(key: str) -> str:
    """Show the subject of a condition. A bare name is not translated."""
    translated = _translated(key, _SUBJECTS)
    return format_html("{}", key if translated is None else translated)


def timing_shown(schedule: Schedule) -> str:
    """Show when a schedule is due: in English as a sentence, and in other languages as its expression or interval."""
    words = in_words(schedule)
    if _is_english():
        return format_html("{}", words)
    if schedule.cron:
        return format_html('<code title="{}" lang="en">{}</code> {}', words, schedule.cron, schedule.tz)
    if schedule.every:
        return sentence_shown(Sentence("every %(time)s", {"time": seconds_in_words(schedule.every.total_seconds())}))
    return _shown(words, None)


def limit_shown(numbers: Mapping[str, Any]) -> str:
    """Show the numbers of a limit."""
    english, words = numbers_in_words(numbers), numbers_in_words(numbers, translation.gettext)
    return _shown(english, None if words == english else words)
