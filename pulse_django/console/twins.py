"""What a message says of dead letters that were not retried: another job has their unique key, or their workflow was
cancelled."""

from __future__ import annotations

from django.utils.translation import ngettext


def sentences_about_left(twins: int, of_cancelled: int) -> str:
    """Return sentences to append, or nothing."""
    said = ""
    if twins:
        said += " " + ngettext(
            "%(count)d left: another job has its unique key.",
            "%(count)d left: other jobs have their unique keys.",
            twins,
        ) % {"count": twins}
    if of_cancelled:
        said += " " + ngettext(
            "%(count)d left: its workflow was cancelled.",
            "%(count)d left: their workflows were cancelled.",
            of_cancelled,
        ) % {"count": of_cancelled}
    return said
