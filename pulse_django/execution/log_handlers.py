"""Which handlers get the lines of a logger, and what their filters say as long as nothing but DEBUG decides."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from django.conf import settings
from django.utils.log import RequireDebugFalse, RequireDebugTrue


def handlers_of(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers of a logger and of those that it passes its lines on to."""
    found: logging.Logger | None = logger
    while found is not None:
        yield from found.handlers
        found = found.parent if found.propagate else None


def refuses_all(handler: logging.Handler) -> bool:
    """Whether Django's filters on DEBUG let no line through. Filters of the project's may say anything."""
    for one in handler.filters:
        if type(one) is RequireDebugTrue and not settings.DEBUG:
            return True
        if type(one) is RequireDebugFalse and settings.DEBUG:
            return True
    return False


def filters_by_debug_alone(handler: logging.Handler) -> bool:
    return all(type(one) in (RequireDebugTrue, RequireDebugFalse) for one in handler.filters)
