"""Memory and CPU time of the processes of a worker, now and in the last half hour, for its page in the admin."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

# Seconds between two samples. Each heartbeat sends all of them, so there are few, for few processes.
BETWEEN = 60.0
MOST_SAMPLES = 30
MOST_PROCESSES = 16


@dataclass(slots=True)
class Use:
    """The memory and CPU time of a process, from the operating system."""

    rss: int  # MiB
    cpu: float  # seconds, of all its threads since its start


@dataclass(slots=True)
class _Process:
    pid: int
    rss: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    cpu: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))  # percent of one CPU
    before: float = 0.0
    at: float | None = None

    def add(self, use: Use, now: float) -> None:
        self.rss.append(use.rss)
        if self.at is not None:
            self.cpu.append(round(100 * max(0.0, use.cpu - self.before) / max(now - self.at, 1.0)))
        self.before, self.at = use.cpu, now


def use_of(pid: int) -> Use | None:
    """Return the use of a process. None: there is no such process, or the system does not provide it."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            pages = int(file.read().split()[1])
        with open(f"/proc/{pid}/stat") as file:
            after_name = file.read().rpartition(")")[2].split()  # a name may contain spaces
    except (OSError, ValueError, IndexError):
        return None
    ticks = int(after_name[11]) + int(after_name[12])
    return Use(pages * os.sysconf("SC_PAGE_SIZE") // 1024**2, ticks / os.sysconf("SC_CLK_TCK"))


class ProcessSamples:
    """The samples of all processes. Several threads of the keeper read them, one for each shard."""

    def __init__(self, use: Callable[[int], Use | None] = use_of, clock: Callable[[], float] = time.monotonic) -> None:
        self._use, self._clock = use, clock
        self._processes: dict[str, _Process] = {}
        self._taken_at = float("-inf")
        self._lock = Lock()

    def report(self, pids: Mapping[str, int]) -> dict[str, Any]:
        """Return the samples of these processes, by name and index, the oldest first. Take a new one if it is due.

        They are objects of numbers, because the minute recorder of an earlier release subtracts all reported values.
        """
        with self._lock:
            now, pids = self._clock(), dict(list(pids.items())[:MOST_PROCESSES])
            known, is_time = self._processes, now - self._taken_at >= BETWEEN
            if is_time:
                self._taken_at, self._processes = now, {}
            for name, pid in pids.items():
                one = known.get(name)
                is_new = one is None or one.pid != pid  # the first sample of a process is taken at once
                if (is_time or is_new) and (use := self._use(pid)) is not None:
                    self._processes[name] = one = _Process(pid) if one is None or is_new else one
                    one.add(use, now)
            return {
                name: {"pid": one.pid, "rss": _by_place(one.rss), "cpu": _by_place(one.cpu)}
                for name, one in self._processes.items()
            }


def _by_place(values: Iterable[int]) -> dict[str, int]:
    return {str(place): value for place, value in enumerate(values)}


def resident_mib() -> int:
    """Return the resident set size of this process in MiB, or its peak if only that is known."""
    if (use := use_of(os.getpid())) is not None:
        return use.rss
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024**2 if sys.platform == "darwin" else peak // 1024
