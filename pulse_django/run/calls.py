"""Check the call of a task: whether its arguments fit the function, and which capabilities the job uses.

The capabilities are determined once for each task, so a plain job costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pulse_django import conf
from pulse_django.exceptions import WrongArguments
from pulse_django.queue.capability import CallFields, assembled, installed
from pulse_django.queue.words.options import OF_CALL
from pulse_django.queue.words.other_queues import option_instead

from .registry import Task, chunk_of
from .signatures import read_signature, signature_of

Arguments = tuple[Sequence[Any], Mapping[str, Any]]


def checked(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a call, or raise if the function cannot be called with them."""
    if why := misfit(task, args, kwargs):
        raise WrongArguments(why)
    return args, kwargs


def names_of(task: Task) -> tuple[str, ...]:
    """Return the names of the arguments that can be passed by position."""
    known = signature_of(task)
    return () if known is None else known.names[bool(task.takes_context) :]


def misfit(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why a function cannot be called like this, without the values. Empty: it can."""
    if chunk_of(task):
        return f"{task.func.__name__} has chunks and takes only keyword arguments" if args else ""
    known, given = read_signature(task.func), len(args) + bool(task.takes_context)
    if known is None:
        return ""
    if not known.needs_both and not (given and kwargs):  # counting is enough, and faster than Signature.bind()
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


# The capabilities that the jobs of a task use.


class Uses(NamedTuple):
    """The capabilities that a task uses. Valid for these settings and installed capabilities."""

    settings: conf.PulseSettings
    among: object  # the installed capabilities
    names: tuple[str, ...]  # of the arguments that can be passed by position
    hides: bool  # the task masks or encrypts arguments
    call_fields: tuple[CallFields, ...]
    waits: bool  # a job may have to wait for a function of the project, or for another transaction


@assembled
def _capabilities() -> object:
    return object()


def uses_of(task: Task) -> Uses:
    """Return the capabilities that jobs of this task use."""
    settings = conf.current()
    known: Uses | None = getattr(task, "_uses", None)
    if known is None or known.settings is not settings or known.among is not _capabilities():
        used = tuple(made for one in installed() if (made := one.call_fields) is not None and made.is_used(task))
        known = Uses(
            settings,
            _capabilities(),
            names_of(task),
            any(one.hides for one in used),
            used,
            any(one.waits(task) for one in used),
        )
        with suppress(AttributeError):  # a task of Django's own class has no such attribute
            object.__setattr__(task, "_uses", known)
    return known
