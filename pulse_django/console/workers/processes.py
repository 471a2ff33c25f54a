"""What a worker says of its processes and of its stuck handlers, for its page. Another release may say it in another
shape: then it is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulse_django.console.board.sparkline import Sparkline, draw
from pulse_django.words.display import in_words, inert

MOST_SHOWN = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    name: str
    pid: int
    memory: int | None  # MiB
    memory_line: Sparkline
    cpu: int | None  # percent of one processor
    cpu_line: Sparkline


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckJob:
    job_id: int
    task: str
    since: str


def processes_of(vitals: Any) -> list[ProcessRow]:
    """Return them, with the lines of their memory on a common scale."""
    said = _listed(vitals, "processes")
    highest = max((max(_numbers(one.get("rss")) or [0]) for one in said), default=0)
    rows = [_process(one, highest) for one in said]
    return [row for row in rows if row is not None]


def stuck_of(vitals: Any) -> list[StuckJob]:
    found = []
    for one in _listed(vitals, "stuck"):
        job_id, seconds = one.get("job"), one.get("seconds")
        if type(job_id) is int and type(seconds) is int:
            found.append(StuckJob(job_id=job_id, task=inert(str(one.get("task", ""))), since=in_words(seconds)))
    return found


def _listed(vitals: Any, name: str) -> list[dict[str, Any]]:
    said = vitals.get(name) if isinstance(vitals, dict) else None
    if isinstance(said, dict):
        said = [_spelt_out(key, one) for key, one in said.items()]
    return [one for one in said[:MOST_SHOWN] if isinstance(one, dict)] if isinstance(said, list) else []


def _spelt_out(key: str, one: Any) -> Any:
    """Return one entry of what a worker spells as objects of numbers."""
    if isinstance(one, dict):
        return {"name": key} | {name: _in_order(value) for name, value in one.items()}
    job, _, task = key.partition(" ")
    return {"job": int(job), "task": task, "seconds": one} if job.isdecimal() else None


def _in_order(value: Any) -> Any:
    if not isinstance(value, dict) or not all(place.isdecimal() for place in value):
        return value
    return [value[place] for place in sorted(value, key=int)]


def _process(one: dict[str, Any], highest: int) -> ProcessRow | None:
    memory, cpu = (_numbers(one.get(name)) for name in ("rss", "cpu"))
    if type(one.get("pid")) is not int or memory is None or cpu is None:
        return None
    return ProcessRow(
        name=inert(str(one.get("name", ""))),
        pid=one["pid"],
        memory=memory[-1] if memory else None,
        memory_line=draw(memory, highest=highest),
        cpu=cpu[-1] if cpu else None,
        cpu_line=draw(cpu, highest=100.0),
    )


def _numbers(said: Any) -> list[int] | None:
    is_known = isinstance(said, list) and all(type(one) is int and 0 <= one < 10**9 for one in said)
    return said if is_known else None
