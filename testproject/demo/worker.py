"""``python -m testproject.demo.worker``: the real ``pulse_worker`` of this project, at the pace of the demo.

The first argument is what to change in PULSE, as JSON; the others are those of ``pulse_worker``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress

import django
from django.conf import settings
from django.core.management import call_command

HANDLERS = "testproject.demo.handlers"
PR_SET_PDEATHSIG = 1


def main(changes: str, *arguments: str) -> None:
    _stop_with_the_demo()
    # Before setup(), so that nothing has read the project's own values yet. Its tasks stay known.
    own = getattr(settings, "PULSE", {})
    modules = [*own.get("TASK_MODULES", []), HANDLERS]
    settings.PULSE = {**own, **json.loads(changes), "TASK_MODULES": modules}
    django.setup()
    call_command("pulse_worker", *arguments)


def _stop_with_the_demo() -> None:
    """Have the kernel stop this worker when the demo is gone, which may be killed as well."""
    demo = os.getppid()
    with suppress(Exception):  # Linux has it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != demo:
        sys.exit("the demo is gone")


if __name__ == "__main__":
    main(*sys.argv[1:])
