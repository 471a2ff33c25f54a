"""Tags and filters of the templates of the console. Do not use them in your own pages."""

from __future__ import annotations

from datetime import datetime

from django import template

from pulse_django.console.sentences import limit_shown, reason_shown, sentence_shown, subject_shown
from pulse_django.console.statuses import SHORT, instant_shown, status_shown

register = template.Library()
register.simple_tag(status_shown, name="pulse_status")
register.filter("sentence", sentence_shown)
register.filter("subject", subject_shown)
register.filter("limit_words", limit_shown)
register.filter("reason", reason_shown)


@register.filter(expects_localtime=True)
def instant(at: datetime | None, form: str = SHORT) -> str:
    """Show an instant in this format, with seconds and time zone on hover."""
    return instant_shown(at, form=form)


@register.filter(expects_localtime=True)
def instant_as(at: datetime | None, text: str) -> str:
    """Show this text, with its instant on hover."""
    return instant_shown(at, text)
