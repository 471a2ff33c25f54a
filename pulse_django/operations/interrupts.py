"""Ctrl-C and SIGTERM: the first lets the current batch end, the second ends the program at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_AT_ONCE = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.default_int_handler}


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Give an event that the first signal sets; the second raises KeyboardInterrupt, which psycopg heeds."""
    stopping = threading.Event()

    def stop(number: int, frame: Any) -> None:
        signal.signal(number, _AT_ONCE[signal.Signals(number)])
        # Not here: this thread may be inside stopping.wait() with the event's own lock in its hand.
        threading.Thread(target=stopping.set, daemon=True).start()

    if threading.current_thread() is not threading.main_thread():  # Python handles signals in no other
        yield stopping
        return
    before = {number: signal.signal(number, stop) for number in _AT_ONCE}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
