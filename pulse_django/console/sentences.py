"""Translate sentences that the server or a command writes in English into the language of the page.

The conditions build their findings in SQL, and all their other outputs are in English. A sentence is recognised by its
form here, and the form is translated. A sentence without a form, such as that of an app's condition, is shown as it is
and marked as English.
"""

from __future__ import annotations

import re
from functools import cache

from django.utils import translation
from django.utils.html import format_html
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext_noop as _

from pulse_django.models import Schedule
from pulse_django.queue.words.display import in_words as seconds_in_words
from pulse_django.schedules.facts import in_words

# The first form that matches is used, so longer forms come first.
_FORMS = (
    # Conditions: failures
    _("%(jobs)s dead letters in the last hour"),
    _("%(bad)s of %(tried)s runs failed in the last %(minutes)s minutes, and %(before)s of %(all)s in the hour before"),
    _("%(bad)s of %(tried)s runs failed in the last %(minutes)s minutes"),
    _(
        "%(bad)s of %(tried)s ended jobs died in the last %(minutes)s minutes, and %(before)s of %(all)s in the hour "
        "before"
    ),
    _("%(bad)s of %(tried)s ended jobs died in the last %(minutes)s minutes"),
    _("%(leases)s leases expired in the last hour"),
    # jobs
    _("%(task)s attempt %(number)s: locked_by %(holder)s, lease_until %(until)s"),
    _("%(task)s attempt %(number)s: leased for %(time)s"),
    _("%(task)s attempt %(number)s by %(holder)s: over for %(time)s"),
    _("%(task)s attempt %(number)s ended as %(status)s and left no entry"),
    _("stands at %(position)s, and %(seen)s was granted"),
    _("%(task)s is %(status)s, enqueued by job %(parent)s, which was cancelled"),
    _("job %(needed)s, which it needs, is over for %(time)s"),
    _("it left for shard %(shard)s %(time)s ago"),
    _("%(jobs)s or more jobs; %(message)s"),
    # limits
    _("the oldest job has been due for %(time)s, %(runs)s of %(most)s running, paused until %(until)s (%(reason)s)"),
    _("the oldest job has been due for %(time)s, %(runs)s running, paused until %(until)s (%(reason)s)"),
    _("the oldest job has been due for %(time)s, %(runs)s of %(most)s running"),
    _("the oldest job has been due for %(time)s, %(runs)s running"),
    # queues
    _("the oldest job has been due for %(time)s"),
    _("due for %(time)s and not ready"),
    _("due for %(time)s, and no live worker serves it"),
    _("due for %(time)s while %(slots)s slots are free"),
    _("paused for %(time)s without an end (no reason given), jobs due for %(due)s"),
    _("paused for %(time)s without an end (%(reason)s), jobs due for %(due)s"),
    _("paused for %(time)s until %(until)s (no reason given), jobs due for %(due)s"),
    _("paused for %(time)s until %(until)s (%(reason)s), jobs due for %(due)s"),
    _("%(jobs)s or more jobs, in %(queues)s"),
    # schedules
    _("due for %(time)s, task %(task)s: no watchdog is running"),
    _("due for %(time)s, task %(task)s: it is catching up with missed ticks"),
    _("due for %(time)s, task %(task)s: no live worker has the task"),
    _("due for %(time)s, task %(task)s: watchdogs fail to decide it, or a transaction has locked its row"),
    _("refused at %(at)s: %(note)s"),
    # the schema and the server
    _("the sequence is missing: run migrate"),
    _("the column is missing: run migrate"),
    _("it has no unique index: add a UNIQUE constraint"),
    _("the index of %(table)s is missing"),
    _("the index of %(table)s is not valid"),
    _("the constraint of %(table)s is missing"),
    _("the constraint of %(table)s is not valid"),
    _("jobs that ended on this day are in pulse_django_job_other"),
    _("the day has no partition"),
    _("%(dead)s dead rows beside %(live)s live ones; last vacuum never"),
    _("%(dead)s dead rows beside %(live)s live ones; last vacuum %(at)s"),
    _("is %(ahead)s ahead of the server's clock"),
    _("a prepared transaction of %(owner)s, for %(time)s"),
    _("%(user)s is %(state)s, for %(time)s"),
    _("%(transactions)s transactions behind, and not in use"),
    # workers
    _("lost %(time)s ago, with %(runs)s runs"),
    _("no heartbeat for %(time)s, with %(runs)s runs"),
    _("%(stuck)s of %(all)s slots"),
    _("recorded for %(minute)s, %(time)s ago"),
)
# The subjects of conditions.
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
_PARTS_OF_LIMITS = (
    _("%(n)s running"),
    _("%(n)s of each key in %(time)s"),
    _("%(n)s of each key"),
    _("%(n)s in %(time)s"),
    _("no limit"),
)
_INTERVALS = (_("every %(time)s"),)
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


def sentence_shown(sentence: str) -> str:
    """Show the finding of a condition."""
    return _shown(sentence, _translated(sentence, _FORMS))


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
        words = f"every {seconds_in_words(schedule.every.total_seconds())}"
        return _shown(words, _translated(words, _INTERVALS))
    return _shown(words, None)


def limit_shown(words: str) -> str:
    """Show the numbers of a limit."""
    parts = [_translated(part, _PARTS_OF_LIMITS) for part in words.split(", ")]
    whole = None if None in parts else ", ".join(part for part in parts if part)
    return _shown(words, whole)
