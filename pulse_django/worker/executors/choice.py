"""All executors of a child. It chooses the one for each job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction

from pulse_django.run.registry import registry
from pulse_django.run.run import LOSSES_UNTIL_ALONE, Run
from pulse_django.safe_logging import SafeLogger
from pulse_django.tasks import Isolation
from pulse_django.worker.channel import Channel
from pulse_django.worker.needed_threads import Start

from . import Begin, Done, Executor
from .event_loop import EventLoop
from .processes import Processes
from .threads import Threads

logger = SafeLogger("pulse_django.worker")


class Executors:
    def __init__(
        self,
        slots: int,
        begin: Begin,
        done: Done,
        fork_server: Channel,
        start_thread: Start,
        turned_short: Callable[[], None],
    ) -> None:
        self.threads = Threads(slots, begin, done, start_thread, turned_short)
        self.loop = EventLoop(slots, begin, done, start_thread)
        self.processes = Processes(slots, begin, done, fork_server, start_thread)
        self._routes: dict[str, Executor] = {}

    def of(self, run: Run) -> Executor:
        if run.claim.losses >= LOSSES_UNTIL_ALONE:
            return self.processes
        key = run.claim.task
        if key not in self._routes:
            task = registry.get(key)
            if task is not None and iscoroutinefunction(task.func):
                self._routes[key] = self.loop
            else:
                in_process = getattr(task, "isolation", None) == Isolation.PROCESS
                self._routes[key] = self.processes if in_process else self.threads
        return self._routes[key]

    def submit(self, runs: Sequence[Run]) -> list[Run]:
        """Pass runs to their executors. Return runs that cannot be started."""
        by_executor: dict[Executor, list[Run]] = {}
        refused: list[Run] = []
        for run in runs:
            by_executor.setdefault(self.of(run), []).append(run)
        for executor, theirs in by_executor.items():
            try:
                executor.submit(theirs)
            except Exception:  # for example, no thread could be started: these runs go back
                logger.exception("Starting %d jobs failed", len(theirs))
                refused += executor.take_back()
        return refused

    @property
    def works_in_a_row(self) -> bool:
        """Return whether a slow handler delays others until ``hurry`` is called."""
        return self.threads.works_in_a_row

    def hurry(self) -> None:
        self.threads.hurry()

    def take_back(self, wanted: Callable[[Run], bool]) -> list[Run]:
        """Return the runs that wait for a slot and are wanted."""
        taken: list[Run] = []
        for executor in (self.threads, self.loop, self.processes):
            keep: list[Run] = []
            for run in executor.take_back():
                (taken if wanted(run) else keep).append(run)
            if keep:
                executor.submit(keep)
        return taken
