"""Schedules that the worker of ``chaos.schedules`` declares, one of which its task refuses.

Also tasks whose keys are made by functions that are slow, never return, or raise.
"""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta

from chaos.handlers import quick
from pulse_django import Every, Limit, Schedule, Unique, task
from pulse_django.schedules.timings import Timing


def each(interval: timedelta, phase: timedelta = timedelta()) -> Timing:
    return Every(interval, phase, missed="all", overlap="allow")


Schedule("declared", each(timedelta(seconds=1)), task=quick)
Schedule("declared, refused", each(timedelta(seconds=1)), task=quick, kwargs={"colour": "red"})


def _slow_key() -> int:
    time.sleep(0.2)
    return 1


@task(name="chaos.keyed", unique=Unique(by=lambda: 1))
def keyed() -> None: ...


@task(name="chaos.slow_key", unique=Unique(by=_slow_key))
def slow_key() -> None: ...


@task(name="chaos.key_without_end", limit=Limit(max_running=9), limit_key=lambda: threading.Event().wait())
def key_without_end() -> None: ...


@task(name="chaos.exiting_key", fair_by=sys.exit)
def exiting_key() -> None: ...
