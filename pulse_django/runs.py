"""One run of a handler: what its worker and its handler have to tell each other while it goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

from .exceptions import JobCancelled, LeaseLost
from .leases import Claim
from .payloads import encode_progress

Clock = Callable[[], float]

# Seconds. Shorter asks in vain more often; longer keeps a finished job waiting for no reason.
PAUSE_BEFORE_LOCKED_ROW = 0.05


class Run:
    """Shared between the thread that runs the handler and the one that keeps its lease."""

    def __init__(
        self,
        claim: Claim,
        *,
        granted_at: float | None = None,
        clock: Clock = time.monotonic,
        beat: Callable[[Run], None] | None = None,
    ) -> None:
        """``granted_at`` is this host's monotonic clock *before* the claim was sent: the lease cannot be older.

        ``beat`` extends the lease at once, for those who have nobody that does it in the background.
        """
        self.claim = claim
        self.completed = False  # by the handler itself, in its own transaction
        self.cancelled = False
        self.lost = False
        self._clock = clock
        self._beat = beat
        self._extended_at = clock() if granted_at is None else granted_at
        self._progress: str | None = None
        self._lock = Lock()

    # The handler's side

    def check(self) -> None:
        """Raise where the handler should stop."""
        if self._beat is not None and not _on_an_event_loop():
            self._beat(self)
        if self.lost or self.lease_remaining() <= 0:
            raise LeaseLost("another run may have this job by now")
        if self.cancelled:
            raise JobCancelled("the job was asked to stop")

    def lease_remaining(self) -> float:
        """Seconds for which the lease surely holds, by this host's own monotonic clock."""
        return self._extended_at + self.claim.ttl.total_seconds() - self._clock()

    def note_progress(self, payload: Mapping[str, Any], *, limit: int) -> None:
        """Keep progress for the next heartbeat; only the latest is worth sending."""
        encoded = encode_progress(dict(payload), limit=limit)
        with self._lock:
            self._progress = encoded

    # The worker's side

    def take_progress(self) -> str | None:
        """Return what a heartbeat should carry, once."""
        with self._lock:
            progress, self._progress = self._progress, None
        return progress

    def give_back(self, progress: str | None) -> None:
        """Keep what could not be delivered, unless there is newer."""
        with self._lock:
            if self._progress is None:
                self._progress = progress

    def extended(self, sent_at: float) -> None:
        """Note a heartbeat that succeeded, by the instant before it was sent."""
        self._extended_at = max(self._extended_at, sent_at)


def _on_an_event_loop() -> bool:
    """There the database cannot be asked without waiting, and what is known must do."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_current: ContextVar[Run | None] = ContextVar("pulse_run", default=None)


def current_run() -> Run | None:
    """The run whose handler is being executed here: what it enqueues are its children."""
    return _current.get()


@contextmanager
def running(run: Run) -> Iterator[Run]:
    """Make a run the current one."""
    token = _current.set(run)
    try:
        yield run
    finally:
        _current.reset(token)
