"""``pulse_watchdog --once --json``, held at the door of its sweep: it says "ready", and waits for a line.

What a start costs, imports and system checks, is no part of the sweep; and several can be released together.
"""

from __future__ import annotations

import sys
from typing import Any

from django.core.management import call_command

import benchmarks  # noqa: F401 - it sets Django up
from pulse_django.worker.watchdog import Swept, Watchdog

_sweep = Watchdog.sweep


def sweep_when_released(watchdog: Watchdog, **options: Any) -> Swept:
    watchdog.database.call(watchdog.database.jobs.server_clock)  # connects
    print("ready", flush=True)
    sys.stdin.readline()
    return _sweep(watchdog, **options)


if __name__ == "__main__":
    Watchdog.sweep = sweep_when_released  # type: ignore[method-assign,assignment]
    call_command("pulse_watchdog", "--once", "--json")
