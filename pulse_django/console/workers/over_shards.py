"""The list of workers over several shards: one that serves some of them is listed once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulse_django import conf
from pulse_django.console.board.facts import served_in_words
from pulse_django.console.readonly import first_of_each
from pulse_django.console.shards import Shards, shards_of
from pulse_django.models import Worker

MOST_LISTED = 500  # of each shard: those that were heard last


def listed_once(request: HttpRequest, everywhere: Shards, workers: QuerySet[Worker]) -> list[Any]:
    """Return the rows of the shards that heard from each worker last, each with the shards that it serves."""

    def rows(alias: str) -> list[Any]:
        return list(workers.using(alias).order_by("-last_beat_at", "-pk")[: MOST_LISTED + 1])

    found: dict[tuple[str, str], dict[str, Any]] = {}
    for alias, some in first_of_each(request, everywhere.ask(rows), MOST_LISTED).items():
        for row in some:
            found.setdefault((row.name, row.boot_id), {})[alias] = row
    silence, listed = conf.current().worker_silence, []
    for by_shard in found.values():
        latest = max(by_shard.values(), key=lambda row: (row.stopped_at is None, row.last_beat_at))
        serves = {alias: row.now - row.last_beat_at for alias, row in by_shard.items() if row.stopped_at is None}
        latest.serves = served_in_words(serves, silence) or ", ".join(by_shard)
        listed.append(latest)
    return sorted(listed, key=lambda row: row.last_beat_at, reverse=True)


class HostFilter(admin.SimpleListFilter):
    """The hosts of all shards. Django's own filter would ask one database."""

    title = _("host")
    parameter_name = "host"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        def hosts(alias: str) -> list[str]:
            return list(Worker.objects.using(alias).values_list("host", flat=True).distinct()[:MOST_LISTED])

        found = shards_of(request, Worker, reads=True).ask(hosts)
        return [(host, host) for host in sorted({host for some in found.values() for host in some})]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        host = self.value()
        return queryset if host is None else queryset.filter(host=host)
