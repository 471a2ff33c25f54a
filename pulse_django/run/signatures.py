"""The parameters of a task's function. They are read once, for calls, keys, masks and declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, Signature, signature
from typing import Any, NamedTuple

from .registry import Task, chunk_of

POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class _Default:
    """Replaces the default of a parameter in messages, which must not show its value."""

    def __repr__(self) -> str:
        return "..."


_DEFAULT = _Default()


class HandlerSignature(NamedTuple):
    """The signature of the outermost function, which is called. Its decorators may pass other arguments on."""

    outer: Signature  # without annotations and defaults, which may show anything
    inner: Signature
    has_decorator: bool  # a decorator takes other arguments than the inner function
    any_name: str  # the name of ``**kwargs`` of the inner function
    names: tuple[str, ...]  # of positional arguments; from here on of the outermost function
    least: int  # positional arguments, if none is passed by name
    most: float  # infinite: any number
    required: frozenset[str]
    allowed: frozenset[str] | None  # names for keyword arguments; None: any
    needs_both: bool  # positional-only and keyword-only arguments: only Signature.bind() can check them


def signature_of(task: Task) -> HandlerSignature | None:
    """Return the signature of a handler. None: it is written in C, or has chunks, whose jobs may have any arguments."""
    return None if chunk_of(task) else read_signature(task.func)


@lru_cache(maxsize=4_096)
def read_signature(func: Callable[..., Any]) -> HandlerSignature | None:
    try:
        outer, inner = signature(func, follow_wrapped=False), signature(func)
    except (TypeError, ValueError):  # for example, written in C
        return None
    parameters = [
        one.replace(annotation=one.empty, default=one.default if one.default is one.empty else _DEFAULT)
        for one in outer.parameters.values()
    ]
    kinds = {one.kind for one in parameters}
    required = [one for one in parameters if one.default is one.empty and one.kind in (*POSITIONAL, *BY_NAME)]
    names = tuple(one.name for one in parameters if one.kind in POSITIONAL)
    by_name = frozenset(one.name for one in parameters if one.kind in BY_NAME)
    return HandlerSignature(
        outer=Signature(parameters),
        inner=inner,
        has_decorator=inner != outer,
        any_name=next((one.name for one in inner.parameters.values() if one.kind is one.VAR_KEYWORD), ""),
        names=names,
        least=sum(one.kind in POSITIONAL for one in required),
        most=float("inf") if Parameter.VAR_POSITIONAL in kinds else len(names),
        required=frozenset(one.name for one in required),
        allowed=None if Parameter.VAR_KEYWORD in kinds else by_name,
        needs_both=any(one.kind in (Parameter.POSITIONAL_ONLY, Parameter.KEYWORD_ONLY) for one in required),
    )


def by_name(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments by parameter name, and the defaults of the other parameters."""
    known = signature_of(task)
    if known is None or known.has_decorator:  # the decorator may insert arguments
        return ({"*": list(args)} if args else {}) | dict(kwargs), {}
    bound = known.inner.bind(*[None] * bool(task.takes_context), *args, **kwargs)
    given = dict(bound.arguments)
    given |= given.pop(known.any_name, {})
    bound.apply_defaults()
    defaults = {name: value for name, value in bound.arguments.items() if name not in given and name != known.any_name}
    if task.takes_context:
        first = next(iter(known.inner.parameters))
        given.pop(first, None)
        defaults.pop(first, None)
    return given, defaults
