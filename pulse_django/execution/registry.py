"""Which tasks this process can run: those that decorated code registered. A row never causes an import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING

from django.apps import apps
from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from pulse_django import conf

from .tasks_framework import InvalidTask

if TYPE_CHECKING:
    from .tasks_framework import Task

MODULE = "tasks"  # of each installed app


class Registry:
    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self.chunked: Mapping[str, Task] = {}  # of these, those with chunks; most projects have none
        self.own_modules: list[str] = []  # of Pulse itself, to import at discovery
        self._lock = RLock()
        # Another one: a thread that imports a module, and so adds its tasks, must not wait for one that discovers and
        # waits for the same module.
        self._discovery = RLock()
        self._discovered = False
        self._discovering = False  # a module that is being imported may ask

    def add(self, task: Task) -> None:
        """Register a task as it was declared. What ``using()`` derives from it is the same task."""
        with self._lock:
            known = {key: self._tasks[key] for key in keys_of(task) if key in self._tasks}
            for key, other in known.items():
                if other.module_path != task.module_path:
                    raise InvalidTask(f"Two tasks are called {key!r}: {other.module_path} and {task.module_path}.")
            for key in keys_of(task):
                if key not in known or known[key].func is not task.func:
                    self._tasks[key] = task  # new, or its module was loaded again
                    self._note_chunks(key, task)

    def _note_chunks(self, key: str, task: Task) -> None:
        others = {name: other for name, other in self.chunked.items() if name != key}
        self.chunked = others | {key: task} if chunk_of(task) else others  # others may be reading the old one

    def get(self, key: str) -> Task | None:
        """Look a task up by the key that stands on its jobs."""
        if key not in self._tasks:
            self.discover()
        return self._tasks.get(key)

    def discover(self) -> None:
        """Import, once, where tasks are declared: the ``tasks`` module of every app, what PULSE["TASK_MODULES"] names,
        and what the web process imports, which is the root URLconf with its views."""
        with self._discovery:  # through the imports: a caller meanwhile must not see an empty registry
            if self._discovered or self._discovering or not apps.ready:
                return
            self._discovering = True
            try:
                autodiscover_modules(MODULE)
                for module in self.own_modules:
                    import_module(module)
                for module in conf.current().task_modules:
                    import_module(module)
                if urls := getattr(settings, "ROOT_URLCONF", None):
                    import_module(urls)
                self._discovered = True  # only now: what failed is tried, and reported, again
            finally:
                self._discovering = False

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._tasks))


def keys_of(task: Task) -> Iterable[str]:
    """The key that stands on new jobs of a task first, then those that old jobs may still carry."""
    return (key_of(task), *getattr(task, "aliases", ()))


def chunk_of(task: Task) -> int | None:
    """Return how many jobs a call of the handler takes at most. None: it takes one, and not as a chunk."""
    chunk: int | None = getattr(task, "chunk", None)
    return chunk


def key_of(task: Task) -> str:
    return getattr(task, "registered_name", "") or task.module_path


registry = Registry()
