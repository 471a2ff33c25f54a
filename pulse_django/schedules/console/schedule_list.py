"""The list of schedules, with the next instant and the last ticks of each."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.board.sparkline import draw
from pulse_django.console.pages import ConsoleAdmin, ShardList
from pulse_django.console.sentences import timing_shown
from pulse_django.console.statuses import here, instant_shown, status_shown
from pulse_django.queue.words.display import in_words
from pulse_django.schedules import facts
from pulse_django.schedules.verbs import clock
from pulse_django.shards.page import shard_of

SPARK = "admin/pulse_django/schedule/sparkline.html"


class StateFilter(admin.SimpleListFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("paused", _("paused")), ("gone", _("no longer in the code")), ("changed", _("changed by people"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "paused":
            return queryset.filter(paused_at__isnull=False)
        if self.value() == "gone":
            return queryset.filter(gone_at__isnull=False)
        if self.value() == "changed":
            return queryset.exclude(overrides={})
        return queryset


class ScheduleList(ConsoleAdmin):
    unlisted = ("args", "kwargs", "declared", "overrides")
    list_display = ("name", "task", "due", "next", "last", "durations")
    list_filter = (StateFilter,)
    allowed_lookups = ("name", "task")
    search_fields = ("name", "task", "owner")
    ordering = ("name",)
    list_per_page = 100
    show_full_result_count = False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        return ShardList

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        found, alias = super().get_changelist_instance(request), shard_of(request)
        found.result_list = list(found.result_list)
        recent, now = facts.recent(alias, [row.pk for row in found.result_list]), clock(alias)
        for row in found.result_list:
            row.recent, row.seen_at = recent.get(row.pk, []), now
        return found

    @admin.display(description=_("when"))
    def due(self, schedule: Any) -> str:
        state = facts.state_of(schedule, schedule.seen_at)
        said = timing_shown(schedule)
        if state == "paused":
            return format_html("{} <strong>{}</strong> {}", said, _("paused"), schedule.pause_reason)
        if state == "gone":
            return format_html("{} <strong>{}</strong>", said, _("no longer in the code"))
        return said

    @admin.display(description=_("next"), ordering="next_at")
    def next(self, schedule: Any) -> str:
        if schedule.next_at is None:
            return "–"
        seconds = (schedule.next_at - schedule.seen_at).total_seconds()
        if seconds < -1:
            return format_html('<strong class="pulse-late">{}</strong>', _("overdue for %s") % in_words(-seconds))
        return instant_shown(here(schedule.next_at), gettext("in %s") % in_words(max(0.0, seconds)))

    @admin.display(description=_("last"), ordering="last_at")
    def last(self, schedule: Any) -> str:
        if not schedule.recent:
            return "–"
        tick = schedule.recent[0]
        ago = in_words((schedule.seen_at - tick.at).total_seconds())
        said = status_shown(tick.status) if tick.status else tick.outcome.value
        late = f", {_('late by')} {in_words(tick.late.total_seconds())}" if tick.late.total_seconds() > 1 else ""
        return format_html("{} {}{}", said, instant_shown(here(tick.at), gettext("%s ago") % ago), late)

    @admin.display(description=_("durations"))
    def durations(self, schedule: Any) -> str:
        took = [one.took.total_seconds() if one.took else None for one in reversed(schedule.recent) if one.job_id]
        latest = next((in_words(one) for one in reversed(took) if one is not None), "")
        return render_to_string(SPARK, {"line": draw(took), "latest": latest})
