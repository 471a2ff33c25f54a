"""The actions on the page of a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.pages import RowAct, RowForm
from pulse_django.models import Schedule
from pulse_django.operations.acts import MAX_REASON
from pulse_django.schedules import facts
from pulse_django.schedules.ticking import run_now

Data = Mapping[str, Any]


class PauseForm(RowForm):
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)
    duration = forms.TypedChoiceField(
        label=_("for"),
        coerce=int,
        choices=[(3_600, _("1 hour")), (86_400, _("1 day")), (604_800, _("1 week")), (0, _("until resumed"))],
    )


def _pause(alias: str, schedule: Schedule, data: Data, by: str) -> str:
    duration = timedelta(seconds=data["duration"]) if data["duration"] else None
    schedules = Schedule.objects.db_manager(alias)
    if not schedules.pause(schedule.pk, reason=data["reason"], duration=duration, by=by):
        return ""
    end = dict(PauseForm.base_fields["duration"].choices)[data["duration"]]  # type: ignore[attr-defined]
    return gettext("Paused (%(end)s): %(reason)s") % {"end": end, "reason": data["reason"]}


def _resume(alias: str, schedule: Schedule, data: Data, by: str) -> str:
    return gettext("Resumed") if Schedule.objects.db_manager(alias).resume(schedule.pk, by=by) else ""


def _follow_code(alias: str, schedule: Schedule, data: Data, by: str) -> str:
    fields = sorted(schedule.overrides)
    Schedule.objects.db_manager(alias).follow_code(schedule.pk, by=by)
    return gettext("Back to the code: %s") % ", ".join(fields)


# These acts need a row with ``seen_at``.
ACTS = (
    RowAct(
        name="run",
        label=_("Run now"),
        says=_("Enqueue the job of this schedule now. The next instant does not change"),
        fits=lambda schedule: schedule.gone_at is None,
        do=lambda alias, schedule, data, by: gettext("Ran now: job %d") % run_now(alias, schedule.pk, by=by),
    ),
    RowAct(
        name="pause",
        label=_("Pause"),
        says=_("Stop ticks from firing. Ticks during the pause are listed, and never fire later"),
        fits=lambda schedule: schedule.gone_at is None and not facts.is_paused(schedule, schedule.seen_at),
        do=_pause,
        form=PauseForm,
    ),
    RowAct(
        name="resume",
        label=_("Resume"),
        says=_("Let ticks fire again from now on"),
        fits=lambda schedule: facts.is_paused(schedule, schedule.seen_at),
        do=_resume,
    ),
    RowAct(
        name="follow-code",
        label=_("Back to the code"),
        says=_("Undo the changes of users, so that the schedule is as declared in code"),
        fits=lambda schedule: bool(schedule.overrides),
        do=_follow_code,
    ),
)
