"""Where handlers run: threads, an event loop, or a process each. They differ in what can be stopped, and how."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from pulse_django.run.judging import Performed
from pulse_django.run.run import Run
from pulse_django.worker.handler_stacks import TITLE
from pulse_django.worker.needed_threads import Start, start_thread

Begin = Callable[[Run], bool]  # asked before a handler is called: whether it may be
Done = Callable[[Run, Performed | None], None]  # called when it is over; None: its handler was never called


class RunQueue(deque[Run]):
    """Runs that wait for a slot. Several threads take from them, and each run is taken once."""

    def next(self) -> Run | None:
        """Take the first; None: there is none, or another thread was quicker."""
        try:
            return self.popleft()
        except IndexError:
            return None


class Executor:
    can_stop = False  # whether it can make a handler end
    kills = False  # ... whatever the handler does

    def __init__(self, slots: int, begin: Begin, done: Done, start: Start = start_thread) -> None:
        self._slots, self._begin, self._done, self._start_thread = slots, begin, done, start
        self._waiting = RunQueue()

    def submit(self, runs: Sequence[Run]) -> None:
        """Run these as slots become free."""
        raise NotImplementedError

    def take_back(self) -> list[Run]:
        """Return what was submitted and has not begun; it will not begin any more."""
        return list(iter(self._waiting.next, None))

    def stop(self, run: Run) -> bool:
        """Make a handler end. Return whether that can be done to one; if not, its run is to be given up."""
        return False

    def stack_of(self, run: Run) -> str:
        """Say where its handler is, for a run that is given up. Empty: it is said later, or cannot be said."""
        return ""

    def current_stack(self, run: Run) -> str:
        """Return the stack of its handler, for an operator who asked."""
        return self.stack_of(run).removeprefix(TITLE)
