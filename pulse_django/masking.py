"""What people may see of a job's arguments and result: tasks say what is nobody's business, with ``masked=(...)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

from .registry import registry
from .taskapi import Task

MASK = "••••"
RESULT = "return"  # among the names: what the handler returns


def shown(key: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the arguments with what is masked replaced. None: this process knows nothing of the task."""
    if (task := registry.get(key)) is None:
        return None
    hidden = frozenset(getattr(task, "masked", ()))
    if not hidden:
        return list(args), dict(kwargs)
    if _has_decorator(task):  # which may put arguments of its own in front: no position tells which it is
        names, hidden = [MASK] * len(args), hidden | {MASK}
    else:
        names = _names_of(task, len(args))
    return (
        [MASK if name in hidden else value for name, value in zip(names, args, strict=True)],
        {name: MASK if name in hidden else value for name, value in kwargs.items()},
    )


def shows_result(key: str) -> bool | None:
    """Say whether the result may be seen. None: this process does not know the task."""
    task = registry.get(key)
    return None if task is None else RESULT not in getattr(task, "masked", ())


def _has_decorator(task: Task) -> bool:
    """Say whether the handler is called by a function that takes something else than it."""
    return signature(task.func) != signature(task.func, follow_wrapped=False)


def _names_of(task: Task, count: int) -> list[str]:
    """Return the parameter of each positional argument; those of ``*args`` share its name."""
    parameters = list(signature(task.func).parameters.values())[1 if task.takes_context else 0 :]
    names = [one.name for one in parameters if one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    rest = next((one.name for one in parameters if one.kind is Parameter.VAR_POSITIONAL), "")
    return [*names, *[rest] * count][:count]
