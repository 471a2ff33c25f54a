"""A call of a task before it is a job: its arguments have to fit the function, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from inspect import Parameter, Signature, signature
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Model

from .exceptions import CannotBeCalled, PayloadError, UnsupportedArgument, WrongArguments
from .taskapi import Task

Arguments = tuple[list[Any], dict[str, Any]]

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_BYTES = (bytes, bytearray, memoryview)
# What to pass instead, and what gives the value back. The first that fits counts.
_MENDS: tuple[tuple[type | tuple[type, ...], str, str], ...] = (
    (UUID, "str(value)", "UUID(text)"),
    (datetime, "value.isoformat()", "datetime.fromisoformat(text)"),
    (date, "value.isoformat()", "date.fromisoformat(text)"),
    (time, "value.isoformat()", "time.fromisoformat(text)"),
    (timedelta, "value.total_seconds()", "timedelta(seconds=number)"),
    (Decimal, "str(value)", "Decimal(text)"),
    ((set, frozenset), "list(value)", "set(items)"),
    (_BYTES, "base64.b64encode(value).decode()", "base64.b64decode(text)"),
    (Model, "value.pk", "Model.objects.get(pk=number)"),
)


def checked(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Return the arguments as JSON has them, or raise for a call that could never be made."""
    if why := _misfit(task, args, kwargs):
        raise WrongArguments(why)
    try:
        return [_plain(value) for value in args], {name: _plain(value) for name, value in kwargs.items()}
    except _NotJson as refused:
        raise UnsupportedArgument(f"{_place_of(task, args, kwargs)}: {refused.says}") from None
    except RecursionError:
        raise PayloadError("the arguments are nested too deeply, or contain themselves") from None


def refuse_misfit(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise for a job whose arguments do not fit its function, as it is in this worker."""
    if why := _misfit(task, args, kwargs):
        raise CannotBeCalled(why)


class _Default:
    """Stands for the default of a parameter in messages: the value is nobody's business."""

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
    needs_both: bool  # some by position and some by name: only a bind can tell

    def surely_takes(self, given: int, kwargs: Mapping[str, Any]) -> bool:
        """Say yes where counting is enough."""
        if self.needs_both or (given and kwargs):
            return False
        if not kwargs:
            return given >= self.least and (self.most is None or given <= self.most)
        return self.required <= kwargs.keys() and (self.allowed is None or kwargs.keys() <= self.allowed)


def _misfit(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Say why a function cannot be called like this, without the values. Empty: it can be."""
    shape = _shape_of(task.func)
    if shape is None:
        return ""
    given = len(args) + bool(task.takes_context)
    if shape.surely_takes(given, kwargs):
        return ""
    try:
        shape.signature.bind(*([None] * given), **kwargs)
    except TypeError as error:
        return f"{task.func.__name__}{shape.signature} cannot be called like this: {error}"
    return ""


@lru_cache(maxsize=4_096)
def _shape_of(func: Callable[..., Any]) -> _Shape | None:
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


class _NotJson(Exception):
    def __init__(self, value: object) -> None:
        super().__init__()
        kind = type(value).__name__
        mend = next(((by, back) for known, by, back in _MENDS if isinstance(value, known)), None)
        # "Unsupported type" is what Django's own backends say, and what its tests look for.
        self.says = f"{kind} is not JSON (Unsupported type). " + (
            f"Pass {mend[0]}, and {mend[1]} gives it back in the task." if mend else "Pass str(value) or its parts."
        )


def _plain(value: Any) -> Any:
    """As Django's normalize_json(), which would pass bytes on as text."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, _BYTES):
        return [_plain(item) for item in value]
    raise _NotJson(value)


def _place_of(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the name of the argument that JSON does not know, and the path into it."""
    shape = _shape_of(task.func)
    names = shape.names[bool(task.takes_context) :] if shape is not None else ()
    named = [*names[: len(args)], *(f"args[{index}]" for index in range(len(names), len(args)))]
    for name, value in (*zip(named, args, strict=True), *kwargs.items()):
        if place := _path_to_fault(value, name):
            return place
    return "arguments"


def _path_to_fault(value: Any, path: str) -> str:
    try:
        _plain(value)
    except _NotJson:
        pass
    else:
        return ""
    inner: list[tuple[Any, str]] = []
    if isinstance(value, Mapping):
        inner = [(key, f"{path}, a key") for key in value]
        inner += [(item, f"{path}[{key!r}]") for key, item in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, _BYTES):
        inner = [(item, f"{path}[{index}]") for index, item in enumerate(value)]
    return next((place for item, where in inner if (place := _path_to_fault(item, where))), path)
