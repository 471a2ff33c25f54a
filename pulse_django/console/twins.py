"""What a message says of dead letters that were not retried because another job has their unique key."""

from __future__ import annotations

from django.utils.translation import ngettext


def sentence_about_twins(twins: int) -> str:
    """Return a sentence to append, or nothing."""
    if not twins:
        return ""
    left = ngettext(
        "%(count)d left: another job has its unique key.", "%(count)d left: other jobs have their unique keys.", twins
    )
    return f" {left % {'count': twins}}"
