"""Apply a verb to many jobs: in batches by ascending id, at a limited rate, until it is done or stopped.

``id > last ORDER BY id LIMIT batch`` finds every job once, whatever the verb does to it: a dead letter that is retried
and dies again keeps its id. The walk ends, because new jobs have higher ids than the highest id at the start.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pulse_django.models import Job
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.words.display import in_words

from .terminal import OverwrittenLine, bar, is_terminal, showable

# Larger batches would hold their locks for too long, and claims would wait. Smaller batches waste round trips.
BATCH = 500
# Batches that one query finds. With stale statistics PostgreSQL sorts all matches in every query: 100,000 cancels took
# 9 s with one query for each batch, and 5 s with this number. A higher number needs more memory.
AHEAD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The size of a batch, and the maximum number of jobs per minute; None: no limit."""

    batch: int = BATCH
    per_minute: int | None = None

    @property
    def at_a_time(self) -> int:
        """Return the size of a batch. With a limit, it is at most the jobs of one second, so that the load is even."""
        return self.batch if self.per_minute is None else max(1, min(self.batch, self.per_minute // 60))

    def seconds_for(self, jobs: int) -> float:
        return 0.0 if self.per_minute is None else jobs * 60 / self.per_minute


class Walk:
    """One walk over jobs. Its attributes have the results so far, also after an error."""

    def __init__(
        self,
        jobs: JobQuerySet[Job],
        act: Callable[[Sequence[int]], Mapping[str, int]],
        *,
        pace: Pace | None = None,
        limit: int | None = None,
        after: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pace = pace or Pace()
        self.met = 0  # jobs that were passed to the verb, and its results:
        self.counts: Counter[str] = Counter()
        self.unsure: tuple[int, ...] = ()  # passed to the verb, which did not answer
        self.is_complete = False
        self._jobs, self._act, self._limit, self._after, self._clock = jobs, act, limit, after, clock

    def run(self, stopping: threading.Event, watch: Callable[[Walk], object] = lambda walk: None) -> None:
        """Process all jobs, or stop when ``stopping`` is set. ``watch`` is called after every batch."""
        due = self._clock()
        for found in self._batches():
            if stopping.wait(max(0.0, due - self._clock())):
                return
            due = self._clock()
            left = None if self._limit is None else self._limit - self.met
            ids = list(self._ids(pk__in=found)[:left])  # with a limited rate, they may have been found long ago
            if ids:
                self.unsure = tuple(ids)
                self.counts += Counter(self._act(ids))
                self.unsure = ()
                self.met += len(ids)
                watch(self)
            if self.met == self._limit:
                break
            # Counted from the start of the batch, so that its duration does not change the rate. After a slow batch,
            # lost time is not made up for, because that would exceed the rate.
            due += self.pace.seconds_for(len(ids))
        self.is_complete = True

    def _batches(self) -> Iterator[list[int]]:
        """Yield the ids of each batch, up to the highest id of now."""
        # Of all jobs, not of matching jobs: this reads only the end of the primary key.
        newest = Job.objects.using(self._jobs.db).order_by("-id").values_list("id", flat=True)
        highest, after = newest.first() or 0, self._after
        size = min(self.pace.at_a_time, self._limit or highest)
        while found := list(self._ids(id__gt=after, id__lte=highest)[: AHEAD * size]):
            yield from (found[start : start + size] for start in range(0, len(found), size))
            if len(found) < AHEAD * size:
                return
            after = found[-1]

    def _ids(self, **filters: Any) -> Any:
        return self._jobs.filter(**filters).order_by("id").values_list("id", flat=True)


# The progress of a walk, its rate and the remaining time: a bar on a terminal, or a line every ten seconds elsewhere.


# Seconds between two updates. More frequent updates would make a terminal flicker, and a log too long.
REDRAWN_AFTER = 0.1
WRITTEN_AFTER = 10.0


class Progress:
    """``total`` is the number of matches at the start. It is too high if jobs change during the walk."""

    def __init__(
        self,
        stream: Any,
        total: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        per_minute: int | None = None,
    ) -> None:
        self._stream, self._total, self._clock = stream, total, clock
        # The first batch does not wait: without a maximum, the shown rate would exceed the limit.
        self._fastest = float("inf") if per_minute is None else per_minute / 60
        self._shows = is_terminal(stream)
        self._line = OverwrittenLine(stream)
        self._began = self._shown_at = clock()

    def show(self, done: int) -> None:
        """Show the progress, unless it was shown a moment ago."""
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
        """Show the last state on a terminal. A log has the summary instead."""
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


# Ctrl-C and SIGTERM: the first stops the walk after the current batch, the second ends the program at once.


_AT_ONCE = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.default_int_handler}


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that the first signal sets. The second raises KeyboardInterrupt, which interrupts psycopg."""
    stopping = threading.Event()

    def stop(number: int, frame: Any) -> None:
        signal.signal(number, _AT_ONCE[signal.Signals(number)])
        # In another thread: this one may be inside stopping.wait() and hold the lock of the event.
        threading.Thread(target=stopping.set, daemon=True).start()

    if threading.current_thread() is not threading.main_thread():  # Python handles signals only in the main thread
        yield stopping
        return
    before = {number: signal.signal(number, stop) for number in _AT_ONCE}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
