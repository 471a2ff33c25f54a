"""Options that the project sets for tasks of other packages: ``PULSE["ROUTES"]``.

They are read once, when a task is declared. ``.using()`` comes later, so it has precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from pulse_django import conf
from pulse_django.exceptions import InvalidJob
from pulse_django.queue.words.options import check_route
from pulse_django.queue.words.own_tasks import OWN_TASKS
from pulse_django.queue.words.setting_values import Routes

from .registry import InvalidTask, imported


def route_of(name: str) -> Mapping[str, Any]:
    """Return the options that the setting has for a task with this name. Pulse's own tasks are not routed."""
    if name in OWN_TASKS:
        return {}
    try:
        routes = conf.current().routes
    except ImproperlyConfigured:  # a system check reports it, and must be able to import the tasks
        return {}
    if isinstance(routes, Mapping):
        return next((options for pattern, options in routes.items() if fnmatchcase(name, pattern)), {})
    options = routing(routes)(name) or {}
    try:
        check_route(options)
    except (InvalidJob, TypeError) as error:
        raise InvalidTask(f'PULSE["ROUTES"]({name!r}): {error}') from error
    return options


def routing(routes: Routes) -> Callable[[str], Mapping[str, Any] | None]:
    """Return the project's routing function, or raise ImproperlyConfigured."""
    found = imported("ROUTES", routes) if isinstance(routes, str) else routes
    if not callable(found):
        raise ImproperlyConfigured(f'PULSE["ROUTES"] names {routes!r}, which is not callable')
    function: Callable[[str], Mapping[str, Any] | None] = found
    return function
