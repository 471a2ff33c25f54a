"""System checks of the schedules that the code declares."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error

from pulse_django.exceptions import InvalidSchedule

from .declarations import check_call, declared


def check_schedules(**_: Any) -> list[CheckMessage]:
    """Name schedules that could never enqueue a job."""
    try:
        found, problems = declared()
    except Exception:  # a module that cannot be imported: the worker and Django's own checks report it
        return []
    hint = "Give each schedule another name."
    messages: list[CheckMessage] = [Error(f"{one}.", hint=hint, id="pulse_django.E022") for one in problems]
    for definition in found:
        try:
            check_call(definition)
        except InvalidSchedule as error:
            hint = "Give the schedule args and kwargs that the task takes, or give the task's parameters defaults."
            messages.append(Error(f"Schedule {error}.", hint=hint, id="pulse_django.E021"))
    return messages
