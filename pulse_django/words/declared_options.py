"""The options that are declared, as values: all of them in order, those of a job's row, and what each refuses.

They are read from the declarations once, at import: what happens for each job finds tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from .chunk_options import ChunkTaskOptions
from .option_kinds import Option
from .option_values import JobOptions, Options
from .options import CallOptions


def _declared() -> Iterator[Option]:
    """Those of ``@task`` first, then those of ``.using()`` alone."""
    task, call = (get_type_hints(one, include_extras=True) for one in (ChunkTaskOptions, CallOptions))
    for name, annotation in {**task, **call}.items():
        if get_origin(annotation) is not Annotated:
            raise TypeError(f"{name}: annotate it with an Option(...), as the other options are")
        kind, option = get_args(annotation)
        yield replace(option, name=name, annotation=kind, for_task=name in task, for_call=name in call)


OPTIONS: Mapping[str, Option] = MappingProxyType({option.name: option for option in _declared()})
JOB_OPTIONS = tuple(OPTIONS[field.name] for field in fields(JobOptions))
COLUMNS = tuple(option.column for option in JOB_OPTIONS)

OF_TASK = frozenset(name for name, option in OPTIONS.items() if option.for_task)
OF_CALL = frozenset(name for name, option in OPTIONS.items() if option.for_call)

_JOB_NAMES = tuple(option.name for option in JOB_OPTIONS)
_JOB_DEFAULTS = tuple(option.default for option in JOB_OPTIONS)
_FROM_SETTINGS = tuple(
    (place, option.setting_at_enqueue) for place, option in enumerate(JOB_OPTIONS) if option.setting_at_enqueue
)

values_of: Callable[[JobOptions], tuple[Any, ...]] = attrgetter(*_JOB_NAMES)


def options_of(task: object) -> dict[str, Any]:
    """Return what a task says of its jobs: most say nothing, as do tasks of other classes."""
    if not isinstance(task, JobOptions) or (values := values_of(task)) == _JOB_DEFAULTS:
        return {}
    return dict(zip(_JOB_NAMES, values, strict=True))


def with_settings(values: tuple[Any, ...], settings: object) -> tuple[Any, ...]:
    """Return the values of ``values_of`` as they are stored: where None means a setting, that of the settings."""
    for place, setting in _FROM_SETTINGS:
        if values[place] is None:
            values = (*values[:place], getattr(settings, setting), *values[place + 1 :])
    return values


def _check_of(names: Iterable[str]) -> Callable[[object], None]:
    """Make a function that raises InvalidJob for the first value that is not allowed. Most are the defaults."""
    options = [OPTIONS[name] for name in names]
    values_of = attrgetter(*(option.name for option in options))
    each = tuple((option.name, option.default, option.kind.check) for option in options)

    def check(given: object) -> None:
        for (name, default, refuse), value in zip(each, values_of(given)):  # noqa: B905 - strict costs, for every job
            if value is not default:  # 0 equals False, and is none
                refuse(name, value)

    return check


check_job = _check_of(field.name for field in fields(JobOptions))
check_task = _check_of(["queue_name", *(field.name for field in fields(Options))])

# What other queues call it, or other versions of this one did.
_ELSEWHERE = {
    "countdown": "run_after",
    "delay": "run_after",
    "eta": "run_after",
    "runs_in": "run_after",
    "key": "idempotency_key",
    "max_retries": "max_attempts",
    "retries": "max_attempts",
    "queue": "queue_name",
    "time_limit": "timeout",
}


def refuse_strangers(given: Collection[str], known: Collection[str], where: str) -> None:
    """Raise for a name that is no option there, and say which was meant."""
    for name in given:
        if name not in known:
            raise TypeError(f"{where} has no option {name!r}. {_hint(name, known)}")


def _hint(name: str, known: Collection[str]) -> str:
    meant = _ELSEWHERE.get(name) or next(iter(get_close_matches(name, {*known, *OPTIONS}, n=1)), None)
    if meant is None:
        return f"The options are {', '.join(sorted(known))}."
    if meant in known:
        return f"Did you mean {meant!r}?"
    return f"Did you mean {meant!r}? Give it to {'@task' if meant in OF_TASK else '.using()'}."
