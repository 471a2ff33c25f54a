"""Lists by id instead of by number of page: each opens as quickly as the first, and nothing is counted.

``OFFSET`` reads all that it skips, and ``COUNT(*)`` all that there is.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import F
from django.http import HttpRequest

from pulse_django.console.periods import Period
from pulse_django.console.search_terms import id_in, number_in, tags_in
from pulse_django.words.eras import HOT
from pulse_django.words.states import Status

from .drilldown import drilldown
from .extent import Extent, extent_of
from .filters import AgeFilter, Chosen, valid_tags
from .page_window import STATUS, TAG, WORKER, Ids, are_few, earliest, ids_between, is_hot, latest

OLDER, NEWER = "older", "newer"  # than the id that follows
CREATED = "created"  # in this period


class NewestFirst(ChangeList):
    """A changelist in descending order of ids, which pages from the last id that was shown."""

    older_url = newer_url = ""
    estimate: int | None = None
    dates: dict[str, Any] | None = None  # as Django's own template shows them
    looked_at: tuple[int, int] | None = None  # the first and the last id, where a page is not full
    goes_back = goes_ahead = False  # and there are more to look at

    @cached_property
    def extent(self) -> Extent | None:
        return extent_of(self.root_queryset.db)

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
        for name in (OLDER, NEWER):  # no link to another list begins in the middle of it
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        jobs = super().get_queryset(request, exclude_parameters)
        if WORKER in self.params and self.params.get(STATUS, Status.RUNNING) != Status.RUNNING:
            return jobs.none()  # a worker holds what runs; PostgreSQL would look for what contradicts itself
        if self.period is None:
            return jobs
        return jobs.filter(created_at__gte=self.period.begin, created_at__lt=self.period.end)

    def get_ordering(self, request: HttpRequest, queryset: Any) -> Any:
        return ["-pk"]

    def get_results(self, request: HttpRequest) -> None:
        older, newer = (number_in(request.GET.get(name, "")) for name in (OLDER, NEWER))
        rows = self._older_than(older) if newer is None else self._newer_than(newer)
        self.result_list = rows
        self.result_count = self.full_result_count = len(rows)  # the same, or Django calls it the count of all
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False
        self.multi_page = False
        self.paginator = Paginator(rows, self.list_per_page)
        if self.extent is not None:
            self.dates = drilldown(self.extent, self.period, self._link_to)
            self.estimate = None if self._is_narrowed else self.extent.estimate

    def _older_than(self, older: int | None) -> list[Any]:
        """Return the rows of the first page, or of one that was reached by "older"."""
        ids = self._ids if older is None else Ids(self._ids.low, min(self._ids.high, older))
        looked = ids if self._sees_all else latest(self.queryset.db, ids)
        found = self._found(looked, "desc")
        rows, is_full = found[: self.list_per_page], len(found) > self.list_per_page
        if is_full or looked.low > ids.low:
            self.older_url = self.get_query_string({OLDER: rows[-1].pk if is_full else looked.low})
        if older is not None:
            self.newer_url = self.get_query_string({NEWER: max(older - 1, 0)})
        self._tell(looked, is_full)
        self.goes_back = looked.low > ids.low
        return rows

    def _newer_than(self, newer: int) -> list[Any]:
        """Return the rows of a page that was reached by "newer"."""
        ids = Ids(max(self._ids.low, newer + 1), self._ids.high)
        looked = ids if self._sees_all else earliest(self.queryset.db, ids)
        found = self._found(looked, "asc")
        rows, is_full = found[: self.list_per_page][::-1], len(found) > self.list_per_page
        if is_full or looked.high < ids.high:
            self.newer_url = self.get_query_string({NEWER: rows[0].pk if is_full else looked.high - 1})
        self.older_url = self.get_query_string({OLDER: newer + 1})
        self._tell(looked, is_full)
        self.goes_ahead = looked.high < ids.high
        return rows

    def _found(self, ids: Ids, direction: str) -> list[Any]:
        rows = self.queryset.filter(pk__gte=ids.low, pk__lt=ids.high)
        first = slice(self.list_per_page + 1)
        if not (self._sees_all and self._is_narrowed):
            return list(rows.order_by(getattr(F("pk"), direction)())[first])
        # The sum keeps the small index in use: by id alone, the planner may read the primary key until a page is full,
        # through all that has finished. Of ids, because that index holds them and the table would be read for the rest.
        chosen = rows.order_by(getattr(F("pk") + 0, direction)()).values("pk")[first]
        shown = self.root_queryset.filter(pk__in=chosen)
        if is_hot(self.params):
            shown = shown.filter(era=HOT)
        return list(shown.order_by(getattr(F("pk"), direction)()))

    def _tell(self, looked: Ids, is_full: bool) -> None:
        if not (is_full or self._sees_all) and looked.low < looked.high:
            self.looked_at = (looked.low, looked.high - 1)

    @cached_property
    def _sees_all(self) -> bool:
        """Whether a page need not stop before it is full."""
        if not self._is_narrowed or id_in(self.query) is not None:
            return True
        return are_few(self.queryset.db, self._chosen)

    @property
    def _is_narrowed(self) -> bool:
        return bool(self.query or self.has_active_filters)

    @property
    def _chosen(self) -> dict[str, str]:
        chosen = {spec.parameter_name: spec.value() for spec in self.filter_specs if isinstance(spec, Chosen)}
        if tags := valid_tags(tags_in(self.query)[0]):
            chosen[TAG] = tags[0]
        return {str(name): value for name, value in chosen.items() if value is not None}

    @cached_property
    def _ids(self) -> Ids:
        """Where the jobs of the chosen time lie."""
        if self.extent is None:
            return Ids(0, 0)
        ages = [spec.age for spec in self.filter_specs if isinstance(spec, AgeFilter) and spec.age is not None]
        begins = [self.extent.now - age for age in ages]
        if self.period is not None:
            begins.append(self.period.begin)
        until = None if self.period is None else self.period.end
        return ids_between(self.queryset.db, self.extent, max(begins, default=None), until)

    def _link_to(self, period: Period | None) -> str:
        return self.get_query_string({CREATED: None if period is None else period.name})
