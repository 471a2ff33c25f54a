"""Hide arguments and results that a task declares as secret, with ``masked=(...)`` or ``encrypted=True``.

Hidden is what the task declared when the job was enqueued, which stands on the job, and what it declares today.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, signature
from typing import Any

from pulse_django.words.masks import ENCRYPTED, HIDDEN, NOTHING, Masks

from .encryption import encrypts
from .registry import Task, chunk_of, registry

MASK = "••••"
RESULT = "return"  # among the names: what the handler returns

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def declared(task: Task) -> Masks:
    """Return what a task hides, as it is declared now."""
    return ENCRYPTED if encrypts(task) else _masked_by(task)


def masks_argument(task: Task, name: str) -> bool:
    """Say whether a task masks the argument of this name now, whether or not it is encrypted as well."""
    return _masked_by(task).hides_name(name)


def hides_arguments(task: Task | None) -> bool:
    """Say whether a task hides any of its arguments now. None: this process knows nothing of it."""
    return task is None or declared(task) not in (NOTHING, Masks(returned=True))


def _masked_by(task: Task) -> Masks:
    masked = getattr(task, "masked", ())
    if not masked:
        return NOTHING
    return _masks_of_chunks(masked) if chunk_of(task) else _masks_of(task.func, bool(task.takes_context), masked)


def for_job(task: Task) -> str | None:
    """Return what is to stand on a new job. None: its task hides nothing."""
    return declared(task).text if getattr(task, "masked", ()) or encrypts(task) else None


def hides_result(task: Task, masked: str | None) -> bool:
    """Say whether the result of a job is hidden, by its task or by what stands on the job."""
    if RESULT in getattr(task, "masked", ()) or encrypts(task):
        return True
    return masked is not None and Masks.read(masked).returned


def shown(
    key: str, args: Sequence[Any], kwargs: Mapping[str, Any], masked: str | None = None
) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the arguments with what is masked replaced; ``masked`` is what stands on the job.

    None: this process knows nothing of the task, and not what it declares today.
    """
    then = Masks.read(masked)
    if then.encrypted:
        return [HIDDEN], {}
    if (task := registry.get(key)) is None:
        return None
    now = declared(task)
    return (
        [MASK if then.hides_position(at) or now.hides_position(at) else value for at, value in enumerate(args)],
        {name: MASK if then.hides_name(name) or now.hides_name(name) else value for name, value in kwargs.items()},
    )


def shows_result(key: str, masked: str | None = None) -> bool | None:
    """Say whether the result may be seen. None: this process does not know the task."""
    task = registry.get(key)
    return None if task is None else not hides_result(task, masked)


def _masks_of_chunks(masked: Sequence[str]) -> Masks:
    """Arguments of a task with chunks have any names, and none has a position."""
    names = tuple(name for name in masked if name != RESULT)
    return Masks(rest=0 if names else None, names=names, returned=RESULT in masked)


@lru_cache(maxsize=4_096)
def _masks_of(func: Callable[..., Any], takes_context: bool, masked: tuple[str, ...]) -> Masks:
    returned, hidden = RESULT in masked, [name for name in masked if name != RESULT]
    if not hidden:
        return Masks(returned=returned)
    parameters = list(signature(func).parameters.values())[takes_context:]
    placed = [one.name for one in parameters if one.kind in _POSITIONAL]
    positions = tuple(at for at, name in enumerate(placed) if name in hidden)
    # What the function does not take was enqueued for another form of it, in which it may have had a masked name.
    # And a masked name that is no parameter may be what callers think of as one of *args.
    unplaced = set(hidden) - {one.name for one in parameters}
    rest = None if _shows(parameters, Parameter.VAR_POSITIONAL, hidden) and not unplaced else len(placed)
    if _has_decorator(func):  # which may put arguments of its own in front: the position does not say which it is
        positions, rest = (), 0
    if _shows(parameters, Parameter.VAR_KEYWORD, hidden):
        return Masks(positions, rest, tuple(hidden), None, returned)
    only = tuple(one.name for one in parameters if one.kind in _NAMED and one.name not in hidden)
    return Masks(positions, rest, (), only, returned)


def _shows(parameters: Sequence[Parameter], kind: Any, hidden: Sequence[str]) -> bool:
    """Say whether there is a ``*args`` or ``**kwargs`` that is not masked as a whole."""
    return any(one.kind is kind and one.name not in hidden for one in parameters)


def _has_decorator(func: Callable[..., Any]) -> bool:
    """Say whether the handler is called by a function that takes something else than it."""
    return signature(func) != signature(func, follow_wrapped=False)
