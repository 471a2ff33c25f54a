"""Where handlers run: threads, an event loop, or a process each. They differ in what can be stopped, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pulse_django.execution.judging import Performed
from pulse_django.execution.run import Run

Begin = Callable[[Run], bool]  # asked before a handler is called: whether it may be
Done = Callable[[Run, Performed | None], None]  # called when it is over; None: its handler was never called


class Executor(Protocol):
    can_stop: bool  # it can make a handler end
    kills: bool  # ... whatever the handler does

    def submit(self, runs: Sequence[Run]) -> None:
        """Run these as slots become free."""

    def take_back(self) -> list[Run]:
        """Return what was submitted and has not begun; it will not begin any more."""

    def stop(self, run: Run) -> bool:
        """Make a handler end. Return whether that can be done to one; if not, its run is to be given up."""

    def stack_of(self, run: Run) -> str:
        """Say where its handler is, for a run that is given up. Empty: it is said later, or cannot be said."""

    def current_stack(self, run: Run) -> str:
        """Return the stack of its handler, for an operator who asked."""
