"""The registry of tasks that this process can run. ``@task`` adds them; a row never causes an import."""

from __future__ import annotations

import ast
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import module_has_submodule

from pulse_django import conf

MODULE = "tasks"  # of each installed app


class Registry:
    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self.chunked: Mapping[str, Task] = {}  # the tasks with chunks; most projects have none
        self.own_modules: list[str] = []  # Pulse's own, to import at discovery
        self._lock = RLock()
        # A second lock: a thread that imports a module adds its tasks, and must not wait for a thread that runs the
        # discovery and waits for the import lock of the same module.
        self._discovery = RLock()
        self._discovered = False
        self._discovering = False  # a module that is being imported may use the registry

    def add(self, task: Task) -> None:
        """Register a declared task. Copies made by ``using()`` are the same task."""
        with self._lock:
            known = {key: self._tasks[key] for key in keys_of(task) if key in self._tasks}
            for key, other in known.items():
                if other.module_path != task.module_path:
                    raise InvalidTask(f"Two tasks are called {key!r}: {other.module_path} and {task.module_path}.")
            for key in keys_of(task):
                if key not in known or known[key].func is not task.func:
                    self._tasks[key] = task  # new, or its module was reloaded
                    others = {name: other for name, other in self.chunked.items() if name != key}
                    # A new dict, because another thread may be reading the old one.
                    self.chunked = others | {key: task} if chunk_of(task) else others

    def get(self, key: str) -> Task | None:
        """Return the task with this key, which its jobs store, or None."""
        if key not in self._tasks:
            self.discover()
        return self._tasks.get(key)

    def discover(self) -> None:
        """Import all modules that declare tasks, once: the ``tasks`` module of every app, PULSE["TASK_MODULES"], and
        the root URLconf with its views, as the web process does."""
        with self.discovered() as errors:
            for error in errors.values():
                raise error

    @contextmanager
    def discovered(self) -> Iterator[dict[str, Exception]]:
        """Import the same modules, also after one that fails. Yield the errors by module.

        Inside, nothing is imported again, so that the caller can use the tasks of the other modules.
        """
        with self._discovery:  # held during the imports: other threads must not see an empty registry
            if self._discovered or self._discovering or not apps.ready:
                yield {}
                return
            self._discovering, errors = True, {}
            try:
                for module, app in self._modules():
                    try:
                        import_module(module)
                    except Exception as error:
                        if app is None or module_has_submodule(app.module, MODULE):
                            errors[module] = error
                self._discovered = not errors  # a failed import is tried and reported again
                yield errors
            finally:
                self._discovering = False

    def _modules(self) -> Iterator[tuple[str, AppConfig | None]]:
        """Yield the modules to import. An app need not have a module."""
        yield from ((f"{app.name}.{MODULE}", app) for app in apps.get_app_configs())
        yield from ((module, None) for module in (*self.own_modules, *conf.current().task_modules))
        if urls := getattr(settings, "ROOT_URLCONF", None):
            yield urls, None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._tasks))


def keys_of(task: Task) -> Iterable[str]:
    """Return the key of a task's new jobs, followed by its aliases, which old jobs may have."""
    return (key_of(task), *getattr(task, "aliases", ()))


def chunk_of(task: Task) -> int | None:
    """Return the maximum number of jobs in a chunk, or None if the task has no chunks."""
    chunk: int | None = getattr(task, "chunk", None)
    return chunk


def key_of(task: Task) -> str:
    return getattr(task, "registered_name", "") or task.module_path


registry = Registry()


# Find modules of the installed apps whose source declares tasks, without importing them.


APIS = ("django.tasks", "django_tasks", "pulse_django")
_SKIPPED_APPS = ("django", "django_tasks", "pulse_django")
_SKIPPED_FOLDERS = ("migrations", "test", "tests")
_TEST_FILE = re.compile(r"(tests?|conftest|test_.*|.*_test)\.py")
# Search the bytes first: most files do not mention a task API, and need not be parsed.
_MENTIONS_AN_API = re.compile(rb"^\s*(from|import)\s+(django\b.*\btasks|django_tasks|pulse_django)\b", re.MULTILINE)


def modules_that_declare_tasks() -> list[str]:
    """Return their names. Tests, migrations and Django's own apps are left out."""
    projects = [app for app in apps.get_app_configs() if app.name.partition(".")[0] not in _SKIPPED_APPS]
    return sorted({module for app in projects for module in _of_app(app)})


def _of_app(app: AppConfig) -> Iterator[str]:
    for folder, folders, files in os.walk(app.path):
        # Only packages: the folder of an app may also contain a virtual environment or node_modules.
        folders[:] = [
            one for one in folders if one not in _SKIPPED_FOLDERS and (Path(folder) / one / "__init__.py").exists()
        ]
        for name in files:
            path = Path(folder) / name
            if path.suffix == ".py" and not _TEST_FILE.fullmatch(name) and _declares_tasks(path):
                parts = path.relative_to(app.path).with_suffix("").parts
                yield ".".join([app.name, *(part for part in parts if part != "__init__")])


def _declares_tasks(path: Path) -> bool:
    try:
        source = path.read_bytes()
        return bool(_MENTIONS_AN_API.search(source)) and _has_a_task(ast.parse(source))
    except (OSError, SyntaxError, ValueError):  # the import will raise it
        return False


