"""What the harness has to know of a queue. How it is asked to do something stands in its file in ``apps``."""

from __future__ import annotations

import re
from dataclasses import dataclass

POSTGRESQL, REDIS = "postgresql", "redis"
SYNC, ASYNC = "sync", "async"
ORM, ORM_ASYNC = "sync ORM", "async ORM"  # handlers that write a row by Django's ORM
TASKS = {SYNC: "nothing", ASYNC: "nothing_async", ORM: "insert", ORM_ASYNC: "insert_async"}


@dataclass(frozen=True, kw_only=True)
class Peer:
    name: str  # of its environment, and of its file apps/with_NAME.py
    title: str
    requirements: tuple[str, ...] = ()  # what pip, or npm, installs; nothing: it is this project
    settings: str  # as they are chosen, for people
    store: str = POSTGRESQL
    left: str = ""  # SQL: how many jobs are not done
    done: str = ""  # SQL: how many are; empty: it keeps none
    modes: tuple[str, ...] = (SYNC, ASYNC)
    writes: tuple[str, ...] = ()  # how its handlers can write a row by Django's ORM: ORM, ORM_ASYNC
    has_bulk: bool = True
    starts_processes: bool = True  # its worker can be told how many; otherwise so many workers are started
    gap: float = 0.06  # seconds between two jobs whose pickup is measured; more than a poll, where it polls
    is_node: bool = False

    @property
    def database(self) -> str:
        return f"bench_peer_{self.name.replace('-', '_')}"

    @property
    def finished(self) -> tuple[str, str] | None:
        """Return the table of its finished jobs, and what distinguishes them there."""
        found = re.fullmatch(r"SELECT count\(\*\) FROM (\w+) WHERE (.+)", self.done)
        return (found[1], found[2]) if found else None

    @property
    def without(self) -> dict[str, str]:
        """Return what cannot be measured, and why."""
        found = {}
        if SYNC not in self.modes:
            found["drain, sync"] = "its handlers are async"
        if ASYNC not in self.modes:
            found["drain, async"] = "it has no async handlers"
        if not self.has_bulk:
            found["enqueue, many"] = "it has no bulk enqueue"
        if self.store == REDIS:
            found["cost"] = found["beside"] = "its jobs are not in PostgreSQL"
        elif self.finished is None:
            found["beside"] = "its finished jobs are not rows of one table"
        return found

    @property
    def main_mode(self) -> str:
        """The kind of handler for what is measured with one kind only."""
        return self.modes[0]


def task_of(mode: str) -> str:
    return TASKS[mode]
