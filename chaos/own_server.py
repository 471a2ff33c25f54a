"""A PostgreSQL of a run's own, whose clock can be set."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from chaos.clock import Clock, compile_into
from testproject import postgres
from tests.cluster import Cluster

STEP = 2.0  # seconds by which the server's clock is set forward, and back
MARGIN = timedelta(seconds=1)


@contextmanager
def own_server() -> Iterator[tuple[Path, Clock]]:
    """Start a server in a folder of its own, and let Django use it."""
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)  # if root runs this, the server runs as another user and must read it
        library = compile_into(folder)
        clock = Clock(folder / "clock", library)
        (folder / "clock").chmod(0o644)
        postgres.EXTRA_ENVIRONMENT.update(clock.environment())
        cluster = Cluster(folder, waits_for_standby=False)
        try:
            cluster.start()
            os.environ["DATABASE_URL"] = cluster.primary.url
            yield folder, clock
        finally:
            cluster.end()


class ClockSteps:
    """Sets the server's clock forward and back, and remembers when."""

    def __init__(self, clock: Clock, happened: Counter[str]) -> None:
        self._clock, self._happened = clock, happened
        self.seen: list[tuple[datetime, datetime]] = []  # with room on both sides

    def step(self) -> None:
        if not self._clock.can_jump:
            self._happened["set the clock (NOT: this machine has no C compiler)"] += 1
            return
        begin = server_now()
        self._clock.jump_to(STEP)
        time.sleep(1.5)
        self._clock.jump_to(0.0)
        time.sleep(STEP + 1.0)  # until the instants that were reached ahead of time have passed
        self.seen.append((begin - MARGIN, server_now() + timedelta(seconds=STEP) + MARGIN))
        self._happened["set the clock"] += 1

    def step_back(self, seconds: float) -> bool:
        """Set it back for good, at the end of a run. Return whether this machine can."""
        if self._clock.can_jump:
            self._clock.jump_to(-seconds)
            self._happened["set the clock back for good"] += 1
        return self._clock.can_jump

    def covers(self, at: datetime) -> bool:
        return any(begin <= at <= end for begin, end in self.seen)


def ask(question: str, *params: Any) -> list[Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(question, params or None)
        return list(cursor.fetchall()) if cursor.description else []


def server_now() -> datetime:
    [(now,)] = ask("SELECT clock_timestamp()")
    found: datetime = now
    return found


def say(text: str) -> None:
    with suppress(BrokenPipeError):
        print(text, flush=True)
