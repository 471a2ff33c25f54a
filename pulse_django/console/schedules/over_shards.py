"""Schedules of several shards: the list of all, and where a new one is stored: in the shard of its jobs."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.utils.translation import gettext

from pulse_django.console.readonly import first_of_each, show_all
from pulse_django.console.shards import Shards, shards_of
from pulse_django.exceptions import PulseError
from pulse_django.execution.placement import has_several_shards, shard_of_schedule, shards
from pulse_django.models import Schedule

MOST_LISTED = 1_000  # of each shard, by name; the search finds the others


class Schedules(ChangeList):
    def get_results(self, request: HttpRequest) -> None:
        everywhere = shards_of(request, Schedule)
        if not everywhere.are_several:
            super().get_results(request)
            return

        def rows(alias: str) -> list[Any]:
            return list(self.queryset.using(alias).order_by("name")[: MOST_LISTED + 1])

        found = first_of_each(request, everywhere.ask(rows), MOST_LISTED)
        listed = [row for some in found.values() for row in some]
        show_all(self, sorted(listed, key=lambda row: (row.name, row.pk)))


def shard_of(schedule: Schedule) -> str:
    """Return where a new schedule is stored: where its jobs will be."""
    return shard_of_schedule(schedule.name, schedule.task, schedule.queue, schedule.args, schedule.kwargs)


def problem_with(schedule: Schedule) -> str:
    """Say why a schedule of the form cannot be stored, where there are several shards. Empty: it can be."""
    if not has_several_shards():
        return ""

    def has_name(alias: str) -> bool:
        return Schedule.objects.using(alias).filter(name=schedule.name).exclude(pk=schedule.pk).exists()

    everywhere = Shards(list(shards()))
    if taken := [alias for alias, is_there in everywhere.ask(has_name).items() if is_there]:
        return gettext("Shard %(shard)s has a schedule of this name.") % {"shard": taken[0]}
    try:
        alias = schedule._state.db or shard_of(schedule)
    except PulseError as error:
        return str(error)
    return "; ".join(everywhere.among([alias]).missing()) if alias in everywhere.away else ""
