"""What can be done to a limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulse_django.fleet.limits import LimitFacts
from pulse_django.models import Limiter, Pause
from pulse_django.words.display import in_words
from pulse_django.words.limiting import in_words as numbers_in_words
from pulse_django.words.limiting import key_of, lane_key, limiter_of, text_of_key

from .forms import ChangeForm, CloseForm, PauseForm


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user gave, and who it is."""

    form: Any = field(repr=False)
    by: str
    lane: str  # of the key that is to be resumed


def _limiters(alias: str) -> Any:
    return Limiter.objects.db_manager(alias)


def _change(alias: str, one: LimitFacts, wanted: Wanted) -> str:
    form = wanted.form
    numbers, reason = form.cleaned_data["numbers"], form.cleaned_data["reason"]
    _limiters(alias).override(one.name, numbers, for_=form.for_, by=wanted.by, reason=reason)
    return _("Changed to %(numbers)s: %(reason)s") % {"numbers": numbers_in_words(numbers), "reason": reason}


def _reset(alias: str, one: LimitFacts, wanted: Wanted) -> str:
    if one.override is None:
        return ""
    _limiters(alias).override(one.name, None, by=wanted.by)
    return _("Back to the numbers of the code")


def _close(alias: str, one: LimitFacts, wanted: Wanted) -> str:
    form, reason = wanted.form, wanted.form.cleaned_data["reason"]
    if not _limiters(alias).close(one.name, for_=form.for_, reason=reason):
        return ""
    return _("Closed for %(time)s: %(reason)s") % {"time": in_words(form.for_.total_seconds()), "reason": reason}


def _open(alias: str, one: LimitFacts, wanted: Wanted) -> str:
    return _("Opened") if _limiters(alias).reopen(one.name) else ""


def _pause(alias: str, one: LimitFacts, wanted: Wanted) -> str:
    key, reason = wanted.form.cleaned_data["key"], wanted.form.cleaned_data["reason"]
    lane, pauses = lane_key(one.name, text_of_key(key)), Pause.objects.db_manager(alias)
    if not pauses.pause(lane_key=lane, for_=wanted.form.for_, reason=reason, by=wanted.by):
        return ""
    return _("Key %(key)s paused: %(reason)s") % {"key": key, "reason": reason}


def _resume(alias: str, one: LimitFacts, wanted: Wanted) -> str:
    lane = wanted.lane
    if limiter_of(lane) != one.name or not Pause.objects.db_manager(alias).resume(lane_key=lane):
        return ""
    return _("Key %(key)s resumed") % {"key": key_of(lane)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One button."""

    do: Callable[[str, LimitFacts, Wanted], str]  # returns what was done; empty: nothing
    form: Callable[[Any], Any] = field(default=lambda _data: None, repr=False)
    refused: Any = ""  # what is said where nothing was done


ACTS = {
    "change": Act(do=_change, form=ChangeForm),
    "reset": Act(do=_reset),
    "close": Act(
        do=_close,
        form=lambda data: CloseForm(data, prefix="close"),
        refused=gettext_lazy("It is closed for longer already. Nothing was changed."),
    ),
    "open": Act(do=_open),
    "pause": Act(
        do=_pause,
        form=lambda data: PauseForm(data, prefix="pause"),
        refused=gettext_lazy("It is paused for longer already. Nothing was changed."),
    ),
    "resume": Act(do=_resume),
}
