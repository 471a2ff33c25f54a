"""Import what the ``PULSE`` setting names by a dotted path."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.core.exceptions import ImproperlyConfigured


def imported(setting: str, path: str) -> Any:
    """Return the object of that path, or raise ImproperlyConfigured with what keeps it from being imported."""
    try:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImproperlyConfigured(f'PULSE["{setting}"] names {path!r}, which cannot be imported: {error}') from error
