"""The jobs that recovery is measured with: one to be killed with, and one that makes a process old."""

from __future__ import annotations

import time

from pulse_django import Context, task

LONGER_THAN_ANY_MEASUREMENT = 600.0


@task(takes_context=True)
def hold(context: Context) -> None:
    """Run until killed; the next attempt has nothing to do."""
    if context.attempt == 1:
        time.sleep(LONGER_THAN_ANY_MEASUREMENT)


@task
def pass_by() -> None:
    pass
