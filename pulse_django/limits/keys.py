"""The lane key of a call: the limiter of its task, and the key of its limit or share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.crypto import salted_hmac

from pulse_django import conf
from pulse_django.encryption.values import hides_arguments
from pulse_django.exceptions import InvalidJob, PayloadError
from pulse_django.queue.words.lane_keys import (
    lane_key,
    limiter_of_queue,
    limiter_of_task,
    limiters_of_lane,
    text_of_key,
)
from pulse_django.run.registry import InvalidTask, Task, key_of, registry
from pulse_django.run.signatures import by_name

from .rules import KeySource, Limit

_SALT = "pulse_django.lane"


def lane_key_of_call(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the lane key of a job with these arguments, which fit the task."""
    check_weight(task)
    limiter, source = limiter_of_jobs(task), key_source_of(task)
    if not limiter and source is None:
        return ""
    return lane_key(limiter, None if source is None else _key(task, source, args, kwargs))


def check_weight(task: Task) -> None:
    """Raise InvalidJob for a task whose jobs would never start in its queue."""
    of_queue, weight = conf.current().queue_limits.get(task.queue_name), getattr(task, "weight", 1)
    if of_queue is not None and of_queue.heaviest is not None and weight > of_queue.heaviest:
        raise InvalidJob(f"weight: {weight} is more than the queue {task.queue_name!r} allows at once")


def has_lane_key(task: Task) -> bool:
    """Say whether the lane key of a job depends on its call."""
    return bool(limiter_of_jobs(task)) or key_source_of(task) is not None


def limiter_of_jobs(task: Task) -> str:
    """Return the name of the limit in the lane keys: that of the task or, without one, of its queue."""
    limit: Limit | None = getattr(task, "limit", None)
    if limit is not None:
        return limiter_name(task, limit)
    return limiter_of_queue(task.queue_name) if task.queue_name in conf.current().queue_limits else ""


def limiters_of_claim(queue: str, key: str) -> tuple[str, ...]:
    """Return the names of the limits that apply to jobs of a lane."""
    return limiters_of_lane(queue, key, conf.current().queue_limits)


def key_source_of(task: Task) -> KeySource | None:
    """Return the definition of the key: that of the task, or of the setting FAIR_BY_QUEUE for its queue."""
    own = getattr(task, "limit_key", None) or getattr(task, "fair_by", None)
    return own or conf.current().fair_by_queue.get(task.queue_name)


def limiter_name(task: Task, limit: Limit) -> str:
    return limit.name or limiter_of_task(key_of(task))


def _key(task: Task, source: KeySource, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    is_hidden = hides_arguments(task)
    try:
        text = text_of_key(_value(task, source, args, kwargs))
    except PayloadError as error:
        # The message of the exception may contain masked values.
        raise (InvalidJob("key: JSON cannot hold what the key is made of") if is_hidden else error) from None
    return salted_hmac(_SALT, text, algorithm="sha256").hexdigest() if is_hidden else text


def _value(task: Task, source: KeySource, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the values of a key. A parameter without a value and without a default is None."""
    if callable(source):
        return source(*args, **kwargs)
    given, defaults = by_name(task, args, kwargs)
    found = defaults | given
    names = (source,) if isinstance(source, str) else source
    values = [found.get(name) for name in names]
    return values[0] if len(values) == 1 else values


# The limits that the code of this process declares: those of its tasks, and of queues.


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
