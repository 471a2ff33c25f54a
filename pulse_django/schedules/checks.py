"""System checks of the schedules that the code declares."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Warning

from pulse_django.exceptions import InvalidSchedule

from .declarations import check_call, declared


def check_schedules(**_: Any) -> list[CheckMessage]:
    """Name schedules that could never enqueue a job.

    These are warnings: an error would keep workers from starting, and so stop all other schedules and jobs.
    """
    try:
        found, problems = declared()
    except Exception:  # a module that cannot be imported: the worker and Django's own checks report it
        return []
    hint = "Give each schedule another name."
    messages: list[CheckMessage] = [Warning(f"{one}.", hint=hint, id="pulse_django.W010") for one in problems]
    for definition in found:
        try:
            check_call(definition)
        except InvalidSchedule as error:
            hint = "Give the schedule args and kwargs that the task takes, or give the task's parameters defaults."
            messages.append(Warning(f"Schedule {error}.", hint=hint, id="pulse_django.W009"))
    return messages
