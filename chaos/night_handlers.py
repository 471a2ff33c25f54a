"""The tasks of the chaos of nights: one that starts at night only, and one that starts at any time."""

from __future__ import annotations

import time

from pulse_django import task


@task(name="night.report", max_attempts=200)
def report(number: int) -> None:
    time.sleep(0.02)


@task(name="chaos.any_time", max_attempts=200)
def any_time(number: int) -> None:
    time.sleep(0.02)
