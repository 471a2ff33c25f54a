"""Schedules that the code of the project declares: ``@task(schedule=...)`` and ``Schedule(...)``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.core.checks import CheckMessage, Warning

from pulse_django import conf
from pulse_django.encryption.values import encrypts
from pulse_django.exceptions import InvalidSchedule, WrongArguments
from pulse_django.queue.words.durations import Seconds
from pulse_django.queue.words.own_tasks import ONLY_PULSE, OWN_TASKS
from pulse_django.queue.words.payloads import error_in_one_line, one_line
from pulse_django.run.calls import checked
from pulse_django.run.registry import Task, key_of, registry
from pulse_django.safe_logging import SafeLogger
from pulse_django.shards.placement import has_several_shards, shard_of_schedule

from .definitions import Definition
from .timings import Every, Timing

if TYPE_CHECKING:
    from pulse_django.managers import ScheduleManager


logger = SafeLogger("pulse_django.schedules")


_declared: dict[str, Schedule] = {}
_lock = Lock()


class _Rows:
    """Makes ``Schedule.objects`` the manager of the model, which is not loaded when tasks are declared."""

    def __get__(self, _instance: object, _owner: type) -> ScheduleManager:
        from pulse_django.models import Schedule as Row

        return Row.objects


class Schedule:
    """Declare that a task runs at certain times. A task may have several schedules, each with its own name.

    Write it where the task is declared. For schedules that are made at run time, use ``Schedule.objects.create()``.
    """

    objects: ClassVar = _Rows()

    def __init__(
        self,
        name: str,
        timing: Timing | None = None,
        *,
        task: Task,
        every: Seconds | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
    ) -> None:
        """Declare a schedule. Give a ``Cron``, an ``Every``, or an interval as ``every``."""
        if not isinstance(task, Task):
            raise InvalidSchedule(f"{name}: task is {task!r}, not a task. Decorate the function with @task")
        if (timing is None) == (every is None):
            raise InvalidSchedule(f"{name}: give either a Cron, an Every or every=60")
        self.task = task
        self.definition = Definition(
            name=name,
            task=key_of(task),
            timing=Every(every) if timing is None else timing,
            args=args,
            kwargs=kwargs or {},
            queue=queue,
            priority=priority,
            starts_at=starts_at,
            ends_at=ends_at,
        )
        self.definition.check(conf.current().max_payload_bytes)
        with _lock:
            other = _declared.get(name)
            if other is not None and key_of(other.task) != key_of(task):
                raise InvalidSchedule(f"Two schedules are called {name!r}: of {key_of(other.task)} and {key_of(task)}")
            _declared[name] = self


def declared_in(alias: str) -> list[Definition]:
    """Return the schedules that the code of this process declares and that this database fires.

    It logs the schedules that it leaves out. The system checks report them before a worker runs.
    """
    found, problems = declared()
    for problem in problems:
        logger.error("%s", one_line(problem))
    if not has_several_shards():
        return found
    return [one for one in found if _fires_in(alias, one)]


def declared() -> tuple[list[Definition], list[str]]:
    """Return all schedules that the code of this process declares, and the problems of those that are left out."""
    registry.discover()
    with _lock:
        found = {name: one.definition for name, one in _declared.items()}
    problems = []
    for definition in _of_tasks():
        if other := found.get(definition.name):
            problems.append(
                f"Two schedules are called {definition.name!r}: of {other.task} and of {definition.task}. "
                f"The second one does not run"
            )
        else:
            found[definition.name] = definition
    return list(found.values()), problems


def _fires_in(alias: str, one: Definition) -> bool:
    try:
        shard = shard_of_schedule(one.name, one.task, one.queue, one.args, one.kwargs)
    except Exception as error:  # of the project's placement
        logger.error("Schedule %s has no shard: %s", one_line(one.name), error_in_one_line(error))
        return False
    return shard == alias


def forget(name: str) -> None:
    """Remove a declaration. For tests."""
    with _lock:
        _declared.pop(name, None)


def check_call(definition: Definition) -> None:
    """Raise InvalidSchedule for a task that is not there, or that does not take these arguments."""
    registry.discover()
    task = registry.get(definition.task)
    if task is None:
        raise InvalidSchedule(f"{definition.name}: no task is called {definition.task!r} here")
    if definition.task in OWN_TASKS:
        raise InvalidSchedule(f"{definition.name}: {ONLY_PULSE}")
    if definition.args or definition.kwargs:
        refuse_if_encrypted(definition.name, task)
    try:
        checked(task, definition.args, definition.kwargs)
    except WrongArguments as error:
        raise InvalidSchedule(f"{definition.name}: {error}") from error


def refuse_if_encrypted(name: str, task: Task) -> None:
    """Raise InvalidSchedule for a task that is encrypted. Call it for a schedule that has arguments."""
    if encrypts(task):
        raise InvalidSchedule(
            f"{name}: {key_of(task)!r} is encrypted, and the arguments of a schedule are stored in the clear. Remove "
            f"them, and let the task read what it needs"
        )


def _of_tasks() -> Iterator[Definition]:
    for key in registry:
        task = registry.get(key)
        timing = getattr(task, "schedule", None)
        if task is not None and timing is not None and key_of(task) == key:
            yield Definition(name=key[-100:], task=key, timing=replace(timing))


# System checks of the schedules that the code declares.


def check_schedules(**_: Any) -> list[CheckMessage]:
    """Name schedules that could never enqueue a job.

    These are warnings: an error would keep workers from starting, and so stop all other schedules and jobs.
    """
    if any(problem.is_error for problem in conf.parse(getattr(settings, conf.SETTING, {}))[1]):
        return []
    with registry.discovered():  # check_tasks reports a module that cannot be imported
        found, problems = declared()
        hint = "Give each schedule another name."
        messages: list[CheckMessage] = [Warning(f"{one}.", hint=hint, id="pulse_django.W010") for one in problems]
        for definition in found:
            try:
                check_call(definition)
            except InvalidSchedule as error:
                hint = "Give the schedule args and kwargs that the task takes, or give the task's parameters defaults."
                messages.append(Warning(f"Schedule {error}.", hint=hint, id="pulse_django.W009"))
    return messages
