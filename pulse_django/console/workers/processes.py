"""Processes and stuck handlers of a worker, for its page. Vitals of another release in another format are left out."""

from __future__ import annotations

from typing import Any, NamedTuple

from pulse_django.console.board.sparkline import Sparkline, draw
from pulse_django.console.search_terms import number_in
from pulse_django.queue.words.display import in_words, inert

MOST_SHOWN = 32


class ProcessRow(NamedTuple):
    name: str
    pid: int
    memory: int | None  # MiB
    memory_line: Sparkline
    cpu: int | None  # percent of one processor
    cpu_line: Sparkline


class StuckJob(NamedTuple):
    job_id: int
    task: str
    since: str


def processes_of(vitals: Any) -> list[ProcessRow]:
    """Return the processes of a worker, with their memory on a common scale."""
    said = {name: one for name, one in _vital(vitals, "processes").items() if isinstance(one, dict)}
    highest = max((max(_numbers(one.get("rss")) or [0]) for one in said.values()), default=0)
    rows = [_process(name, one, highest) for name, one in said.items()]
    return sorted((row for row in rows if row is not None), key=lambda row: (row.name != "keeper", row.name))


def stuck_of(vitals: Any) -> list[StuckJob]:
    found = []
    for key, seconds in _vital(vitals, "stuck").items():
        job_id, _, task = key.partition(" ")
        if (number := number_in(job_id)) is not None and type(seconds) is int:
            found.append(StuckJob(number, inert(task), in_words(seconds)))
    return found


def _vital(vitals: Any, name: str) -> dict[str, Any]:
    said = vitals.get(name) if isinstance(vitals, dict) else None
    return dict(list(said.items())[:MOST_SHOWN]) if isinstance(said, dict) else {}


def _process(name: str, one: dict[str, Any], highest: int) -> ProcessRow | None:
    memory, cpu = (_numbers(one.get(sign)) for sign in ("rss", "cpu"))
    if type(one.get("pid")) is not int or memory is None or cpu is None:
        return None
    lines = draw(memory, highest=highest), draw(cpu, highest=100.0)
    latest = [numbers[-1] if numbers else None for numbers in (memory, cpu)]
    return ProcessRow(inert(name), one["pid"], latest[0], lines[0], latest[1], lines[1])


def _numbers(said: Any) -> list[int] | None:
    """Return the numbers in order, or None if the format is unknown."""
    is_known = isinstance(said, dict) and all(
        number_in(place) is not None and type(one) is int and 0 <= one < 10**9 for place, one in said.items()
    )
    return [said[place] for place in sorted(said, key=int)] if is_known else None
