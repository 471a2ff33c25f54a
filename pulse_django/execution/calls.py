"""A call of a task before it is a job: whether its arguments fit the function, and which parts the job uses.

What a task uses is found out once, so a plain job asks none of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from inspect import Parameter, Signature, signature
from typing import Any, NamedTuple

from pulse_django import conf
from pulse_django.exceptions import CannotBeCalled, WrongArguments

from . import encryption, lane_keys, unique_keys
from .registry import Task, chunk_of

Arguments = tuple[Sequence[Any], Mapping[str, Any]]

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def checked(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a call, or raise for one that could never be made."""
    if why := _misfit(task, args, kwargs):
        raise WrongArguments(why)
    return args, kwargs


def names_of(task: Task) -> tuple[str, ...]:
    """Return the names of the arguments that a caller may give by position."""
    shape = None if chunk_of(task) else _call_shape_of(task.func)
    return () if shape is None else shape.names[bool(task.takes_context) :]


def explained(error: TypeError, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TypeError:
    """Return CannotBeCalled if the arguments do not fit, which no retry changes, or else the error as it is."""
    return CannotBeCalled(why) if (why := _misfit(task, args, kwargs)) else error


class _Default:
    """Stands for the default of a parameter in messages, which must not show its value."""

    def __repr__(self) -> str:
        return "..."


_DEFAULT = _Default()


class _Shape(NamedTuple):
    """What a function takes. The counts and sets answer most questions faster than a bind."""

    signature: Signature
    names: tuple[str, ...]  # of what may be given by position
    least: int  # positional arguments, if none is named
    most: int | None  # None: any number
    required: frozenset[str]
    allowed: frozenset[str] | None  # that may be given by name; None: any
    needs_both: bool  # some by position and some by name: only a bind can say

    def surely_takes(self, given: int, kwargs: Mapping[str, Any]) -> bool:
        """Say yes where counting is enough."""
        if self.needs_both or (given and kwargs):
            return False
        if not kwargs:
            return given >= self.least and (self.most is None or given <= self.most)
        return self.required <= kwargs.keys() and (self.allowed is None or kwargs.keys() <= self.allowed)


def _misfit(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Say why a function cannot be called like this, without the values. Empty: it can be."""
    if chunk_of(task):
        return f"{task.func.__name__} has chunks and takes arguments by name only" if args else ""
    shape = _call_shape_of(task.func)
    if shape is None:
        return ""
    given = len(args) + bool(task.takes_context)
    if shape.surely_takes(given, kwargs):
        return ""
    try:
        shape.signature.bind(*([None] * given), **kwargs)
    except TypeError as error:
        return f"{task.func.__name__}{shape.signature} does not accept these arguments: {error}"
    return ""


@lru_cache(maxsize=4_096)
def _call_shape_of(func: Callable[..., Any]) -> _Shape | None:
    try:
        # What is called is the outermost function: a decorator may pass arguments of its own to the one within.
        known = signature(func, follow_wrapped=False)
    except (TypeError, ValueError):  # written in C, say
        return None
    known = Signature(  # without annotations and defaults, which may show anything
        [one.replace(annotation=one.empty, default=one.default if one.default is one.empty else _DEFAULT)
         for one in known.parameters.values()]
    )  # fmt: skip
    parameters = list(known.parameters.values())
    kinds = {one.kind for one in parameters}
    required = [one for one in parameters if one.default is one.empty and one.kind in (*_POSITIONAL, *_BY_NAME)]
    return _Shape(
        signature=known,
        names=tuple(one.name for one in parameters if one.kind in _POSITIONAL),
        least=sum(one.kind in _POSITIONAL for one in required),
        most=None if Parameter.VAR_POSITIONAL in kinds else sum(one.kind in _POSITIONAL for one in parameters),
        required=frozenset(one.name for one in required),
        allowed=None
        if Parameter.VAR_KEYWORD in kinds
        else frozenset(one.name for one in parameters if one.kind in _BY_NAME),
        needs_both=any(one.kind in (Parameter.POSITIONAL_ONLY, Parameter.KEYWORD_ONLY) for one in required),
    )


# Which parts the jobs of a task use.


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
        known = Uses(settings, names_of(task), encryption.of_call in used, used)
        with suppress(AttributeError):  # a task of Django's own class has no place for it
            object.__setattr__(task, "_uses", known)
    return known
