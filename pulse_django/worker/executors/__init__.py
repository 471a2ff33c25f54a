"""Executors run handlers: in threads, on an event loop, or in a process each. They differ in how they can stop one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from pulse_django.run.run import Performed, Run
from pulse_django.worker.handler_stacks import TITLE
from pulse_django.worker.needed_threads import Start, start_thread

Begin = Callable[[Run], bool]  # called before a handler: whether it may begin
Done = Callable[[Run, Performed | None], None]  # called at the end; None: the handler was never called


class RunQueue(deque[Run]):
    """Runs that wait for a slot. Several threads take from them, and each run is taken once."""

    def next(self) -> Run | None:
        """Take the first run. None: there is none, or another thread was faster."""
        try:
            return self.popleft()
        except IndexError:
            return None


class Executor:
    can_stop = False  # whether it can stop a handler
    kills = False  # whether it can do so whatever the handler does

    def __init__(self, slots: int, begin: Begin, done: Done, start: Start = start_thread) -> None:
        self._slots, self._begin, self._done, self._start_thread = slots, begin, done, start
        self._waiting = RunQueue()

    def submit(self, runs: Sequence[Run]) -> None:
        """Run these when slots become free."""
        raise NotImplementedError

    def take_back(self) -> list[Run]:
        """Return the submitted runs that have not begun. They will not begin any more."""
        return list(iter(self._waiting.next, None))

    def stop(self, run: Run) -> bool:
        """Stop a handler. Return whether it can be stopped. If not, give its run up."""
        return False

    def stack_of(self, run: Run) -> str:
        """Return the stack of the handler of a run that is given up. Empty: it comes later, or cannot be read."""
        return ""

    def current_stack(self, run: Run) -> str:
        """Return the stack of its handler for an operator."""
        return self.stack_of(run).removeprefix(TITLE)
