"""What the jobs of a task use. It is found out once for a task, so a plain job asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pulse_django import conf

from . import encryption, lane_keys, unique_keys
from .registry import Task

OfCall = Callable[[Task, Sequence[Any], Mapping[str, Any]], dict[str, Any]]


class Uses(NamedTuple):
    """What a task uses, with the settings for which this holds."""

    settings: conf.PulseSettings
    names: tuple[str, ...]  # of the arguments that a caller may give by position
    hides: bool  # it masks or encrypts something
    of_call: tuple[OfCall, ...]  # each returns fields of a new job


_PARTS: tuple[tuple[Callable[[Task], bool], OfCall], ...] = (
    (unique_keys.is_used, unique_keys.of_call),
    (encryption.is_used, encryption.of_call),
    (lane_keys.is_used, lane_keys.of_call),
)


def uses_of(task: Task) -> Uses:
    """Return what jobs of this task use."""
    settings = conf.current()
    known: Uses | None = getattr(task, "_uses", None)
    if known is None or known.settings is not settings:
        used = tuple(of_call for is_used, of_call in _PARTS if is_used(task))
        known = Uses(settings, unique_keys.names_of(task), encryption.of_call in used, used)
        with suppress(AttributeError):  # a task of Django's own class has no place for it
            object.__setattr__(task, "_uses", known)
    return known
