"""The arguments and the result of a job, masked, for users who may see them. All pages use these functions."""

from __future__ import annotations

from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from pulse_django.encryption import values as encryption
from pulse_django.models import Job
from pulse_django.queue.database.sql_functions import UNREADABLE
from pulse_django.queue.words.masks import HIDDEN, is_encrypted

from .story import spelt

UNPARSED = _("Not shown: they cannot be parsed.")
UNKNOWN = _("Not shown: the task is not registered in this process, so its masked arguments are unknown.")

Arguments = tuple[list[Any], dict[str, Any]]


def arguments_shown(job: Job) -> Arguments | str | Promise:
    """Return the arguments with masked values replaced, or a text that says why they are not shown."""
    if UNREADABLE in (job.args, job.kwargs):
        return UNPARSED
    if is_encrypted(job.sensitive):
        return HIDDEN
    seen = encryption.shown(job.task, job.args, job.kwargs, job.sensitive)
    return UNKNOWN if seen is None else seen


def shows_all(job: Job) -> bool:
    """Return whether all arguments may be shown, and so also values that are made from them."""
    return arguments_shown(job) == (job.args, job.kwargs)


def result_shown(job: Job, result: Any) -> Any:
    """Return a result of a job or a step, a text in place of a hidden result, or None without a result."""
    if result is None:
        return None
    if is_encrypted(job.sensitive):
        return HIDDEN
    may_show = encryption.shows_result(job.task, job.sensitive)
    if may_show is None:
        return UNKNOWN
    return result if may_show else encryption.MASK


def result_in_text(job: Job, result: Any, most: int) -> str:
    """Return the result as text of at most this length, or "" without a result."""
    seen = result_shown(job, result)
    if seen is None:
        return ""
    text = str(seen) if seen is HIDDEN or seen is UNKNOWN or seen is encryption.MASK else spelt(seen)
    return text if len(text) <= most else f"{text[:most]}\n… {len(text)} characters in all"
