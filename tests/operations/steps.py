"""Steps that the stories of these tests are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Any

from django.core.management import call_command

from pulse_django.models import Job


def run(command: str, *args: object) -> str:
    """Return what a command writes to stdout."""
    out = StringIO()
    with suppress(SystemExit):  # of a command that says by its code that something is wrong
        call_command(command, *map(str, args), stdout=out, stderr=StringIO(), no_color=True)
    return out.getvalue()


def run_json(command: str, *args: object) -> dict[str, Any]:
    """Return the one object that a command writes to stdout."""
    [line] = run(command, *args, "--json").splitlines()
    facts: dict[str, Any] = json.loads(line)
    return facts


def status_of(job: Job) -> str:
    job.refresh_from_db()
    return str(job.status)


class Time:
    """A clock that stands still but for the waits, which it keeps; told to stop, it stops after so many of them."""

    def __init__(self, stops_after: int | None = None) -> None:
        self.now, self.waits = 100.0, list[float]()
        self._stops_after = stops_after

    def __call__(self) -> float:
        return self.now

    def wait(self, timeout: float) -> bool:
        if self._stops_after is not None and len(self.waits) >= self._stops_after:
            return True
        self.waits.append(round(timeout, 6))
        self.now += timeout
        return False

    @contextmanager
    def signals(self) -> Iterator[Time]:
        yield self


class Terminal(StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


def before(step: Callable[..., Any], action: Callable[[], object]) -> Callable[..., Any]:
    """Return ``step``, with something happening right before its first call."""
    pending = [action]

    def preceded(*args: Any, **kwargs: Any) -> Any:
        while pending:
            pending.pop()()
        return step(*args, **kwargs)

    return preceded
