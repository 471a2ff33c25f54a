"""The options of each task for ``pulse_enqueue()``: the columns of its jobs, and the arguments of their keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from inspect import Parameter
from typing import Any

from pulse_django import conf
from pulse_django.encryption import values as encryption
from pulse_django.exceptions import InvalidJob, PayloadError
from pulse_django.limits.keys import check_weight, key_source_of, lane_key_of_call, limiter_of_jobs
from pulse_django.on_dead import hooks
from pulse_django.queue.database.transactions import copied
from pulse_django.queue.words.bounds import MAX_OPTIONS_TEXT
from pulse_django.queue.words.durations import seconds_of
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_of_chunks
from pulse_django.queue.words.options import COLUMNS, options_of, with_settings
from pulse_django.queue.words.own_tasks import OWN_TASKS
from pulse_django.queue.words.payloads import canonical
from pulse_django.run.calls import names_of
from pulse_django.run.registry import Task, changed, chunk_of, key_of, registry
from pulse_django.run.signatures import signature_of
from pulse_django.shards.placement import has_several_shards
from pulse_django.unique.rule import Unique

FROM_PYTHON = "Enqueue it from Python"


class Refused(Exception):
    """Why SQL cannot enqueue jobs of a task."""


def tasks_of_code() -> dict[str, dict[str, Any]]:
    """Return the stored options of each task that the code of this process declares."""
    registry.discover()
    tasks = {key: registry.get(key) for key in registry if key not in OWN_TASKS}
    return {key: described(task) for key, task in tasks.items() if task is not None and key_of(task) == key}


def described(task: Task) -> dict[str, Any]:
    """Return the stored options of a task, or why its jobs are refused."""
    try:
        if encryption.encrypts(task):
            raise Refused(f"its arguments are encrypted, and PostgreSQL has no key. {FROM_PYTHON}")
        said = {**_job(task), **_arguments(task), **_unique(task), "lanes": dict(_lanes(task))}
        has_key = "unique" in said or any("names" in lane for lane in said["lanes"].values())
        said |= {"defaults": _defaults(task) if has_key else {}}  # they may be anything: only if needed
        if len(json.dumps(said)) > MAX_OPTIONS_TEXT // 2:
            raise Refused(f"its options are longer than the table of declared tasks allows. {FROM_PYTHON}")
        return said
    except Refused as error:
        return {"refused": str(error)}


def _job(task: Task) -> dict[str, Any]:
    """Return the columns of a job that is enqueued without options."""
    settings, hides = conf.current(), encryption.CALL_FIELDS.fields(task, (), {})
    new = NewJob(
        task=key_of(task),
        queue=task.queue_name,
        priority=int(task.priority),
        sensitive=hides["sensitive"],
        tags=getattr(task, "tags", ()),
        **options_of(task),
    )
    row = with_settings(new.by_column(), settings)
    names = ("queue", "priority", "sensitive", "tags", *COLUMNS)
    columns = {name: row[name] for name in names if row[name] is not None}
    if hooks.CALL_FIELDS.is_used(task):
        columns["on_dead"] = json.loads(hooks.CALL_FIELDS.fields(task, (), {})["on_dead"])
    expires = getattr(task, "expires", None)
    return {
        "columns": json.loads(json.dumps(columns, default=copied)),
        "expires_in": None if expires is None else expires.total_seconds(),
        "searchable": hides["searchable"],
        "most_bytes": settings.max_payload_bytes,
        "has_shards": has_several_shards(),
    }


def _arguments(task: Task) -> dict[str, Any]:
    """Return the parameters of the handler."""
    known, names = signature_of(task), names_of(task)
    if known is None:  # written in C, or with chunks, which takes any named argument
        return {"names": names, "most": 0 if chunk_of(task) else None, "required": []}
    of_context = known.names[: bool(task.takes_context)]
    said = {
        "names": names,
        "most": None if known.most == float("inf") else len(names),
        "required": sorted(known.required.difference(of_context)),
    }
    return said if known.allowed is None else said | {"allowed": sorted(known.allowed.difference(of_context))}


def _defaults(task: Task) -> dict[str, str]:
    """Return the defaults of arguments as they are written in keys."""
    found = {}
    for one in _parameters(task):
        if one.default is not one.empty:
            with suppress(PayloadError):  # such as a sentinel
                found[one.name] = canonical(one.default, what="key")
    return found


def _parameters(task: Task) -> list[Parameter]:
    known = signature_of(task)
    return [] if known is None else list(known.inner.parameters.values())[bool(task.takes_context) :]


def _unique(task: Task) -> dict[str, Any]:
    """Return the arguments of the unique key, and what to do about the job that holds it."""
    rule: Unique | None = getattr(task, "unique", None)
    if rule is None:
        return {}
    _refuse_key(task, "its unique key", rule.by)
    if rule.per is not None or has_several_shards() or (chunk_of(task) and not rule.by):
        raise Refused(f"its rule of unique jobs needs Python. {FROM_PYTHON}")
    names = rule.by if isinstance(rule.by, tuple) and rule.by else sorted(one.name for one in _parameters(task))
    key = key_of(task).replace("%", "%%")
    conflict: str = rule.on_conflict if rule.on_conflict in ("replace", "debounce") else "nothing"
    if rule.until_start and rule.on_conflict in ("keep", "follow"):
        conflict = "hold"
    return {
        "unique": {
            "by": names,
            "before": [f'"{name}":' if not rule.by else "" for name in names],
            "form": f"{key} [%s]" if rule.by else f"{key} {{%s}}",
            "conflict": conflict,
            "raises": rule.on_conflict == "raise",
            "until_start": rule.until_start,
            "longest": None if rule.max_delay is None else seconds_of(rule.max_delay),
        }
    }


def _lanes(task: Task) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the lane of its jobs in each queue with rules in the settings, and in all other queues."""
    settings = conf.current()
    for queue in ("", *sorted({*settings.queue_limits, *settings.fair_by_queue})):
        there = changed(task, {"queue_name": queue})
        try:
            yield queue, _lane(there)
        except (InvalidJob, Refused) as error:
            yield queue, {"refused": str(error)}


def _lane(task: Task) -> dict[str, Any]:
    limiter, source = limiter_of_jobs(task), key_source_of(task)
    if limiter and has_several_shards():
        raise Refused(f"its limit belongs to one of several shards. {FROM_PYTHON}")
    if source is None:
        return {"key": lane_key_of_call(task, (), {}) or (lane_of_chunks(key_of(task)) if chunk_of(task) else "")}
    check_weight(task)
    _refuse_key(task, "its key", source)
    return {"limiter": limiter, "names": [source] if isinstance(source, str) else source}


def _refuse_key(task: Task, what: str, source: object) -> None:
    """Refuse a key that PostgreSQL cannot make without Python."""
    if callable(source):
        raise Refused(f"{what} is made by a function. {FROM_PYTHON}")
    if encryption.hides_arguments(task):
        raise Refused(f"{what} is made with SECRET_KEY, because the task hides arguments. {FROM_PYTHON}")
    known = signature_of(task)
    is_simple = known is not None and known.most < float("inf") and not (known.has_decorator or known.any_name)
    if not is_simple and not chunk_of(task):
        raise Refused(f"{what} is made of arguments whose names only Python knows. {FROM_PYTHON}")
