"""The unique key of a call: a hash of the arguments that its task names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, Signature, signature
from typing import Any

from django.utils.crypto import salted_hmac

from pulse_django.exceptions import InvalidJob, PayloadError
from pulse_django.words.payloads import canonical
from pulse_django.words.uniqueness import Unique, UniqueKey

from .encryption import RETURNED, encrypts
from .registry import Task, chunk_of, key_of

_SALT = "pulse_django.unique"
_SALT_OF_IDEMPOTENCY = "pulse_django.idempotency"


def is_used(task: Task) -> bool:
    return getattr(task, "unique", None) is not None or getattr(task, "idempotency_key", None) is not None


def of_call(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a new job."""
    key = getattr(task, "idempotency_key", None)
    return {
        "unique": key_of_call(task, args, kwargs),
        "idempotency_key": None if key is None else idempotency_key_of(task, key),
    }


def key_of_call(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> UniqueKey | None:
    """Return the key of a job with these arguments, which fit the task. None: its jobs are not unique."""
    rule: Unique | None = getattr(task, "unique", None)
    if rule is None:
        return None
    try:
        text = f"{key_of(task)} {canonical(_material(task, rule, args, kwargs), what='unique')}"
    except PayloadError as error:
        # Its words may repeat what is masked.
        raise (InvalidJob("unique: JSON cannot hold what the key is made of") if hides(task) else error) from None
    if hides(task):  # from the hash of a short secret, the secret could be found by trying
        return UniqueKey(salted_hmac(_SALT, text, algorithm="sha256").hexdigest(), rule)
    return UniqueKey.of(text, rule)


def idempotency_key_of(task: Task, key: str) -> str:
    """Return the idempotency key that stands on a job: of an encrypted one, a hash."""
    if not encrypts(task):
        return key
    return salted_hmac(_SALT_OF_IDEMPOTENCY, f"{key_of(task)} {key}", algorithm="sha256").hexdigest()


def hides(task: Task) -> bool:
    return encrypts(task) or any(name != RETURNED for name in getattr(task, "masked", ()))


def _material(task: Task, rule: Unique, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what the key is made of."""
    if callable(rule.by):
        return rule.by(*args, **kwargs)
    given, defaults = by_name(task, args, kwargs)
    if not rule.by:
        return given | {name: value for name, value in defaults.items() if _fits_json(value)}
    found = defaults | given
    if missing := [name for name in rule.by if name not in found]:
        raise InvalidJob(f"unique: cannot tell which argument is {missing[0]!r}; pass it by name")
    return [found[name] for name in rule.by]


def by_name(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments by the names of their parameters, and the defaults of the others."""
    shape, rest = (None, "") if chunk_of(task) else _shape_of(task.func)
    if shape is None:  # a chunk has no parameters; a decorator may put arguments of its own in front
        return ({"*": list(args)} if args else {}) | dict(kwargs), {}
    context = [None] if task.takes_context else []
    bound = shape.bind(*context, *args, **kwargs)
    given = dict(bound.arguments)
    given |= given.pop(rest, {})
    bound.apply_defaults()
    defaults = {name: value for name, value in bound.arguments.items() if name not in given and name != rest}
    if context:
        first = next(iter(shape.parameters))
        given.pop(first, None)
        defaults.pop(first, None)
    return given, defaults


@lru_cache(maxsize=4_096)
def _shape_of(func: Callable[..., Any]) -> tuple[Signature | None, str]:
    """Return what a function takes, and the name of its ``**kwargs``. None: a decorator hides it."""
    shape = signature(func)
    if shape != signature(func, follow_wrapped=False):
        return None, ""
    kinds = {one.kind: one.name for one in shape.parameters.values()}
    return shape, kinds.get(Parameter.VAR_KEYWORD, "")


def _fits_json(value: object) -> bool:
    """Say whether a default can be part of a key. A sentinel, say, cannot."""
    try:
        canonical(value, what="unique")
    except PayloadError:
        return False
    return True
