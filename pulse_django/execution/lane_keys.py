"""The lane key of a call: the limiter of its task, and what the task's key or share is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.crypto import salted_hmac

from pulse_django import conf
from pulse_django.exceptions import InvalidJob, PayloadError
from pulse_django.words.lane_keys import lane_key, limiter_of_task, text_of_key
from pulse_django.words.limiting import KeySource, Limit

from .registry import key_of
from .tasks_framework import Task
from .unique_keys import by_name, hides

_SALT = "pulse_django.lane"


def lane_key_of_call(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the lane key of a job with these arguments, which fit the task."""
    limit: Limit | None = getattr(task, "limit", None)
    source = key_source_of(task)
    if limit is None and source is None:
        return ""
    limiter = "" if limit is None else limiter_name(task, limit)
    return lane_key(limiter, None if source is None else _key(task, source, args, kwargs))


def has_lane_key(task: Task) -> bool:
    return getattr(task, "limit", None) is not None or key_source_of(task) is not None


def key_source_of(task: Task) -> KeySource | None:
    """Return what the key is made of: as the task says, or as the setting QUEUE_SHARES says of its queue."""
    own = getattr(task, "key", None) or getattr(task, "share", None)
    return own or conf.current().queue_shares.get(task.queue_name)


def limiter_name(task: Task, limit: Limit) -> str:
    return limit.name or limiter_of_task(key_of(task))


def _key(task: Task, source: KeySource, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    try:
        text = text_of_key(_value(task, source, args, kwargs))
    except PayloadError as error:
        # Its words may repeat what is masked.
        raise (InvalidJob("key: JSON cannot hold what the key is made of") if hides(task) else error) from None
    return salted_hmac(_SALT, text, algorithm="sha256").hexdigest() if hides(task) else text


def _value(task: Task, source: KeySource, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a key is made of. A parameter that the call does not give, and that has no default, is None."""
    if callable(source):
        return source(*args, **kwargs)
    given, defaults = by_name(task, args, kwargs)
    found = defaults | given
    names = (source,) if isinstance(source, str) else source
    values = [found.get(name) for name in names]
    return values[0] if len(values) == 1 else values
