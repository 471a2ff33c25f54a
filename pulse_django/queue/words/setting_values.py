"""Parsers for the values of the ``PULSE`` setting, one for each type.

A parser raises TypeError with the expected type, or ValueError with the fault in a value of the right type.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from pulse_django.encryption.envelopes import KEY_BYTES
from pulse_django.exceptions import InvalidJob
from pulse_django.limits.rules import Limit, limit_of_queue

from .bounds import LONGEST_LEASE, MOST_ATTEMPTS, SHORTEST_LEASE
from .durations import WANTED, as_timedelta
from .job_ids import MOST_SHARD_NUMBER
from .options import check_route

MAX_KEY_ID = 100
# Options by patterns of task names, or a function of the task name, or the dotted path of such a function.
Routes = Mapping[str, Mapping[str, Any]] | str | Callable[[str], Mapping[str, Any] | None]
LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1_000
_MAKE_A_KEY = "Make one with: openssl rand -base64 32"


def _duration(value: object) -> timedelta:
    if not isinstance(made := as_timedelta(value), timedelta):
        raise TypeError(WANTED)
    return made


def _one(kind: Any, what: str, kept_as: Callable[[Any], Any] = lambda value: value) -> Callable[[object], Any]:
    """Return a parser for one type. A bool is not accepted as a number."""

    def parsed(value: object) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(what)
        return kept_as(value)

    return parsed


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise TypeError("a list of names")
    return tuple(value)


def _by_name(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"a dict of {what}")
    return value


def _alerts(value: object) -> Mapping[str, float | bool]:
    given = _by_name(value, "conditions")
    for name, most in given.items():
        if not isinstance(most, int | float) or not most >= 0:
            raise ValueError(f"{name!r} is {most!r}. Use True, False or the number that is allowed.")
    try:
        return MappingProxyType({name: most if isinstance(most, bool) else float(most) for name, most in given.items()})
    except OverflowError as error:
        raise ValueError("A number is too large.") from error


def _shards(value: object) -> Mapping[str, int]:
    given = _by_name(value, "database aliases and numbers")
    for alias, number in given.items():
        if type(number) is not int or not 0 <= number <= MOST_SHARD_NUMBER:
            raise ValueError(f"{alias!r} is {number!r}. A number is from 0 to {MOST_SHARD_NUMBER:,}.")
    if len(set(given.values())) < len(given):
        raise ValueError("Two databases have the same number.")
    return MappingProxyType(dict(given))


def _lists_by_name(value: object) -> Mapping[str, tuple[str, ...]]:
    lists = {}
    for name, given in _by_name(value, "queues and database aliases").items():
        one = (given,) if isinstance(given, str) else given
        if not isinstance(one, list | tuple) or not one or not all(isinstance(alias, str) for alias in one):
            raise ValueError(f"{name!r} is {given!r}. Use a database alias, or a list of them.")
        lists[name] = tuple(one)
    return MappingProxyType(lists)


def _names_by_name(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise TypeError("a dict of queues and names of parameters")
    return MappingProxyType(dict(value))


def _weights(value: object) -> Mapping[str, float]:
    given = _by_name(value, "keys and weights")
    for name, weight in given.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
            raise ValueError(f"{name!r} is {weight!r}. A weight is a number from {LEAST_WEIGHT} to {MOST_WEIGHT:,}.")
    return MappingProxyType({name: float(weight) for name, weight in given.items()})


def _queue_limits(value: object) -> Mapping[str, Limit]:
    limits = {}
    for queue, given in _by_name(value, "queues and limits").items():
        try:
            limits[queue] = limit_of_queue(queue, given)
        except (InvalidJob, TypeError) as error:
            raise ValueError(f"{queue!r}: {error}.") from error
    return MappingProxyType(limits)


def _routes(value: object) -> Routes:
    if isinstance(value, str) or callable(value):
        return value
    for pattern, options in _by_name(value, "patterns of task names and options").items():
        try:
            check_route(options)
        except (InvalidJob, TypeError) as error:
            raise ValueError(f"{pattern!r}: {str(error).rstrip('.')}.") from error
    return MappingProxyType(dict(value))  # type: ignore[call-overload]  # it is a dict


def _keys(value: object) -> Mapping[str, bytes]:
    """Parse encryption keys. Messages do not show ids, because id and key may be swapped."""
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise TypeError("a dict of ids and keys, both strings")
    keys = {}
    for number, (key_id, text) in enumerate(value.items(), start=1):
        if not 0 < len(key_id) <= MAX_KEY_ID or not key_id.isprintable():
            raise ValueError(f"The id of key {number} is not 1 to {MAX_KEY_ID} printable characters.")
        try:
            key = base64.b64decode(text, validate=True)
        except ValueError:
            raise ValueError(f"Key {number} is not base64. {_MAKE_A_KEY}") from None
        if len(key) != KEY_BYTES:
            raise ValueError(f"Key {number} has {len(key)} bytes, and needs {KEY_BYTES}. {_MAKE_A_KEY}")
        keys[key_id] = key
    return MappingProxyType(keys)


# By the annotation of the setting's field.
PARSER_OF_TYPE: dict[str, Callable[[object], Any]] = {
    "timedelta": _duration,
    "int": _one(int, "a whole number"),
    "bool": _one(bool, "True or False"),
    "str": _one(str, "a string"),
    "float": _one(int | float, "a number from 0 to 1", float),
    "tuple[str, ...]": _names,
    "Mapping[str, float | bool]": _alerts,
    "Mapping[str, bytes]": _keys,
    "Mapping[str, str]": _names_by_name,
    "Mapping[str, int]": _shards,
    "Mapping[str, tuple[str, ...]]": _lists_by_name,
    "Mapping[str, float]": _weights,
    "Mapping[str, Limit]": _queue_limits,
    "Routes": _routes,
}


# The ranges of the settings in ``PULSE``.

# The jobs table refuses payloads above 32 MiB (a CHECK), and jsonb may need six times the space of its text.
MAX_PAYLOAD_CEILING = 4_000_000


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a setting."""

    least: Any
    most: Any
    why: str  # the reason, for the error message


