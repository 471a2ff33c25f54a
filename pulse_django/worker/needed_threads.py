"""The threads that a worker process needs: if one ends too early, for any reason, the process notices it.

A child that has lost such a thread exits, and its keeper recovers its jobs. A keeper restarts the thread, because it
has leases to extend, and no other process would recover its children.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

Start = Callable[[str, Callable[[], object]], threading.Thread]
"""Starts a function in a thread with that name."""

WITHOUT_A_WORD = "no exception was seen"


@dataclass(slots=True)
class NeededThread:
    name: str
    run: Callable[[], object]
    over: threading.Event | None  # set: the thread may end
    thread: threading.Thread
    why: str = WITHOUT_A_WORD  # the reason of its end
    is_logged: bool = False

    @property
    def has_died(self) -> bool:
        return not self.thread.is_alive() and not (self.over is not None and self.over.is_set())


class NeededThreads:
    """The needed threads. ``died`` is called with the name of a thread that ended too early, and the reason.

    The thread itself calls it, or ``check`` if the thread could not.
    """

    def __init__(self, died: Callable[[str, str], object]) -> None:
        self.restarts: Counter[str] = Counter()
        self._died = died
        self._loops: list[NeededThread] = []

    def start(self, name: str, run: Callable[[], object], over: threading.Event | None = None) -> threading.Thread:
        """Run a function in a thread. It must not end before ``over`` is set, or never without ``over``."""
        loop = NeededThread(name, run, over, threading.Thread())
        self._start(loop)
        self._loops.append(loop)
        return loop.thread

    def check(self) -> None:
        """Check that all threads are alive. Call it regularly."""
        for loop in self._loops:
            if loop.has_died:
                self._report_end(loop)

    def restart_dead(self) -> list[str]:
        """Restart dead threads. Return their names."""
        dead = [loop for loop in self._loops if loop.has_died]
        for loop in dead:
            self.restarts[loop.name] += 1
            self._start(loop)
        return [loop.name for loop in dead]

    def is_alive(self, name: str) -> bool:
        return any(loop.thread.is_alive() for loop in self._loops if loop.name == name)

    def _start(self, loop: NeededThread) -> None:
        loop.why, loop.is_logged = WITHOUT_A_WORD, False
        loop.thread = threading.Thread(target=self._run, args=(loop,), name=loop.name, daemon=True)
        loop.thread.start()

    def _run(self, loop: NeededThread) -> None:
        try:
            loop.run()
        except BaseException as error:
            loop.why = f"{type(error).__name__}: {error}".rstrip(": ")
        if loop.over is None or not loop.over.is_set():
            self._report_end(loop)

    def _report_end(self, loop: NeededThread) -> None:
        if not loop.is_logged:
            self._died(loop.name, loop.why)
            loop.is_logged = True  # last, because the same exception may occur here, too


def start_thread(name: str, run: Callable[[], object]) -> threading.Thread:
    """Start a thread that is not monitored."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
