"""Lists by id instead of by number of page: each opens as quickly as the first, and nothing is counted.

``OFFSET`` reads all that it skips, and ``COUNT(*)`` all that there is. Jobs of several shards are merged: each shard is
read for one page of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import F
from django.http import HttpRequest

from pulse_django.console.periods import Period
from pulse_django.console.shards import (
    SHARD,
    Merged,
    Read,
    Shards,
    chosen_shards,
    edge_above,
    edge_below,
    newest,
    oldest,
    places_in,
    spelt_places,
)
from pulse_django.models import Job
from pulse_django.words.states import HOT, Status

from .drilldown import drilldown
from .filters import AgeFilter, Chosen
from .page_window import (
    STATUS,
    WORKER,
    Extent,
    Ids,
    Source,
    are_few,
    earliest,
    ids_between,
    is_hot,
    latest,
    sources_of,
    together,
)
from .searching import Searching, searching_of

OLDER, NEWER = "older", "newer"  # than the ids that follow
CREATED = "created"  # in this period
Edges = tuple[int | None, int | None]  # the first id that was looked at, and the first beyond; None: all there were


class NewestFirst(ChangeList):
    """A changelist in descending order of ids, which pages from the last id that was shown."""

    older_url = newer_url = ""
    estimate: int | None = None
    dates: dict[str, Any] | None = None  # as Django's own template shows them
    looked_at: list[tuple[int, int]]  # the first and the last id, where a page is not full
    goes_back = goes_ahead = False  # and there are more to look at
    everywhere: Shards
    searching: Searching | None = None
    search_notes: list[str]

    @cached_property
    def extent(self) -> Extent | None:
        by_shard: dict[str, list[Extent]] = {}
        for source in self._sources:
            by_shard.setdefault(source.alias, []).append(source.extent)
        return together(by_shard)

    @property
    def period(self) -> Period | None:
        return Period.named(self.params.get(CREATED, ""))

    def get_filters(self, request: HttpRequest) -> Any:
        """Refuse what no filter knows: to look for a part of ``args`` would show them to users who may not see them."""
        try:
            specs, has_filters, unknown, duplicates, is_active = super().get_filters(request)
        except DisallowedModelAdminLookup as error:
            raise IncorrectLookupParameters from error
        unknown.pop(CREATED, None)
        if unknown:
            raise IncorrectLookupParameters
        return specs, has_filters, unknown, duplicates, is_active or self.period is not None

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> Any:
        self.everywhere = chosen_shards(request, Job, reads=True)
        for name in (OLDER, NEWER):  # no link to another list begins in the middle of it
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        self.searching = searching_of(request, self.query) if self.query else None
        jobs = super().get_queryset(request, exclude_parameters)
        if WORKER in self.params and self.params.get(STATUS, Status.RUNNING) != Status.RUNNING:
            return jobs.none()  # a worker holds what runs; PostgreSQL would look for what contradicts itself
        if self.period is None:
            return jobs
        return jobs.filter(created_at__gte=self.period.begin, created_at__lt=self.period.end)

    def get_ordering(self, request: HttpRequest, queryset: Any) -> Any:
        return ["-pk"]

    def get_results(self, request: HttpRequest) -> None:
        self.looked_at = []
        numbers = list(self.everywhere.ranges)
        older, newer = (places_in(request.GET.get(name, ""), numbers) for name in (OLDER, NEWER))
        rows = self._newer_than(newer) if newer else self._older_than(older)
        self.result_list = rows
        self.search_notes = [] if self.searching is None else self.searching.notes(self._is_there(rows))
        self.result_count = self.full_result_count = len(rows)  # the same, or Django calls it the count of all
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False
        self.multi_page = False
        self.paginator = Paginator(rows, self.list_per_page)
        if self.extent is not None:
            self.dates = drilldown(self.extent, self.period, self._link_to)
            self.estimate = None if self._is_narrowed else self.extent.estimate

    def _older_than(self, older: Mapping[int, int]) -> list[Any]:
        """Return the rows of the first page, or of one that was reached by "older"."""
        spans = self._spans()
        for source, ids in spans.items():
            spans[source] = Ids(ids.low, min(ids.high, older.get(source.number, ids.high)))
        reads = self._read(spans, "desc")
        page = newest(reads, self.list_per_page)
        if page.has_more:
            self.older_url = self._url_of(OLDER, {**_tops(spans), **older, **page.places})
        if older:
            self.newer_url = self._url_of(NEWER, {one: self._before(one, place) for one, place in older.items()})
        self.goes_back = page.has_more
        self._tell(spans, page, {number: (edge_below(some), None) for number, some in reads.items()})
        return page.rows

    def _newer_than(self, newer: Mapping[int, int]) -> list[Any]:
        """Return the rows of a page that was reached by "newer". Streams without a place are older than it."""
        spans = {source: ids for source, ids in self._spans().items() if source.number in newer}
        for source, ids in spans.items():
            spans[source] = Ids(max(ids.low, newer[source.number] + 1), ids.high)
        reads = self._read(spans, "asc")
        page = oldest(reads, self.list_per_page)
        if page.has_more:
            self.newer_url = self._url_of(NEWER, {**newer, **page.places})
        self.older_url = self._url_of(OLDER, {one: place + 1 for one, place in newer.items()})
        self.goes_ahead = page.has_more
        self._tell(spans, page, {number: (None, edge_above(some)) for number, some in reads.items()})
        return page.rows[::-1]

    def _spans(self) -> dict[Source, Ids]:
        """Return where in each source the jobs of the chosen time lie."""

        def spans(alias: str) -> dict[Source, Ids]:
            return {source: self._ids_of(source) for source in self._sources if source.alias == alias}

        return {source: ids for some in self.everywhere.ask(spans).values() for source, ids in some.items()}

    def _before(self, number: int, place: int) -> int:
        return max(place - 1, self.everywhere.first_id(number))

    def _url_of(self, name: str, places: Mapping[int, int]) -> str:
        return self.get_query_string({name: spelt_places(places)})

    def _read(self, spans: Mapping[Source, Ids], direction: str) -> dict[int, list[Read]]:
        """Read one page from each source."""

        def read(alias: str) -> list[tuple[int, Read]]:
            own = [(source, ids) for source, ids in spans.items() if source.alias == alias]
            return [(source.number, self._read_one(source, ids, direction)) for source, ids in own]

        found: dict[int, list[Read]] = {}
        for some in self.everywhere.ask(read).values():
            for number, one in some:
                found.setdefault(number, []).append(one)
        return found

    def _read_one(self, source: Source, ids: Ids, direction: str) -> Read:
        if ids.low >= ids.high:
            return Read([], ids.high, is_done=True)
        looked = ids
        if not self._sees_all(source.alias):
            looked = (latest if direction == "desc" else earliest)(source.alias, ids, self._is_about_errors)
        rows = self._found(source.alias, looked, direction)
        is_full = len(rows) > self.list_per_page
        if direction == "desc":
            edge, is_done = (rows[-1].pk if is_full else looked.low), looked.low <= ids.low
        else:
            edge, is_done = (rows[-1].pk + 1 if is_full else looked.high), looked.high >= ids.high
        return Read(rows, edge, is_done=is_done and not is_full)

    def _found(self, alias: str, ids: Ids, direction: str) -> list[Any]:
        rows = self.queryset.using(alias).filter(pk__gte=ids.low, pk__lt=ids.high)
        first = slice(self.list_per_page + 1)
        if not (self._is_narrowed and (self._sees_all(alias) or self._is_about_errors)):
            return list(rows.order_by(getattr(F("pk"), direction)())[first])
        # The sum keeps the small index in use: by id alone, the planner may read the primary key until a page is full,
        # through all that has finished. Of ids, because that index holds them and the table would be read for the rest.
        chosen = rows.order_by(getattr(F("pk") + 0, direction)()).values("pk")[first]
        shown = self.root_queryset.using(alias).filter(pk__in=chosen)
        if is_hot(self.params):
            shown = shown.filter(era=HOT)
        return list(shown.order_by(getattr(F("pk"), direction)()))

    def _tell(self, spans: Mapping[Source, Ids], page: Merged, edges: Mapping[int, Edges]) -> None:
        """Say between which ids was looked, if a page stopped before it was full."""
        if page.is_full or all(self._sees_all(source.alias) for source in spans):
            return
        for number, (low, high) in sorted(edges.items()):
            own = [ids for source, ids in spans.items() if source.number == number]
            low = min(ids.low for ids in own) if low is None else low
            high = max(ids.high for ids in own) if high is None else high
            if low < high:
                self.looked_at.append((low, high - 1))

    def _sees_all(self, alias: str) -> bool:
        """Whether a page need not stop before it is full."""
        if not self._is_narrowed or (self.searching is not None and self.searching.is_one_job):
            return True
        if alias not in self._few:
            self._few[alias] = are_few(alias, self._chosen, self.searching)
        return self._few[alias]

    @property
    def _is_about_errors(self) -> bool:
        return self.searching is not None and self.searching.is_about_errors

    def _is_there(self, rows: Sequence[Any]) -> bool | None:
        """Say whether there is a job of the number that was typed; None: none was."""
        job_id = None if self.searching is None else self.searching.search.job_id
        if job_id is None:
            return None
        if any(row.pk == job_id for row in rows):
            return True
        found = self.everywhere.ask(lambda alias: Job.objects.using(alias).filter(pk=job_id).exists())
        return any(found.values())

    @cached_property
    def _few(self) -> dict[str, bool]:
        return {}

    @property
    def _is_narrowed(self) -> bool:
        if SHARD not in self.params:
            return bool(self.query or self.has_active_filters)
        others = (spec for spec in self.filter_specs if isinstance(spec, Chosen) and spec.parameter_name != SHARD)
        return bool(self.query or self.period or any(spec.value() is not None for spec in others))

    @property
    def _chosen(self) -> dict[str, str]:
        chosen = {spec.parameter_name: spec.value() for spec in self.filter_specs if isinstance(spec, Chosen)}
        return {str(name): value for name, value in chosen.items() if value is not None}

    @cached_property
    def _sources(self) -> list[Source]:
        return sources_of(self.everywhere)

    def _ids_of(self, source: Source) -> Ids:
        """Return where the jobs of the chosen time lie."""
        ages = [spec.age for spec in self.filter_specs if isinstance(spec, AgeFilter) and spec.age is not None]
        begins = [source.extent.now - age for age in ages]
        if self.period is not None:
            begins.append(self.period.begin)
        until = None if self.period is None else self.period.end
        since, is_part = max(begins, default=None), self.everywhere.are_several
        return ids_between(source.alias, source.extent, since, until, is_part=is_part)

    def _link_to(self, period: Period | None) -> str:
        return self.get_query_string({CREATED: None if period is None else period.name})


def _tops(spans: Mapping[Source, Ids]) -> dict[int, int]:
    """Return the places of streams of which nothing has been shown: all of them is older than the page."""
    tops: dict[int, int] = {}
    for source, ids in spans.items():
        tops[source.number] = max(ids.high, tops.get(source.number, 0))
    return tops
