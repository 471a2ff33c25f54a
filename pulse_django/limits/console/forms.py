"""The forms on the page of a limit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from pulse_django.console.pages import RowForm
from pulse_django.exceptions import InvalidJob
from pulse_django.limits.rules import MOST_RUNNING, Rate, override_of
from pulse_django.operations.acts import MAX_REASON
from pulse_django.pauses.page import LASTING, UNTIL_RESUMED
from pulse_django.queue.words.bounds import MAX_LANE_KEY

PERIODS = [(1, _("second")), (60, _("minute")), (3_600, _("hour")), (86_400, _("day"))]
UNTIL_CHANGED = (0, _("until changed"))


def duration(given: Mapping[str, Any]) -> timedelta | None:
    """Return the duration of the form, or None if a user ends it."""
    return timedelta(seconds=given["duration"]) if given["duration"] else None


class PauseLimitForm(RowForm):
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)
    duration = forms.TypedChoiceField(label=_("for"), coerce=int, choices=LASTING)


class PauseForm(RowForm):
    key = forms.CharField(label=_("key"), max_length=MAX_LANE_KEY)
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)
    duration = forms.TypedChoiceField(label=_("for"), coerce=int, choices=[*LASTING, UNTIL_RESUMED])


class ResumeForm(RowForm):
    lane_key = forms.CharField(strip=False, widget=forms.HiddenInput)


class ChangeForm(RowForm):
    """Numbers that override those of the code. Empty fields keep the numbers of the code."""

    max_running = forms.IntegerField(label=_("running at once"), min_value=1, max_value=MOST_RUNNING, required=False)
    max_running_per_key = forms.IntegerField(
        label=_("of each key"), min_value=1, max_value=MOST_RUNNING, required=False
    )
    rate = forms.IntegerField(label=_("starts"), min_value=1, max_value=MOST_RUNNING, required=False)
    per = forms.TypedChoiceField(label=_("in a"), coerce=int, choices=PERIODS, initial=60)
    key_rate = forms.IntegerField(label=_("starts of each key"), min_value=1, max_value=MOST_RUNNING, required=False)
    key_per = forms.TypedChoiceField(label=_("in a"), coerce=int, choices=PERIODS, initial=60)
    duration = forms.TypedChoiceField(label=_("for"), coerce=int, choices=[*LASTING, UNTIL_CHANGED])
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        fields = {name: given[name] for name in ("max_running", "max_running_per_key") if given.get(name)}
        try:
            for name, number, per in (("rate", "rate", "per"), ("rate_per_key", "key_rate", "key_per")):
                if given.get(number) and given.get(per):
                    fields[name] = Rate(given[number], per=timedelta(seconds=given[per]))
            given["numbers"] = override_of(fields)
        except InvalidJob as error:
            raise forms.ValidationError(str(error)) from error
        if not fields:
            raise forms.ValidationError(_("Give at least one number."))
        return given
