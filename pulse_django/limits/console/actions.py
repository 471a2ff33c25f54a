"""What can be done to a limit."""

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

from .forms import ChangeForm, CloseForm, PauseForm, ResumeForm, lasting

Data = Mapping[str, Any]


def _limiters(alias: str) -> Any:
    return Limiter.objects.db_manager(alias)


def _change(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    numbers, reason = data["numbers"], data["reason"]
    _limiters(alias).override(one.name, numbers, for_=lasting(data), by=by, reason=reason)
    return _("Changed to %(numbers)s: %(reason)s") % {"numbers": numbers_in_words(numbers), "reason": reason}


def _reset(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    if one.override is None:
        return ""
    _limiters(alias).override(one.name, None, by=by)
    return _("Back to the numbers of the code")


def _close(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    if not _limiters(alias).close(one.name, for_=lasting(data), reason=data["reason"]):
        return ""
    return _("Closed for %(time)s: %(reason)s") % {"time": in_words(data["lasting"]), "reason": data["reason"]}


def _open(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    return _("Opened") if _limiters(alias).reopen(one.name) else ""


def _pause(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    lane, pauses = lane_key(one.name, text_of_key(data["key"])), Pause.objects.db_manager(alias)
    if not pauses.pause(lane_key=lane, for_=lasting(data), reason=data["reason"], by=by):
        return ""
    return _("Key %(key)s paused: %(reason)s") % {"key": data["key"], "reason": data["reason"]}


def _resume(alias: str, one: LimitFacts, data: Data, by: str) -> str:
    lane = data["lane_key"]
    if limiter_of(lane) != one.name or not Pause.objects.db_manager(alias).resume(lane_key=lane):
        return ""
    return _("Key %(key)s resumed") % {"key": key_of(lane)}


CLOSED_FOR_LONGER = gettext_lazy("It is closed for longer already. Nothing was changed.")
PAUSED_FOR_LONGER = gettext_lazy("It is paused for longer already. Nothing was changed.")

ACTS = (
    RowAct(name="change", do=_change, form=ChangeForm),
    RowAct(name="reset", do=_reset),
    RowAct(name="close", do=_close, form=CloseForm, refused=CLOSED_FOR_LONGER),
    RowAct(name="open", do=_open),
    RowAct(name="pause", do=_pause, form=PauseForm, refused=PAUSED_FOR_LONGER),
    RowAct(name="resume", do=_resume, form=ResumeForm),
)
