"""Pages over several shards: together they are the whole list, whatever each shard holds and however far it looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from typing import NamedTuple

from pulse_django.console.shards import Merged, Read, newest, oldest, places_in, spelt_places
from pulse_django.words.job_ids import number_among, ranges_of_ids
from tests.faults import all_faults

NUMBERS = [0, 1, 5]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    id: int
    created_at: datetime


Shards = Mapping[str, list[Row]]


def shards_of(random: Random, jobs: int, share_of_moved: float) -> Shards:
    """Give ids in the order of time, and let some of the rows be in another shard than that which gave the id."""
    counts = {number: number << 48 for number in NUMBERS}
    found: dict[str, list[Row]] = {f"db{number}": [] for number in NUMBERS}
    weights = [random.random() for _ in NUMBERS]
    for second in range(jobs):
        [number] = random.choices(NUMBERS, weights)
        counts[number] += random.choice([1, 1, 1, 7])
        home = random.choice(NUMBERS) if random.random() < share_of_moved else number
        found[f"db{home}"].append(Row(counts[number], BEGIN + timedelta(seconds=second)))
    return found


def read(rows: Iterable[Row], low: int, high: int, most: int, window: int, *, up: bool) -> Read:
    """Answer as a database does that looks at a window of rows, and returns one more than a page holds."""
    inside = sorted((row for row in rows if low <= row.id < high), reverse=not up)
    looked, is_done = inside[:window], len(inside) <= window
    found = looked[: most + 1]
    is_full = len(found) > most
    if up:
        edge = found[-1].id + 1 if is_full else (high if is_done else looked[-1].id + 1)
    else:
        edge = found[-1].id if is_full else (low if is_done else looked[-1].id)
    return Read(found, edge, is_done=is_done and not is_full)


def page(shards: Shards, places: Mapping[int, int], most: int, window: int, *, up: bool) -> Merged:
    streams = {}
    for number, (first, end) in ranges_of_ids(NUMBERS).items():
        place = places.get(number)
        low, high = (first if place is None else place + 1, end) if up else (first, end if place is None else place)
        streams[number] = [read(rows, low, high, most, window, up=up) for rows in shards.values()]
    return oldest(streams, most) if up else newest(streams, most)


def walk(shards: Shards, most: int, window: int, *, up: bool) -> list[Row]:
    found: list[Row] = []
    places: dict[int, int] = {}
    for _ in range(1_000):
        one = page(shards, places, most, window, up=up)
        assert len(one.rows) <= most
        found += one.rows
        if not one.has_more:
            return found
        # As an address carries them.
        places = places_in(spelt_places({**places, **one.places}), NUMBERS)
    raise AssertionError("it does not end")


def test_pages_together_are_the_sorted_union() -> None:
    with all_faults() as about:
        for up, seed in product([False, True], range(60)):
            with about(f"up={up}, seed={seed}"):
                random = Random(seed)
                shards = shards_of(
                    random, jobs=random.choice([0, 1, 20, 90]), share_of_moved=random.choice([0, 0.1, 0.5])
                )
                union = sorted(
                    (row for rows in shards.values() for row in rows), key=lambda row: row.created_at, reverse=not up
                )
                assert walk(shards, random.choice([1, 3, 10]), 10_000, up=up) == union


def test_windows_leave_nothing_out_and_show_nothing_twice() -> None:
    with all_faults() as about:
        for up, seed in product([False, True], range(60)):
            with about(f"up={up}, seed={seed}"):
                random = Random(seed)
                shards = shards_of(random, jobs=80, share_of_moved=0.3)
                found = walk(shards, random.choice([1, 3, 10]), random.choice([2, 4, 9]), up=up)
                assert len(found) == len(set(found)) == 80


def test_a_row_that_is_seen_in_two_shards_is_shown_once() -> None:
    row = Row(1, BEGIN)
    assert newest({0: [Read([row], 0, is_done=True)] * 2}, 10).rows == [row]
    assert oldest({0: [Read([row], 9, is_done=True)] * 2}, 10).rows == [row]


def test_an_address_names_places_or_none() -> None:
    cases = [
        ("", {}),
        ("x", {}),
        (".", {}),
        ("12", {0: 12}),
        ("12.x", {0: 12}),
        ("-1", {}),
        (f"{(1 << 48) + 3}.12", {1: (1 << 48) + 3, 0: 12}),
        (f"{(2 << 48) + 3}", {1: (2 << 48) + 3}),  # there is no shard 2: its jobs are read with those of shard 1
        (str(2**63), {}),
    ]
    with all_faults() as about:
        for text, places in cases:
            with about((text, places)):
                assert places_in(text, NUMBERS) == places


def test_the_ranges_of_all_shards_hold_all_ids() -> None:
    ranges = ranges_of_ids([5, 0, 1])
    assert list(ranges) == [0, 1, 5]
    edges = [edge for ends in ranges.values() for edge in ends]
    assert edges == [0, 1 << 48, 1 << 48, 5 << 48, 5 << 48, 2**63 - 1]
    for number, (first, end) in ranges.items():
        assert number_among(first, ranges) == number_among(end - 1, ranges) == number
    assert ranges_of_ids([7]) == {7: (0, 2**63 - 1)}