def _has_a_task(tree: ast.Module) -> bool:
    nodes, names = list(ast.walk(tree)), set()  # the names of the decorator in this module
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {f"{one.asname or one.name}.task" for one in node.names if one.name in APIS}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for one in node.names:
                if one.name == "task" and (node.module or "").removesuffix(".tasks") in ("django", *APIS):
                    names.add(one.asname or one.name)
                elif f"{node.module}.{one.name}" in APIS:
                    names.add(f"{one.asname or one.name}.task")
    decorators = [
        one for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.decorator_list
    ]
    return any(ast.unparse(one.func if isinstance(one, ast.Call) else one) in names for one in decorators)


# Import objects from dotted paths in the ``PULSE`` setting.


def imported(setting: str, path: str) -> Any:
    """Return the object at a dotted path, or raise ImproperlyConfigured with the error of the import."""
    try:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImproperlyConfigured(f'PULSE["{setting}"] names {path!r}, which cannot be imported: {error}') from error


# Django's Tasks framework: ``django.tasks`` since Django 6.0, before that the backport ``django_tasks``.


if TYPE_CHECKING:
    from django_tasks import TaskResultStatus as TaskResultStatus
    from django_tasks import task_backends as task_backends
    from django_tasks.base import TaskError as TaskError
    from django_tasks.exceptions import InvalidTaskError
    from django_tasks.exceptions import TaskResultDoesNotExist as TaskResultDoesNotExist
    from django_tasks.signals import log_task_started as log_task_started
    from django_tasks.signals import task_enqueued as task_enqueued
    from django_tasks.signals import task_finished as task_finished
    from django_tasks.signals import task_started as task_started

    from .task_types import BaseTaskBackend as BaseTaskBackend
    from .task_types import GenericTask as GenericTask
    from .task_types import Result
    from .task_types import Task as Task
    from .task_types import TaskContext as TaskContext

    InvalidTask = InvalidTaskError
    TaskResult = Result
    DummyBackend = BaseTaskBackend
else:
    try:
        from django.tasks import Task as Task
        from django.tasks import TaskContext as TaskContext
        from django.tasks import TaskResult as TaskResult
        from django.tasks import TaskResultStatus as TaskResultStatus
        from django.tasks import task_backends as task_backends
        from django.tasks.backends.base import BaseTaskBackend as BaseTaskBackend
        from django.tasks.backends.dummy import DummyBackend as DummyBackend
        from django.tasks.base import TaskError as TaskError
        from django.tasks.exceptions import InvalidTask as InvalidTask
        from django.tasks.exceptions import TaskResultDoesNotExist as TaskResultDoesNotExist
        from django.tasks.signals import log_task_started as log_task_started
        from django.tasks.signals import task_enqueued as task_enqueued
        from django.tasks.signals import task_finished as task_finished
        from django.tasks.signals import task_started as task_started
    except ImportError:
        try:
            from django_tasks import TaskContext as TaskContext
            from django_tasks import TaskResult as TaskResult
            from django_tasks import TaskResultStatus as TaskResultStatus
            from django_tasks import task_backends as task_backends
            from django_tasks.backends.base import BaseTaskBackend as BaseTaskBackend
            from django_tasks.backends.dummy import DummyBackend as DummyBackend
            from django_tasks.base import Task as Task
            from django_tasks.base import TaskError as TaskError
            from django_tasks.exceptions import InvalidTaskError as InvalidTask
            from django_tasks.exceptions import TaskResultDoesNotExist as TaskResultDoesNotExist
            from django_tasks.signals import log_task_started as log_task_started
            from django_tasks.signals import task_enqueued as task_enqueued
            from django_tasks.signals import task_finished as task_finished
            from django_tasks.signals import task_started as task_started
        except ImportError as error:
            raise ImproperlyConfigured(
                "Django before 6.0 needs the tasks backport: python -m pip install django-tasks, "
                'and add "django_tasks" to INSTALLED_APPS.'
            ) from error
    GenericTask = Task

T = TypeVar("T")
_PLAIN_CALLS: set[object] = {Task.call}
_is_async = lru_cache(maxsize=1_024)(iscoroutinefunction)

# Django logs each task by receivers of its own signals.
LOGGER = logging.getLogger("django_tasks" if BaseTaskBackend.__module__.startswith("django_tasks") else "django.tasks")
SIGNALS_FILE = str(sys.modules[log_task_started.__module__].__file__)


def changed(task: Task, changes: Mapping[str, Any]) -> Task:
    """Return a copy with other values, without validation: a job may be older than the settings."""
    copy = object.__new__(type(task))
    for one in fields(task):
        object.__setattr__(copy, one.name, changes.get(one.name, getattr(task, one.name)))
    return copy


def is_plain(task: Task) -> bool:
    """Return whether ``task.call()`` only calls a sync function. Django inspects the function on each call, which takes
    longer than the call."""
    return type(task).call in _PLAIN_CALLS and not _is_async(task.func)


def calls_plainly(call: T) -> T:
    """Mark a ``call()`` that works like Django's, except for tasks with chunks."""
    _PLAIN_CALLS.add(call)
    return call


_senders: tuple[object, dict[str, type]] = (None, {})


def sender_of(task: Task) -> type:
    """Return the class of a task's backend, which is the sender of Django's signals.

    Cache it: Django's lookup takes longer than sending a signal.
    """
    global _senders
    if _senders[0] is not task_backends.settings:  # settings have changed, as with override_settings
        _senders = (task_backends.settings, {})
    known = _senders[1]
    if task.backend not in known:
        known[task.backend] = type(task.get_backend())
    return known[task.backend]
