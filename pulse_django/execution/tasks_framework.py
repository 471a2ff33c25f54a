"""Django's Tasks framework: ``django.tasks`` since Django 6.0, before that the backport ``django_tasks``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    # The backport's are typed, and generic; where no parameters are of interest they are Any.
    from django_tasks import TaskContext, TaskResultStatus, task_backends
    from django_tasks import TaskResult as GenericTaskResult
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task as GenericTask
    from django_tasks.base import TaskError
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import log_task_started, task_enqueued, task_finished, task_started

    Task = GenericTask[..., Any]
    TaskResult = GenericTaskResult[Any]
else:
    try:
        from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task_backends
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.base import TaskError
        from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
        from django.tasks.signals import log_task_started, task_enqueued, task_finished, task_started
    except ImportError:
        try:
            from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
            from django_tasks.backends.base import BaseTaskBackend
            from django_tasks.base import Task, TaskError
            from django_tasks.exceptions import InvalidTaskError as InvalidTask
            from django_tasks.exceptions import TaskResultDoesNotExist
            from django_tasks.signals import log_task_started, task_enqueued, task_finished, task_started
        except ImportError as error:
            raise ImproperlyConfigured(
                'Django before 6.0 needs the tasks backport: python -m pip install "pulse-django[tasks52]", '
                'and add "django_tasks" to INSTALLED_APPS.'
            ) from error
    GenericTask, GenericTaskResult = Task, TaskResult

T = TypeVar("T")
_PLAIN_CALLS: set[object] = {Task.call}
_is_async = lru_cache(maxsize=1_024)(iscoroutinefunction)

# Django logs each task by receivers of its own signals.
LOGGER = logging.getLogger("django_tasks" if BaseTaskBackend.__module__.startswith("django_tasks") else "django.tasks")
SIGNALS_FILE = str(sys.modules[log_task_started.__module__].__file__)


def changed(task: Task, changes: Mapping[str, Any]) -> Task:
    """Return a copy with other values, not validated: a job may be older than the settings."""
    copy = object.__new__(type(task))
    for one in fields(task):
        object.__setattr__(copy, one.name, changes.get(one.name, getattr(task, one.name)))
    return copy


def is_plain(task: Task) -> bool:
    """Whether ``task.call()`` does nothing but call a sync function. Django asks the function each time, which takes
    longer than calling it."""
    return type(task).call in _PLAIN_CALLS and not _is_async(task.func)


def calls_plainly(call: T) -> T:
    """Mark a ``call()`` that does what Django's does, but for tasks with chunks."""
    _PLAIN_CALLS.add(call)
    return call


_senders: tuple[object, dict[str, type]] = (None, {})


def sender_of(task: Task) -> type:
    """Return the class of a task's backend, which sends Django's signals.

    Django looks it up anew each time, which costs more than sending one.
    """
    global _senders
    if _senders[0] is not task_backends.settings:  # as after override_settings
        _senders = (task_backends.settings, {})
    known = _senders[1]
    if task.backend not in known:
        known[task.backend] = type(task.get_backend())
    return known[task.backend]


__all__ = [
    "LOGGER",
    "SIGNALS_FILE",
    "BaseTaskBackend",
    "GenericTask",
    "GenericTaskResult",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "calls_plainly",
    "changed",
    "is_plain",
    "sender_of",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
