"""Tasks for workers that are attacked. The worker loads them by ``PULSE["TASK_MODULES"]``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from django.db import connection

from pulse_django import task

CANARY = "canary-7f3a9c"
_LISTS_FILES_AND_ENVIRONMENT = """
import json, os
files = []
for name in os.listdir("/proc/self/fd"):
    try:
        files.append(os.readlink(f"/proc/self/fd/{name}"))
    except FileNotFoundError:
        pass
print(json.dumps({"files": files, "environment": sorted(os.environ)}))
"""


@task(name="security.echo")
def echo(*args: Any, **kwargs: Any) -> Any:
    """Return what it was called with."""
    return {"args": list(args), "kwargs": kwargs}


@task(name="security.echo_apart", isolation="process")
def echo_apart(*args: Any, **kwargs: Any) -> Any:
    return {"args": list(args), "kwargs": kwargs}


@task(name="security.names_loaded")
def names_loaded(names: list[str]) -> list[str]:
    """Say which of these modules this process has imported."""
    return sorted(name for name in names if name in sys.modules)


@task(name="security.crashes", isolation="process", max_attempts=1)
def crashes() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@task(name="security.innocent")
def innocent() -> None:
    pass


@task(name="security.fails_with_a_secret_beside_it", max_attempts=1)
def fails_with_a_secret_beside_it(card: str) -> None:
    digits = card * 2  # a local variable, which no traceback may show
    raise RuntimeError(f"refused after {len(digits)} digits")


@task(name="security.starts_a_program", isolation="thread")
def starts_a_program(close_fds: bool) -> str:
    """Run a program from a process that has connections, and return what it found open and in its environment."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")  # so that this thread has a connection as well
        command = [sys.executable, "-c", _LISTS_FILES_AND_ENVIRONMENT]
        return subprocess.run(command, close_fds=close_fds, capture_output=True, text=True, check=True).stdout
