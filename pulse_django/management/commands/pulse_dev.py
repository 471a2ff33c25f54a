"""``manage.py pulse_dev``: run the web server and a worker in one terminal, for development."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from threading import Thread
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.autoreload import get_child_arguments

from pulse_django.operations.arguments import require_unix

INTERVAL = 0.1  # seconds between checks whether one has ended


class Command(BaseCommand):
    help = (
        "Run Django's runserver and a worker in one terminal, for development. Both restart when the code changes. "
        "Ctrl-C ends both, and when one ends, the other does too."
    )
    requires_system_checks = ()  # both run them

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("addrport", nargs="?", help="port, or address and port, as for runserver")

    def handle(self, *args: Any, **options: Any) -> None:
        require_unix("pulse_dev")
        if not settings.DEBUG:
            raise CommandError("pulse_dev is for development and requires DEBUG = True.")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a background job of a shell ignores SIGINT
            signal.signal(number, signal.default_int_handler)
        address = [options["addrport"]] if options["addrport"] else []
        started: list[Started] = []
        try:
            started.append(_start("web ", "runserver", *address))
            started.append(_start("jobs", "pulse_worker", "--reload"))
            while all(process.poll() is None for process, _ in started):
                time.sleep(INTERVAL)
        except KeyboardInterrupt:
            pass
        has_failed = any(process.returncode for process, _ in started)
        _end(started)
        sys.exit(int(has_failed))


Started = tuple[subprocess.Popen[str], Thread]


def _start(name: str, *arguments: str) -> Started:
    """Run another command of this project, in a process group of its own: Ctrl-C would signal it twice."""
    process = subprocess.Popen(  # noqa: S603 - ourselves
        # Start it as this command was started, for example with ``python -m django``.
        [*get_child_arguments()[: 1 - len(sys.argv)], *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        process_group=0,
    )
    printing = Thread(target=_print_lines, args=(name, process), daemon=True)
    printing.start()
    return process, printing


def _print_lines(name: str, process: subprocess.Popen[str]) -> None:
    for line in process.stdout or ():
        sys.stdout.write(f"{name} | {line}")
        sys.stdout.flush()


def _end(started: list[Started]) -> None:
    """Stop both. A second Ctrl-C does not wait for running handlers."""
    while True:
        for process, _ in started:
            process.terminate()
        try:
            for process, printing in started:
                process.wait()
                printing.join(1)  # a child of the process may keep the pipe open
            return
        except KeyboardInterrupt:
            continue
