"""Check whether a queue or a task is known, for operators who type its name and may make a typo."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from difflib import get_close_matches
from typing import NamedTuple

from pulse_django import conf
from pulse_django.metrics.spans import WINDOWS, read_totals
from pulse_django.models import Worker
from pulse_django.queue.database.read_only import read_only
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.counters import OTHER, TrafficKind
from pulse_django.run.registry import registry, task_backends

from . import snapshot

MOST_WORKERS = 500

# This has no index. It runs only for a name that is unknown otherwise.
_OF_JOBS = "SELECT DISTINCT task::text FROM pulse_django_job_hot"


class UnknownName(NamedTuple):
    kind: str  # "task", "queue" or "schedule"
    name: str
    nearest: str | None  # the most similar known name

    def __str__(self) -> str:
        meant = f" Did you mean {self.nearest!r}?" if self.nearest else ""
        return f"No {self.kind} is called {self.name!r}.{meant}"


# Calls a function for each shard, and returns the results of shards that respond.
AskShards = Callable[[Callable[[str], set[str]]], Iterable[set[str]]]


def unknown_task(name: str, ask: AskShards) -> UnknownName | None:
    """Return None if the task is known: in the code, on live workers, or from jobs. Otherwise suggest a name."""
    known = set(registered_tasks()).union(*ask(_tasks_in))
    if name not in known:
        known = known.union(*ask(_tasks_of_jobs_in))
    return None if name in known else UnknownName("task", name, nearest(name, known - {OTHER}))


def unknown_queue(name: str, ask: AskShards) -> UnknownName | None:
    """Do the same for a queue. A paused queue is known."""
    known = {task.queue_name for key in registered_tasks() if (task := registry.get(key))}
    known = known.union(conf.current().queue_shards, *(task_backends[alias].queues for alias in task_backends))
    known = known.union(*ask(_queues_in))
    return None if name in known else UnknownName("queue", name, nearest(name, known))


def registered_tasks() -> list[str]:
    with suppress(Exception):  # pages and commands must work even if a module cannot be imported
        registry.discover()
    return list(registry)


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that was probably meant. Users omit the module of a task, or misspell its end."""
    names = sorted(known)
    for one in names:
        if one.endswith(f".{name}"):
            return one
    if close := get_close_matches(name, names, n=1):
        return close[0]
    ends = {one.rpartition(".")[2]: one for one in names}
    close = get_close_matches(name.rpartition(".")[2], ends, n=1)
    return ends[close[0]] if close else None


def _tasks_in(alias: str) -> set[str]:
    names = {one for tasks, _ in _known_to_workers(alias) for one in tasks or ()}
    return names | read_totals(alias, TrafficKind.TASK, WINDOWS["weeks"]).keys()


def _tasks_of_jobs_in(alias: str) -> set[str]:
    with read_only(alias):
        return {name for (name,) in run_joined(alias, _OF_JOBS, [])}


def _queues_in(alias: str) -> set[str]:
    names = {one for _, queues in _known_to_workers(alias) for one in queues or ()}
    return names | {one.name for one in snapshot.queues(alias)}


def _known_to_workers(alias: str) -> list[tuple[list[str] | None, list[str] | None]]:
    live = Worker.objects.using(alias).filter(stopped_at=None).order_by("-last_beat_at")
    return list(live.values_list("tasks", "queues")[:MOST_WORKERS])
