"""A call of a task before it is a job: whether its arguments fit the function, and which parts the job uses.

What a task uses is found out once, so a plain job asks none of the parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pulse_django import conf
from pulse_django.exceptions import WrongArguments
from pulse_django.queue.capability import OfCall, assembled, installed
from pulse_django.queue.words.options import OF_CALL
from pulse_django.queue.words.other_queues import option_instead

from .registry import Task, chunk_of
from .signatures import read_signature, signature_of

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


def checked(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a call, or raise for one that could never be made."""
    if why := misfit(task, args, kwargs):
        raise WrongArguments(why)
    return args, kwargs


def names_of(task: Task) -> tuple[str, ...]:
    """Return the names of the arguments that a caller may give by position."""
    known = signature_of(task)
    return () if known is None else known.names[bool(task.takes_context) :]


def misfit(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Say why a function cannot be called like this, without the values. Empty: it can be."""
    if chunk_of(task):
        return f"{task.func.__name__} has chunks and takes arguments by name only" if args else ""
    known, given = read_signature(task.func), len(args) + bool(task.takes_context)
    if known is None:
        return ""
    if not known.needs_both and not (given and kwargs):  # counting is enough, and faster than a bind
        names = kwargs.keys()
        if names and known.required <= names and (known.allowed is None or names <= known.allowed):
            return ""
        if not names and known.least <= given <= known.most:
            return ""
    try:
        known.outer.bind(*([None] * given), **kwargs)
    except TypeError as error:
        said = f"{task.func.__name__}{known.outer} does not accept these arguments: {error}"
        strange = (option_instead(name, ...) for name in kwargs if name not in known.outer.parameters)
        lines = [line for option, line in filter(None, strange) if option in OF_CALL]
        return f"{said}. Write .using({', '.join(lines)}).enqueue(...)" if lines else said
    return ""


# Which parts the jobs of a task use.


class Uses(NamedTuple):
    """What a task uses, with the settings and the capabilities for which this holds."""

    settings: conf.PulseSettings
    among: object  # the capabilities that were asked
    names: tuple[str, ...]  # of the arguments that a caller may give by position
    hides: bool  # it masks or encrypts something
    of_call: tuple[OfCall, ...]


@assembled
def _capabilities() -> object:
    return object()


def uses_of(task: Task) -> Uses:
    """Return what jobs of this task use."""
    settings = conf.current()
    known: Uses | None = getattr(task, "_uses", None)
    if known is None or known.settings is not settings or known.among is not _capabilities():
        used = tuple(one.of_call for one in installed() if one.of_call is not None and one.of_call.is_used(task))
        known = Uses(settings, _capabilities(), names_of(task), any(one.hides for one in used), used)
        with suppress(AttributeError):  # a task of Django's own class has no place for it
            object.__setattr__(task, "_uses", known)
    return known
