"""Which databases a page of the console is about. All pages ask here.

With one shard it is the router's database, as for any other model of the admin. With several, a list asks each of them,
and a page about one row finds the shard of that row. A shard that cannot be read does not hide the others: the page
says at its top which one is missing, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from heapq import merge
from itertools import islice
from typing import Any, Protocol, TypeVar

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import Error, connections, router
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext, ngettext

from pulse_django.exceptions import InvalidJob, JobOnItsWay
from pulse_django.execution.placement import alias_of_id, has_several_shards, locate, shards
from pulse_django.models import Job
from pulse_django.store.tables import explained
from pulse_django.words.display import inert
from pulse_django.words.job_ids import number_among, ranges_of_ids

from .search_terms import number_in

SHARD = "shard"  # in the address
Answer = TypeVar("Answer")


class Shards:
    """The shards that one page asks, and those that did not answer. None of these is asked twice for a page."""

    def __init__(self, aliases: Sequence[str], away: dict[str, str] | None = None) -> None:
        self.aliases = aliases
        self.away: dict[str, str] = {} if away is None else away  # the error of each

    @property
    def are_several(self) -> bool:
        return has_several_shards()

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        """Return the ranges of the ids that each shard gives, by its number. A single database is not asked which."""
        return ranges_of_ids(list(shards().values()) if self.are_several else [0])

    def number_of(self, alias: str) -> int:
        return shards()[alias] if self.are_several else 0

    def first_id(self, number: int) -> int:
        """Return the lower bound of the ids of a shard."""
        return self.ranges[number][0]

    def only(self, alias: str) -> Shards:
        """Return these, narrowed to one."""
        return self.among([alias])

    def among(self, aliases: Iterable[str]) -> Shards:
        """Return those of these that are named."""
        named = set(aliases)
        return Shards([alias for alias in self.aliases if alias in named], self.away)

    def ask(self, question: Callable[[str], Answer]) -> dict[str, Answer]:
        """Call a function for each shard, and return what it returned. The error of a single database is raised."""
        answers: dict[str, Answer] = {}
        for alias in self.aliases:
            if alias in self.away:
                continue
            try:
                answers[alias] = question(alias)
            except Error as error:
                if not self.are_several:
                    raise
                self.away[alias] = inert(explained(error, alias))
        return answers

    def tell(self, request: HttpRequest) -> None:
        """Say at the top of the page what is missing on it. What led here may have said so of the same shard."""
        before = [str(one) for one in messages.get_messages(request)] if request.method == "GET" and self.away else []
        for alias, said in zip(self.away, self.missing(), strict=True):
            if not any(one.startswith(_missing(alias, "")) for one in before):
                messages.error(request, said)

    def missing(self) -> list[str]:
        return [_missing(alias, error) for alias, error in self.away.items()]


def _missing(alias: str, error: str) -> str:
    return gettext("Shard %(shard)s could not be read: %(error)s") % {"shard": alias, "error": error}


def not_reached(count: int) -> str:
    """Say of how many jobs it is not known whether they still match, because a shard is away."""
    said = ngettext(
        "%(count)d was not reached or no longer matched.", "%(count)d were not reached or no longer matched.", count
    )
    return said % {"count": count}


def unchanged_in(aliases: Sequence[str]) -> str:
    """Name the shards in which an act changed nothing, after what was done in others."""
    return gettext(" (nothing was changed in %(shards)s)") % {"shards": ", ".join(aliases)} if aliases else ""


class NotFoundBecauseAway(Exception):
    """What a page is about is in none of the shards that answered, and may be in one that did not."""

    def __init__(self, missing: list[str]) -> None:
        super().__init__(*missing)
        self.missing = missing


def shards_of(request: HttpRequest, model: type[Model], *, reads: bool = False) -> Shards:
    """Return all shards, as this request knows them. ``reads``: a single database may have a replica for it."""
    if not has_several_shards():
        return Shards([router.db_for_read(model) if reads else router.db_for_write(model)])
    away = request.__dict__.setdefault("_pulse_away", {})
    return Shards(list(shards()), away)


def chosen_shards(request: HttpRequest, model: type[Model], *, reads: bool = False) -> Shards:
    """Return the shard that the address names, or all of them."""
    found, alias = shards_of(request, model, reads=reads), request.GET.get(SHARD)
    return found.only(alias) if alias is not None and alias in found.aliases and found.are_several else found


def alias_to_write(row: Model) -> str:
    """Return where a row is to be changed. With one shard it may have been read from a replica."""
    if has_several_shards() and row._state.db is not None:
        return row._state.db
    alias: str = router.db_for_write(type(row))
    return alias


def shard_of_row(model: type[Model], row_id: int) -> str:
    """Return where a row stands that is never moved: its id says it."""
    if has_several_shards():
        return alias_of_id(row_id)
    alias: str = router.db_for_write(model)
    return alias


def shard_of_job(job_id: int) -> str:
    """Return where a job is now. A shard that is away matters only if the job is in none of the others."""
    try:
        return locate(job_id).alias
    except Error:
        others = Shards(list(shards()))
        for alias, is_there in others.ask(lambda one: Job.objects.using(one).filter(pk=job_id).exists()).items():
            if is_there:
                return alias
        raise


def about_one_row(view: Callable[..., HttpResponse]) -> Any:
    """Let a view of a ``ModelAdmin`` say which shards are away, where that may be why it failed, or that its job is on
    its way between two of them."""

    @wraps(view)
    def wrapped(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(self, request, *args, **kwargs)
        except JobOnItsWay as error:
            missing = [inert(str(error))]
        except NotFoundBecauseAway as error:
            missing = error.missing
        except Error:
            if not has_several_shards():
                raise
            asked = Shards(list(shards()))
            asked.ask(_answers)
            if not asked.away:
                raise
            missing = asked.missing()
        if not self.has_view_permission(request):
            raise PermissionDenied
        return _page_of_what_is_away(self, request, missing)

    return wrapped


def _answers(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT 1")


def _page_of_what_is_away(model_admin: Any, request: HttpRequest, missing: list[str]) -> HttpResponse:
    request.current_app = model_admin.admin_site.name  # {% url %} reads it
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "title": gettext("This page could not be read"),
        "missing": missing,
        "may_be_done": request.method == "POST",
    }
    return TemplateResponse(request, "admin/pulse_django/away.html", context, status=503)


class FoundInItsShard:
    """A mixin for a ``ModelAdmin``: the pages of one row find it in whichever shard it is."""

    model: type[Model]
    get_queryset: Callable[[HttpRequest], Any]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        if from_field is not None or not has_several_shards():
            return super().get_object(request, object_id, from_field)  # type: ignore[misc]  # of the ModelAdmin beside it
        try:
            row_id = self.model._meta.pk.to_python(object_id)
            alias = shard_of_job(row_id) if self.model is Job else shard_of_row(self.model, row_id)
        except (ValidationError, InvalidJob):
            return None
        return self.get_queryset(request).using(alias).filter(pk=row_id).first()

    @about_one_row
    def history_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        found: HttpResponse = super().history_view(request, *args, **kwargs)  # type: ignore[misc]  # the same
        return found

    @about_one_row
    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        found: HttpResponse = super().delete_view(request, *args, **kwargs)  # type: ignore[misc]  # the same
        return found


# Merge rows of several shards into one list: pages of it hold every row once, whatever the shards hold.
#
# Ids rise with time only among those of one shard's number. So rows are merged by id as far as their ids begin with
# the same number, wherever they are stored now, and these streams are merged by the time at which rows were created. A
# page keeps one place in each stream: the id that it got to. Pure: no row is read here.


Places = Mapping[int, int]  # by the number of a stream: an id that begins with it


class Dated(Protocol):
    """A row that can be merged."""

    @property
    def id(self) -> int: ...

    @property
    def created_at(self) -> datetime: ...


@dataclass(frozen=True, slots=True)
class Read:
    """What one database told of one stream, in the order of the page."""

    rows: Sequence[Dated] = field(repr=False)
    # Reading down, no row from this id on was left out; reading up, no row before it.
    edge: int
    is_done: bool  # there is nothing beyond the edge


@dataclass(frozen=True, slots=True)
class Merged:
    rows: list[Dated] = field(repr=False)
    places: dict[int, int]  # where the next page begins, of the streams that got anywhere
    is_full: bool  # rows were left for the next page
    has_more: bool


Streams = Mapping[int, Sequence[Read]]


def _created_at(row: Dated) -> datetime:
    return row.created_at


def newest(streams: Streams, most: int) -> Merged:
    """Return the newest rows first. The next page has ids below the places."""
    edges = {number: edge_below(reads) for number, reads in streams.items()}
    whole = {
        number: [row for row in _unique(reads, reverse=True) if row.id >= edges[number]]
        for number, reads in streams.items()
    }
    rows = list(islice(merge(*whole.values(), key=_created_at, reverse=True), most))
    return _page(rows, whole, edges, streams)


def oldest(streams: Streams, most: int) -> Merged:
    """Return the oldest rows first. The next page has ids above the places."""
    edges = {number: edge_above(reads) for number, reads in streams.items()}
    whole = {
        number: [row for row in _unique(reads, reverse=False) if row.id < edges[number]]
        for number, reads in streams.items()
    }
    rows = list(islice(merge(*whole.values(), key=_created_at), most))
    return _page(rows, whole, {number: edge - 1 for number, edge in edges.items()}, streams)


def edge_below(reads: Sequence[Read]) -> int:
    """Return from which id on all rows of a stream are known."""
    return max((one.edge for one in reads if not one.is_done), default=min(one.edge for one in reads))


def edge_above(reads: Sequence[Read]) -> int:
    """Return before which id all rows of a stream are known."""
    return min((one.edge for one in reads if not one.is_done), default=max(one.edge for one in reads))


def _unique(reads: Iterable[Read], *, reverse: bool) -> list[Dated]:
    """Return the rows of one stream by id. One that is being moved may have been seen in two shards."""
    return [row for _, row in sorted({row.id: row for one in reads for row in one.rows}.items(), reverse=reverse)]


def _page(rows: list[Dated], whole: Mapping[int, list[Dated]], edges: Places, streams: Streams) -> Merged:
    shown, places = {row.id for row in rows}, {}
    for number, some in whole.items():
        taken = [row.id for row in some if row.id in shown]
        if len(taken) == len(some):
            places[number] = edges[number]
        elif taken:
            places[number] = taken[-1]
    is_full = len(rows) < sum(map(len, whole.values()))
    has_more = is_full or not all(one.is_done for reads in streams.values() for one in reads)
    return Merged(rows, places, is_full, has_more)


def places_in(text: str, numbers: Iterable[int]) -> dict[int, int]:
    """Return the places that an address names, by the number of the stream. Nonsense names none."""
    numbers = list(numbers)
    found = (number_in(part) for part in text.split("."))
    return {number_among(one, numbers): one for one in found if one is not None}


def spelt_places(places: Places) -> str:
    return ".".join(str(places[number]) for number in sorted(places))
