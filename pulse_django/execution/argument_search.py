"""Which arguments jobs are found by, and what is looked for.

The terms of an encrypted job are HMACs with SECRET_KEY: equal values are equal there, and nothing else can be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from django.conf import settings
from django.utils.crypto import salted_hmac

from pulse_django.words.masks import term_of

from .registry import Task, registry

_SALT = "pulse_django.search"


def searched(task: Task | None) -> tuple[str, ...]:
    """Return the names of the arguments by which jobs of a task are found."""
    return tuple(getattr(task, "search", ()))


def known_tasks() -> dict[str, Task]:
    """Return the tasks of this process."""
    with suppress(Exception):  # a project's module that cannot be imported must not close a page
        registry.discover()
    return {key: task for key in registry if (task := registry.get(key)) is not None}


def declared_names() -> list[str]:
    """Return the names that any task of this process declares."""
    return sorted({name for task in known_tasks().values() for name in searched(task)})


def hashed(term: str, secret: str | None = None) -> str:
    """Return what is stored of a term of an encrypted job."""
    return salted_hmac(_SALT, term, secret=secret, algorithm="sha256").hexdigest()


def terms_for(names: Iterable[str], text: str) -> list[str]:
    """Return all terms that a job can have one of, if one of these arguments has this value."""
    plain = [term_of(name, text) for name in names]
    secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return [*plain, *(hashed(term, secret) for term in plain for secret in secrets)]
