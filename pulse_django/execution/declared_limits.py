"""The limits that the code of this process declares: those of its tasks, and of queues."""

from __future__ import annotations

from typing import Any

from pulse_django import conf
from pulse_django.words.limiting import Limit, limiter_of_queue

from .lane_keys import limiter_name
from .registry import InvalidTask, registry


def declared_limits() -> dict[str, dict[str, Any]]:
    """Return the numbers of all limits by name. Raise InvalidTask if two tasks give a name different numbers."""
    found: dict[str, dict[str, Any]] = {}
    declared_by: dict[str, str] = {}
    registry.discover()
    for key in registry:
        task = registry.get(key)
        limit: Limit | None = getattr(task, "limit", None)
        if task is None or limit is None:
            continue
        name, numbers = limiter_name(task, limit), limit.numbers()
        if found.setdefault(name, numbers) != numbers:
            raise InvalidTask(f"Two limits are called {name!r}: those of {declared_by[name]} and of {key}.")
        declared_by.setdefault(name, key)
    of_queues = {limiter_of_queue(queue): limit.numbers() for queue, limit in conf.current().queue_limits.items()}
    return found | of_queues
