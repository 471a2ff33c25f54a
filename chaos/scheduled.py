"""Schedules that the worker of ``chaos.schedules`` declares, one of which its task refuses."""

from __future__ import annotations

from datetime import timedelta

from chaos.handlers import quick
from pulse_django import Every, Schedule
from pulse_django.schedules.timings import Timing


def each(interval: timedelta, phase: timedelta = timedelta()) -> Timing:
    return Every(interval, phase, missed="all", overlap="allow")


Schedule("declared", each(timedelta(seconds=1)), task=quick)
Schedule("declared, refused", each(timedelta(seconds=1)), task=quick, kwargs={"colour": "red"})
