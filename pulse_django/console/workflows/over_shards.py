"""The newest workflows of all shards, page by page. Each workflow stays in the shard in which it was opened."""

from __future__ import annotations

from dataclasses import replace

from pulse_django.console.shards import Merged, Places, Read, Shards, newest
from pulse_django.fleet import workflows


def newest_in(everywhere: Shards, before: Places, *, inside: bool, open_only: bool) -> Merged:
    """Return the page that begins below these places."""
    most = workflows.PAGE

    def read(alias: str) -> Read:
        place = before.get(everywhere.number_of(alias))
        rows = workflows.batches(alias, before=place, inside=inside, open_only=open_only, most=most + 1)
        is_full = len(rows) > most
        return Read(rows, rows[-1].id if is_full else 0, is_done=not is_full)

    reads = {everywhere.number_of(alias): [one] for alias, one in everywhere.ask(read).items()}
    page = newest(reads, most)
    tops = {number: one.rows[0].id + 1 for number, [one] in reads.items() if one.rows}
    # A stream that has ended has no id of its own to go on from.
    places = {number: place or everywhere.first_id(number) for number, place in page.places.items()}
    return replace(page, places={**tops, **before, **places})
