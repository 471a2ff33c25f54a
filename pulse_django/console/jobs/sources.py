"""Where the list of jobs is read from: each shard, and in it the ids of each number apart.

Ids rise with time only among those that one shard gave. Jobs that were moved keep theirs, so they are a part of their
new shard that is read by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulse_django.console.shards import Shards

from .extent import Extent, extent_of, extents_of


@dataclass(frozen=True, slots=True)
class Source:
    """Jobs of one shard whose ids begin with one number."""

    alias: str
    number: int
    extent: Extent


def sources_of(everywhere: Shards) -> list[Source]:
    """Return those that hold jobs. Of a single database, all jobs are one source."""

    def sources(alias: str) -> list[Source]:
        ranges = everywhere.ranges
        found = extents_of(alias, list(ranges.values())) if everywhere.are_several else [extent_of(alias)]
        numbered = zip(ranges, found, strict=True)
        return [Source(alias, number, extent) for number, extent in numbered if extent is not None]

    return [source for some in everywhere.ask(sources).values() for source in some]
