"""Tasks in the admin: the list of all, and a page for each with charts of the last hour, day or two weeks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext_lazy as _

from pulse_django.console.charts import charts_of, quantiles_of
from pulse_django.console.live import live, version_of
from pulse_django.console.pages import ReadOnly
from pulse_django.health.known_names import registered_tasks
from pulse_django.metrics.spans import WINDOWS, Window, read_course, read_totals
from pulse_django.pauses.facts import paused_tasks
from pulse_django.queue.words.bounds import MAX_TASK_NAME
from pulse_django.queue.words.counters import OTHER, TrafficCounts, TrafficKind
from pulse_django.shards.page import shard_of

MOST_LISTED = 500


class NameForm(forms.Form):
    name = forms.CharField(max_length=MAX_TASK_NAME, strip=False)


class TaskAdmin(ReadOnly):
    """The admin of tasks. A task has no row, so its pages are opened by name."""

    def get_urls(self) -> list[URLPattern]:
        return [self.path("", self.changelist_view, "changelist"), self.path("one/", self.one_view, "one")]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        alias = shard_of(request, reads=True)
        return live(request, version_of(alias), lambda: self._list(request, alias, extra_context or {}))

    def _list(self, request: HttpRequest, alias: str, extra: dict[str, Any]) -> HttpResponse:
        window, order = window_of(request), request.GET.get("order", "")
        order = order if order in ORDERS else "runs"
        paused = {one.task for one in paused_tasks(alias) if not one.queue}
        rows = task_rows(read_totals(alias, TrafficKind.TASK, window), paused, order)
        shown = {
            "title": _("Tasks"),
            "tasks": rows[:MOST_LISTED],
            "more_tasks": max(0, len(rows) - MOST_LISTED),
            "window": window,
            "windows": WINDOW_NAMES.items(),
            "order": order,
        }
        return self.page(request, "task/change_list", shown | extra)

    def one_view(self, request: HttpRequest) -> HttpResponse:
        """Show one task, even if this process does not have it: workers may have other tasks."""
        form = NameForm(request.GET)
        if not form.is_valid():
            return self.redirect("taskoverview_changelist")
        name, alias = form.cleaned_data["name"], shard_of(request, reads=True)
        return live(request, version_of(alias), lambda: self._one(request, alias, name))

    def _one(self, request: HttpRequest, alias: str, name: str) -> HttpResponse:
        window = window_of(request)
        course = read_course(alias, TrafficKind.TASK, name, window)
        shown = {
            "title": name,
            "task": task_row(name, course.total),
            "charts": charts_of(course),
            "releases": list(reversed(course.marks)),
            "pauses": [one for one in paused_tasks(alias) if one.task == name],
            "is_registered": name in registered_tasks(),
            "window": window,
            "windows": WINDOW_NAMES.items(),
        }
        return self.page(request, "task/one", shown)


# The data of a task as text for a template.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    name: str
    counts: TrafficCounts
    ran: dict[str, str]
    waited: dict[str, str]
    is_paused: bool = False

    @property
    def failed_share(self) -> str:
        share = self.counts.failed_share
        return "–" if share is None else f"{share:.1%}"

    @property
    def has_page(self) -> bool:
        return self.name != OTHER


# The sort orders of the list, by their names in the address. The largest numbers come first.
ORDERS = {
    "name": lambda row: row.name,
    "runs": lambda row: (-row.counts.runs, row.name),
    "failed": lambda row: (-(row.counts.failed_share or 0), -row.counts.failed, row.name),
    "died": lambda row: (-row.counts.died, row.name),
    "ran": lambda row: (-(row.counts.ran.histogram.quantile(0.95) or 0), row.name),
    "waited": lambda row: (-(row.counts.waited.histogram.quantile(0.95) or 0), row.name),
}


def task_rows(totals: Mapping[str, TrafficCounts], paused: Iterable[str], order: str) -> list[TaskRow]:
    """Return a row for each task that ran or is registered."""
    paused = set(paused)
    names = {*totals, *registered_tasks(), *paused}
    rows = [task_row(name, totals.get(name, TrafficCounts()), is_paused=name in paused) for name in names]
    return sorted(rows, key=ORDERS[order])


def task_row(name: str, counts: TrafficCounts, *, is_paused: bool = False) -> TaskRow:
    return TaskRow(
        name=name, counts=counts, ran=quantiles_of(counts.ran), waited=quantiles_of(counts.waited), is_paused=is_paused
    )


# The period of a page with charts, from its address.


WINDOW_NAMES = {"hour": _("Last hour"), "day": _("Last day"), "weeks": _("Last two weeks")}


def window_of(request: HttpRequest) -> Window:
    """Return the window of the address, or a day."""
    return WINDOWS.get(request.GET.get("window", ""), WINDOWS["day"])
