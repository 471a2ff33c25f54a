"""Schedules in the admin: the list, and the page of one with its next instants, its ticks and its buttons."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.admin.utils import unquote
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import PermissionDenied
from django.db import Error
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from pulse_django.console.pages import ActsOnRows, RowAct, url_for
from pulse_django.console.sentences import timing_shown
from pulse_django.console.statuses import in_time_zone
from pulse_django.encryption import values as encryption
from pulse_django.exceptions import PulseError
from pulse_django.models import Schedule
from pulse_django.operations.acts import MAX_REASON
from pulse_django.run.registry import registry
from pulse_django.schedules import facts
from pulse_django.schedules.forms import POLICY, TIMING, ScheduleForm
from pulse_django.schedules.tick_rules import first_after
from pulse_django.schedules.verbs import clock
from pulse_django.shards.page import alias_to_write, cannot_be_read, shard_of, show_shard
from pulse_django.shards.placement import has_several_shards, shard_of_schedule, shards

from .actions import ACTS
from .schedule_list import ScheduleList

MOST_TICKS = 50  # on the page of a schedule
SECRETS = ("args", "kwargs")  # only for users who may see arguments


class AdminForm(ScheduleForm):
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():  # the admin shows a date and a time without labels
            if isinstance(field.widget, AdminSplitDateTime):
                for widget, part in zip(field.widget.widgets, (_("date"), _("time")), strict=True):
                    widget.attrs["aria-label"] = f"{field.label}: {part}"

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if "task" in self.changed_data and "args" not in self.fields and (self.instance.args or self.instance.kwargs):
            self.add_error(
                "task", _("The arguments are hidden, and another task could show them. Create a schedule for it.")
            )
        if not self.errors:
            for name in ("name", "task", "queue", "args", "kwargs"):
                setattr(self.instance, name, cleaned.get(name, getattr(self.instance, name)))
            if problem := _problem_with(self.instance):
                self.add_error(None, problem)
        return cleaned


class ScheduleAdmin(ActsOnRows, ScheduleList):
    acts = ACTS
    otherwise = _("The schedule has changed in the meantime. Nothing was changed.")
    form = AdminForm
    change_form_template = "admin/pulse_django/schedule/change_form.html"
    actions = None  # no bulk delete: schedules that are declared in code would return

    def get_urls(self) -> list[URLPattern]:
        act = self.path("<path:object_id>/act/<slug:name>/", self.act_view, "act")
        return [act, self.path("preview/", self.preview_view, "preview"), *super().get_urls()]

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        arguments = () if self._hides_arguments(request, obj) else SECRETS
        return [
            (None, {"fields": ("name", "task", *arguments, "queue", "priority")}),
            (_("When"), {"fields": TIMING}),
            (_("Policy"), {"fields": POLICY}),
            (None, {"fields": ("reason",)}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        return ("name", "task") if obj is not None and obj.declared is not None else ()

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        schedule = super().get_object(request, object_id, from_field)
        if schedule is not None and not self.has_change_permission(request, schedule):
            for name in ("starts_at", "ends_at"):  # Django shows them as they are
                setattr(schedule, name, in_time_zone(getattr(schedule, name)))
        return schedule

    def has_delete_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        from_code = obj is not None and obj.declared is not None and obj.gone_at is None
        return super().has_delete_permission(request, obj) and not from_code

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        alias = alias_to_write(obj) if change or not has_several_shards() else _shard_of_jobs(obj)
        obj.save(using=alias, by=request.user.get_username(), reason=form.cleaned_data.get("reason", ""))
        show_shard(request, alias)  # redirect to the list that has the schedule

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        obj.delete(using=alias_to_write(obj))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        schedule = self.get_object(request, unquote(object_id)) if object_id else None
        shown: dict[str, Any] = {"preview_url": self.url("schedule_preview")}
        if schedule is not None and self.has_view_or_change_permission(request, schedule):
            shown |= self._shown_of(request, schedule)
        return super().changeform_view(request, object_id, form_url, (extra_context or {}) | shown)

    @method_decorator(require_POST)
    def preview_view(self, request: HttpRequest) -> HttpResponse:
        """Show the next instants with the values of the form, without saving it."""
        if not (self.has_add_permission(request) or self.has_change_permission(request)):
            raise PermissionDenied
        columns = {name: request.POST.get(name) or None for name in (*TIMING, "starts_at_0", "ends_at_0")}
        form = _PreviewForm({name: value for name, value in columns.items() if value is not None})
        instants: list[facts.Upcoming] = []
        if form.is_valid():
            row, now = Schedule(**form.cleaned_data), clock(shard_of(request))
            try:
                row.next_at = first_after(row.timing, now)
                instants = facts.next_instants(row, now)
            except PulseError as error:
                form.add_error(None, str(error))
        shown = {"title": _("Next instants"), "instants": instants, "form": form}
        return self.page(request, "schedule/preview", shown)

    def row_of(self, request: HttpRequest, object_id: str) -> Any:
        if (schedule := self.get_object(request, unquote(object_id))) is None:
            raise Http404
        schedule.seen_at = clock(alias_to_write(schedule))
        return schedule

    def logged(self, row: Any) -> Schedule:
        found: Schedule = row
        return found

    def may_act(self, request: HttpRequest, act: RowAct, row: Any) -> bool:
        return self.has_change_permission(request, row)

    def _shown_of(self, request: HttpRequest, schedule: Any) -> dict[str, Any]:
        alias = alias_to_write(schedule)
        schedule.seen_at = now = clock(alias)
        return {
            "schedule_words": timing_shown(schedule),
            "state": facts.state_of(schedule, now),
            "instants": facts.next_instants(schedule, now),
            "ticks": facts.recent(alias, [schedule.pk], MOST_TICKS).get(schedule.pk, []),
            "most_ticks": MOST_TICKS,
            "changed_fields": [{"field": name, **one} for name, one in sorted((schedule.overrides or {}).items())],
            "sees_values": not self._hides_arguments(request, schedule),
            "jobs_url": url_for(request, self.admin_site.name, "job", "job_changelist"),
            "acts": self.offered(request, schedule),
        }

    def _hides_arguments(self, request: HttpRequest, schedule: Schedule | None) -> bool:
        """Return whether the form must not show arguments: the task masks some of them or is unknown here."""
        if not request.user.has_perm("pulse_django.pulse_view_arguments"):
            return True
        return schedule is not None and encryption.hides_arguments(registry.get(schedule.task))


class _PreviewForm(forms.ModelForm):
    class Meta:
        model = Schedule
        fields = TIMING

    def _post_clean(self) -> None:
        """Skip the checks of the whole row: the form has only the timing."""


def _shard_of_jobs(schedule: Schedule) -> str:
    """Return the shard for a new schedule, which is the shard of its jobs."""
    return shard_of_schedule(schedule.name, schedule.task, schedule.queue, schedule.args, schedule.kwargs)


def _problem_with(schedule: Schedule) -> str:
    """Return why the schedule of the form cannot be stored with several shards, or "" if it can be."""
    if not has_several_shards():
        return ""
    try:
        own = schedule._state.db or _shard_of_jobs(schedule)
    except PulseError as error:
        return str(error)
    for alias in shards():
        try:
            if Schedule.objects.using(alias).filter(name=schedule.name).exclude(pk=schedule.pk).exists():
                return gettext("Shard %(shard)s has a schedule of this name.") % {"shard": alias}
        except Error as error:
            if alias == own:
                return cannot_be_read(alias, error)
    return ""
