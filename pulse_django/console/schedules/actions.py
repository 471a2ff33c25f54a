"""The actions on the page of a schedule: each is a form, and leaves an entry in the log of the admin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from pulse_django.console.shards import alias_to_write
from pulse_django.models import Schedule
from pulse_django.schedules import facts
from pulse_django.schedules.ticking import run_now

MAX_REASON = 500

Data = Mapping[str, Any]


class PauseForm(forms.Form):
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)
    lasting = forms.TypedChoiceField(
        label=_("for"),
        coerce=int,
        choices=[
            (3_600, _("1 hour")),
            (86_400, _("1 day")),
            (604_800, _("1 week")),
            (0, _("until resumed")),
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One button."""

    name: str
    label: Any
    says: Any
    fits: Callable[[Schedule, datetime], bool]
    do: Callable[[Schedule, Data, str], str]  # returns what was done, for the message and the log; empty: nothing
    form: type[forms.Form] = forms.Form


def _run(schedule: Schedule, _data: Data, by: str) -> str:
    job_id = run_now(alias_to_write(schedule), schedule.pk, by=by)
    return str(_("Ran now: job %d") % job_id)


def _pause(schedule: Schedule, data: Data, by: str) -> str:
    lasting = timedelta(seconds=data["lasting"]) if data["lasting"] else None
    schedules = Schedule.objects.db_manager(alias_to_write(schedule))
    if not schedules.pause(schedule.pk, reason=data["reason"], lasting=lasting, by=by):
        return ""
    end = dict(PauseForm.base_fields["lasting"].choices)[data["lasting"]]  # type: ignore[attr-defined]
    return str(_("Paused (%(end)s): %(reason)s") % {"end": end, "reason": data["reason"]})


def _resume(schedule: Schedule, _data: Data, by: str) -> str:
    return str(_("Resumed")) if Schedule.objects.db_manager(alias_to_write(schedule)).resume(schedule.pk, by=by) else ""


def _follow_code(schedule: Schedule, _data: Data, by: str) -> str:
    fields = sorted(schedule.overrides)
    Schedule.objects.db_manager(alias_to_write(schedule)).follow_code(schedule.pk, by=by)
    return str(_("Back to the code: %s") % ", ".join(fields))


ACTS = (
    Act(
        name="run",
        label=_("Run now"),
        says=_("Enqueue the job of this schedule now. The next instant stays as it is"),
        fits=lambda schedule, _now: schedule.gone_at is None,
        do=_run,
    ),
    Act(
        name="pause",
        label=_("Pause"),
        says=_("Let no tick fire. Ticks of the pause are listed, and never fire afterwards"),
        fits=lambda schedule, now: schedule.gone_at is None and not facts.is_paused(schedule, now),
        do=_pause,
        form=PauseForm,
    ),
    Act(
        name="resume",
        label=_("Resume"),
        says=_("Let ticks fire again from now on"),
        fits=lambda schedule, now: facts.is_paused(schedule, now),
        do=_resume,
    ),
    Act(
        name="follow-code",
        label=_("Back to the code"),
        says=_("Undo what people changed, so that the schedule is what the code declares"),
        fits=lambda schedule, _now: bool(schedule.overrides),
        do=_follow_code,
    ),
)


def named(name: str) -> Act | None:
    return next((act for act in ACTS if act.name == name), None)
