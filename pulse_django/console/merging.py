"""Merge rows of several shards into one list: pages of it hold every row once, whatever the shards hold.

Ids rise with time only among those of one shard's number. So rows are merged by id as far as their ids begin with the
same number, wherever they are stored now, and these streams are merged by the time at which rows were created. A page
keeps one place in each stream: the id that it got to. Pure: no row is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Protocol

from pulse_django.console.search_terms import number_in
from pulse_django.words.job_ids import number_among

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
