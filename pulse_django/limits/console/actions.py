"""The acts on the page of a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulse_django.console.pages import RowAct
from pulse_django.limits.facts import LimitFacts
from pulse_django.limits.rules import in_words as numbers_in_words
from pulse_django.models import Limiter, Pause
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.lane_keys import key_of, lane_key, limiter_of, text_of_key

from .forms import ChangeForm, PauseForm, PauseLimitForm, ResumeForm, duration

Data = Mapping[str, Any]


def _limiters(alias: str) -> Any:
    return Limiter.objects.db_manager(alias)


def _change(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    numbers, reason = data["numbers"], data["reason"]
    _limiters(alias).override(one.name, numbers, duration=duration(data), by=by, reason=reason)
    return _("Changed to %(numbers)s: %(reason)s") % {"numbers": numbers_in_words(numbers), "reason": reason}


def _reset(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    if one.override is None:
        return ""
    _limiters(alias).override(one.name, None, by=by)
    return _("Reset to the numbers of the code")


def _pause_limit(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    if not _limiters(alias).pause(one.name, duration=duration(data), reason=data["reason"]):
        return ""
    return _("Paused for %(time)s: %(reason)s") % {"time": in_words(data["duration"]), "reason": data["reason"]}


def _resume_limit(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    return _("Resumed") if _limiters(alias).resume(one.name) else ""


def _pause(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    lane, pauses = lane_key(one.name, text_of_key(data["key"])), Pause.objects.db_manager(alias)
    if not pauses.pause(lane_key=lane, duration=duration(data), reason=data["reason"], by=by):
        return ""
    return _("Key %(key)s paused: %(reason)s") % {"key": data["key"], "reason": data["reason"]}


def _resume(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    lane = data["lane_key"]
    if limiter_of(lane) != one.name or not Pause.objects.db_manager(alias).resume(lane_key=lane):
        return ""
    return _("Key %(key)s resumed") % {"key": key_of(lane)}


PAUSED_FOR_LONGER = gettext_lazy("It is already paused for longer. Nothing was changed.")

ACTS = (
    RowAct(name="change", do=_change, form=ChangeForm),
    RowAct(name="reset", do=_reset),
    RowAct(name="pause_limit", do=_pause_limit, form=PauseLimitForm, refused=PAUSED_FOR_LONGER),
    RowAct(name="resume_limit", do=_resume_limit),
    RowAct(name="pause", do=_pause, form=PauseForm, refused=PAUSED_FOR_LONGER),
    RowAct(name="resume", do=_resume, form=ResumeForm),
)
