"""Page by id instead of page number: each page opens as quickly as the first, and nothing is counted.

``OFFSET`` reads all rows that it skips, and ``COUNT(*)`` reads all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.core.paginator import Paginator
from django.db.models import F
from django.http import HttpRequest

from pulse_django.console.pages import ShardList
from pulse_django.console.search_terms import number_in
from pulse_django.models import Job
from pulse_django.queue.words.states import HOT, Status
from pulse_django.shards.page import shard_of

from .filters import AgeFilter, Chosen
from .page_window import STATUS, WORKER, Extent, Ids, are_few, earliest, extent_of, ids_between, is_hot, latest
from .searching import Searching, searching_of

OLDER, NEWER = "older", "newer"  # than the id that follows


class NewestFirst(ShardList):
    """A changelist in descending order of ids. The next page starts at the last id that was shown."""

    older_url = newer_url = ""
    estimate: int | None = None
    looked_at: tuple[int, int] | None = None  # the first and the last id, if the page is not full
    goes_back = goes_ahead = False  # whether there are more jobs to search
    alias: str
    searching: Searching | None = None
    search_notes: list[str]

    @cached_property
    def extent(self) -> Extent | None:
        return extent_of(self.alias)

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> Any:
        self.alias = shard_of(request, reads=True)
        for name in (OLDER, NEWER):  # links to other lists start at the first page
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        self.searching = searching_of(request, self.query) if self.query else None
        jobs = super().get_queryset(request, exclude_parameters)
        if WORKER in self.params and self.params.get(STATUS, Status.RUNNING) != Status.RUNNING:
            return jobs.none()  # only running jobs have a worker; PostgreSQL would search in vain
        return jobs

    def get_ordering(self, request: HttpRequest, queryset: Any) -> Any:
        return ["-pk"]

    def get_results(self, request: HttpRequest) -> None:
        older, newer = (number_in(request.GET.get(name, "")) for name in (OLDER, NEWER))
        rows = self._older_than(older) if newer is None else self._newer_than(newer)
        self.result_list = rows
        self.search_notes = [] if self.searching is None else self.searching.notes(self._is_there(rows))
        self.result_count = self.full_result_count = len(rows)  # equal, so that Django does not show a total count
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False
        self.multi_page = False
        self.paginator = Paginator(rows, self.list_per_page)
        if self.extent is not None:
            self.estimate = None if self._is_narrowed else self.extent.estimate

    def _older_than(self, older: int | None) -> list[Any]:
        """Return the rows of the first page, or of a page that was opened by "Older"."""
        ids = self._ids if older is None else self._ids._replace(high=min(self._ids.high, older))
        rows, looked, is_full = self._read(ids, "desc")
        self.goes_back = is_full or looked.low > ids.low
        if self.goes_back:
            self.older_url = self.get_query_string({OLDER: rows[-1].pk if is_full else looked.low})
        if older is not None:
            self.newer_url = self.get_query_string({NEWER: max(older - 1, 0)})
        self._tell(Ids(looked.low, ids.high), is_full)
        return rows

    def _newer_than(self, newer: int) -> list[Any]:
        """Return the rows of a page that was opened by "Newer"."""
        ids = self._ids._replace(low=max(self._ids.low, newer + 1))
        rows, looked, is_full = self._read(ids, "asc")
        self.goes_ahead = is_full or looked.high < ids.high
        if self.goes_ahead:
            self.newer_url = self.get_query_string({NEWER: rows[-1].pk if is_full else looked.high - 1})
        self.older_url = self.get_query_string({OLDER: newer + 1})
        self._tell(Ids(ids.low, looked.high), is_full)
        return rows[::-1]

    @cached_property
    def _ids(self) -> Ids:
        """Return the range of ids of the selected age."""
        if self.extent is None:
            return Ids(0, 0)
        ages = [spec.age for spec in self.filter_specs if isinstance(spec, AgeFilter) and spec.age is not None]
        return ids_between(self.alias, self.extent, max((self.extent.now - age for age in ages), default=None))

    def _read(self, ids: Ids, direction: str) -> tuple[list[Any], Ids, bool]:
        """Read one page. Return its rows, the range that was searched, and whether there are more rows."""
        if ids.low >= ids.high:
            return [], ids, False
        looked = ids
        if not self._sees_all:
            looked = (latest if direction == "desc" else earliest)(self.alias, ids, self._is_about_errors)
        rows = self._found(looked, direction)
        return rows[: self.list_per_page], looked, len(rows) > self.list_per_page

    def _found(self, ids: Ids, direction: str) -> list[Any]:
        rows = self.queryset.using(self.alias).filter(pk__gte=ids.low, pk__lt=ids.high)
        first = slice(self.list_per_page + 1)
        if not (self._is_narrowed and (self._sees_all or self._is_about_errors)):
            return list(rows.order_by(getattr(F("pk"), direction)())[first])
        # The sum keeps the small index in use: ordered by the id itself, the planner may read all finished jobs in the
        # primary key until a page is full. Only ids are selected, because that index has them, so no row is read.
        chosen = rows.order_by(getattr(F("pk") + 0, direction)()).values("pk")[first]
        shown = self.root_queryset.using(self.alias).filter(pk__in=chosen)
        if is_hot(self.params):
            shown = shown.filter(era=HOT)
        return list(shown.order_by(getattr(F("pk"), direction)()))

    def _tell(self, looked: Ids, is_full: bool) -> None:
        """Set the range of ids that was searched, if the page stopped before it was full."""
        if looked.low < looked.high and not is_full and not self._sees_all:
            self.looked_at = (looked.low, looked.high - 1)

    @cached_property
    def _sees_all(self) -> bool:
        """Return whether a page can read all matching jobs, without a window."""
        if not self._is_narrowed or (self.searching is not None and self.searching.is_one_job):
            return True
        return are_few(self.alias, self._chosen, self.searching)

    @property
    def _is_about_errors(self) -> bool:
        return self.searching is not None and self.searching.is_about_errors

    def _is_there(self, rows: Sequence[Any]) -> bool | None:
        """Return whether a job with the searched number exists, or None if no number was searched."""
        job_id = None if self.searching is None else self.searching.search.job_id
        if job_id is None:
            return None
        return any(row.pk == job_id for row in rows) or Job.objects.using(self.alias).filter(pk=job_id).exists()

    @property
    def _is_narrowed(self) -> bool:
        return bool(self.query or self.has_active_filters)

    @property
    def _chosen(self) -> dict[str, str]:
        chosen = {spec.parameter_name: spec.value() for spec in self.filter_specs if isinstance(spec, Chosen)}
        return {str(name): value for name, value in chosen.items() if value is not None}
