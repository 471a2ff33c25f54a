"""How far a walk is, at what rate, and how long it will take: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pulse_django.words.display import in_words

from .terminal import OverwrittenLine, bar, is_terminal, showable

# Seconds between two looks. A terminal redrawn more often flickers; a log with more lines than that is not read.
REDRAWN_AFTER = 0.1
WRITTEN_AFTER = 10.0


class Progress:
    """``total`` is what matched at the start: jobs that move on meanwhile make it too large."""

    def __init__(
        self,
        stream: Any,
        total: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        per_minute: int | None = None,
    ) -> None:
        self._stream, self._total, self._clock = stream, total, clock
        # The first batch waits for nothing: without a ceiling it would promise more than the throttle allows.
        self._fastest = float("inf") if per_minute is None else per_minute / 60
        self._shows = is_terminal(stream)
        self._line = OverwrittenLine(stream)
        self._began = self._shown_at = clock()

    def show(self, done: int) -> None:
        """Show it, unless that was done a moment ago."""
        now = self._clock()
        if now - self._shown_at < (REDRAWN_AFTER if self._shows else WRITTEN_AFTER):
            return
        self._shown_at = now
        if self._shows:
            self._draw(done, now)
        else:
            self._stream.write(f"{showable(self._said(done, now), self._stream)}\n")
            self._stream.flush()

    def end(self, done: int) -> None:
        """Leave the last state on a terminal; in a log the summary says it."""
        if self._shows and (done or self._total):
            self._draw(done, self._clock())
            self._line.end()

    def _draw(self, done: int, now: float) -> None:
        share = done / self._total if self._total else 1.0
        self._line.show(f"{bar(share)} {self._said(done, now)}")

    def _said(self, done: int, now: float) -> str:
        said = f"{done} of {max(self._total, done)}"
        rate = min(done / (now - self._began), self._fastest) if now > self._began else 0.0
        if rate:
            said += f", {rate:.0f} a second" if rate >= 2 else f", {rate * 60:.0f} a minute"
            if done < self._total:
                said += f", about {in_words((self._total - done) / rate)} left"
        return said
