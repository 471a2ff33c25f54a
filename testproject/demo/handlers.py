"""The tasks of the demo. How long they take comes in as an argument."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from pulse_django.run.context import Context
from pulse_django.tasks import Isolation, task


@task(name="pulse_demo.quick")
def quick(number: int) -> int:
    return number * number


@task(name="pulse_demo.steps", takes_context=True)
def steps(context: Context, total: int, pause: float) -> dict[str, Any]:
    """Do so many steps, and go on where an earlier attempt stopped. The result says who did what."""
    first = context.checkpoint["done"] if context.checkpoint else 0
    for done in range(first + 1, total + 1):
        time.sleep(pause)
        context.progress(done, total)
    return {"attempt": context.attempt, "resumed_after_step": first, "steps_done": total - first}


@task(name="pulse_demo.nap", takes_context=True)
def nap(context: Context, first: float, later: float) -> dict[str, Any]:
    """Work in one piece that nothing can interrupt: a frozen worker that wakes up finds it done."""
    time.sleep(first if context.attempt == 1 else later)
    return {"attempt": context.attempt}


# In a process of its own: what it kills is that, and not the jobs beside it.
@task(name="pulse_demo.poison", isolation=Isolation.PROCESS, max_lost_workers=2)
def poison() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
