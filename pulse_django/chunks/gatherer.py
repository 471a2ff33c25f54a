"""Gathers runs of tasks with chunks until their chunk is full or has waited long enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Lock
from typing import Any

from pulse_django.limits.keys import has_lane_key
from pulse_django.queue.capability import CallFields, Capability, Internals
from pulse_django.queue.words.lane_keys import is_of_chunks, lane_of_chunks
from pulse_django.run.execute import Chunking
from pulse_django.run.registry import Task, chunk_of, key_of, registry
from pulse_django.run.run import ChunkRun, Clock, Performed, Run, is_gathered
from pulse_django.worker.in_flight import Gathering, InFlight

from .perform import perform_chunk, perform_chunk_async

NEVER = float("inf")
_Name = tuple[str, str]  # the shard, and the task: a chunk has jobs of one shard


@dataclass(slots=True)
class _Gathering:
    task: Task
    until: float  # by the monotonic clock
    runs: list[Run] = field(default_factory=list)


class ChunkGatherer:
    """Collects runs for chunks. Claiming threads add runs, and the main thread takes chunks that are due."""

    def __init__(
        self, in_flight: InFlight, report: Callable[[Run, Performed], None], clock: Clock = time.monotonic
    ) -> None:
        """``report`` is called with the result of a job before the handler of its chunk has ended."""
        self._in_flight, self._report, self._clock = in_flight, report, clock
        self._gathering: dict[_Name, _Gathering] = {}
        self._lock = Lock()

    def add(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Take claimed runs. Return those to start now: complete chunks, and runs of other tasks."""
        ready: list[Run] = []
        with self._lock:
            for run in runs:
                if not is_gathered(run.claim):
                    ready.append(run)
                elif (chunk := self._gather(run)) is not None:
                    ready.append(chunk)
            return ready + self._due()

    def due(self) -> list[ChunkRun]:
        """Return the chunks that are due. If nothing more can be claimed, all of them are."""
        if not self._gathering:
            return []
        with self._lock:
            return self._due()

    def due_in(self) -> float:
        """Return the seconds until the next chunk is due."""
        return min((one.until for one in list(self._gathering.values())), default=NEVER) - self._clock()

    def take_back(self) -> list[Run]:
        """Return all gathered runs, without calling their handlers."""
        with self._lock:
            taken = [run for one in self._gathering.values() for run in one.runs]
            self._gathering.clear()
            for run in taken:
                self._in_flight.of(run).gathering[run.claim.lane_key] -= 1
        return taken

    def _gather(self, run: Run) -> ChunkRun | None:
        """Add a run. Return the chunk if it is full now."""
        task = registry.chunked[run.claim.task]
        name = str(run.alias), key_of(task)
        if name not in self._gathering:
            wait: timedelta = getattr(task, "chunk_wait", None) or timedelta()
            self._gathering[name] = _Gathering(task, run.granted_at + wait.total_seconds())
        gathering = self._gathering[name]
        gathering.runs.append(run)
        run.waits_since = NEVER  # it waits for other runs, not for a slot
        self._in_flight.of(run).gathering[run.claim.lane_key] += 1
        return self._closed(name) if len(gathering.runs) >= (chunk_of(task) or 1) else None

    def _due(self) -> list[ChunkRun]:
        now = self._clock()
        return [
            self._closed(name)
            for name, one in list(self._gathering.items())
            if one.until <= now or self._in_flight.of(one.runs[0]).most_jobs() < 1
        ]

    def _closed(self, name: _Name) -> ChunkRun:
        runs = self._gathering.pop(name).runs
        chunk, now = ChunkRun(runs, self._report), self._clock()
        for run in (chunk, *runs):
            run.waits_since = now
        for run in runs:
            run.chunk = chunk
            self._in_flight.of(run).gathering[run.claim.lane_key] -= 1
        self._in_flight.of(chunk).occupy(chunk)
        return chunk


def jobs_a_slot(lane_key: str) -> int | None:
    """Return how many jobs of a lane one slot takes. None: one, or the lane has jobs of several tasks."""
    if not is_of_chunks(lane_key):
        return None
    tasks = (task for name, task in registry.chunked.items() if lane_of_chunks(name) == lane_key)
    return next(map(chunk_of, tasks), None)


class LaneOfChunks(CallFields):
    """A separate lane for jobs without a limit and a share, so that a claim can return a whole chunk."""

    def is_used(self, task: Task) -> bool:
        return chunk_of(task) is not None and not has_lane_key(task)

    def fields(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {"lane_key": lane_of_chunks(key_of(task))}


class GatheringChunks(Gathering):
    def gatherer(self, in_flight: InFlight, report: Callable[[Run, Performed], None], clock: Clock) -> ChunkGatherer:
        return ChunkGatherer(in_flight, report, clock)


class ChunkHandling(Chunking):
    def perform(self, run: ChunkRun, task: Task | None) -> Performed:
        return perform_chunk(run, task)

    async def perform_async(self, run: ChunkRun, task: Task) -> Performed:
        return await perform_chunk_async(run, task)


CAPABILITY = Capability(
    name="chunks",
    call_fields=LaneOfChunks(),
    internals=Internals(jobs_a_slot=jobs_a_slot, parts=(ChunkHandling(), GatheringChunks())),
)