RANGES = {
    "lease_ttl": Range(SHORTEST_LEASE, LONGEST_LEASE, "a lease must be longer than a round trip"),
    "heartbeat_interval": Range(
        timedelta(milliseconds=10), timedelta(hours=12), "a heartbeat must be shorter than a lease"
    ),
    "watchdog_interval": Range(timedelta(milliseconds=10), timedelta(days=1), "recovery waits for the next tick"),
    "keep_completed": Range(timedelta(), timedelta(days=36_500), "it cannot be negative"),
    "keep_cancelled": Range(timedelta(), timedelta(days=36_500), "it cannot be negative"),
    "keep_dead_letters": Range(timedelta(), timedelta(days=36_500), "it cannot be negative"),
    "overdue_after": Range(timedelta(seconds=1), timedelta(days=365), "a poll alone may take a second"),
    "poll_interval": Range(timedelta(milliseconds=10), timedelta(hours=1), "jobs wait for the next poll"),
    "max_attempts": Range(1, MOST_ATTEMPTS, "a job needs at least one run"),
    "max_lost_workers": Range(1, MOST_ATTEMPTS, "a job must be able to run"),
    "max_payload_bytes": Range(100, MAX_PAYLOAD_CEILING, "the jobs table refuses larger rows"),
    "retry_backoff_cap": Range(timedelta(milliseconds=1), timedelta(days=365), "a pause must be positive and finite"),
    "unknown_task_delay": Range(timedelta(milliseconds=1), timedelta(days=1), "a shorter delay would be a tight loop"),
    "unknown_task_age": Range(timedelta(), timedelta(days=365), "the job must become a dead letter eventually"),
    "processes": Range(1, 256, "at least one process must run the jobs"),
    "concurrency": Range(1, 1_000, "each slot needs a thread and possibly a connection"),
    "shutdown_grace": Range(timedelta(), timedelta(days=1), "a worker must stop eventually"),
    "max_jobs": Range(0, 2**31, "it cannot be negative"),
    "max_rss_mib": Range(0, 2**31, "it cannot be negative"),
    "child_timeout": Range(timedelta(seconds=2), timedelta(days=1), "a healthy process can be silent for a moment"),
    "priority_ageing": Range(timedelta(), timedelta(days=365), "it cannot be negative"),
    "retry_jitter": Range(0.0, 1.0, "a delay cannot be negative"),
}
