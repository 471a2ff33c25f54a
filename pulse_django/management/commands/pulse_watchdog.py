"""``manage.py pulse_watchdog``: the loop that ends lost runs, alone: for hosts without workers, or beside them."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections, router

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.runtime import logs
from pulse_django.runtime.lines import Line, keep_calling
from pulse_django.runtime.watchdog import Watchdog


class Command(BaseCommand):
    help = "End runs whose lease ran out, and keep house. Any number may run, anywhere; workers do the same by default."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="one sweep, housekeeping included, then exit")
        parser.add_argument("--interval", type=float, help="seconds between two sweeps; default WATCHDOG_INTERVAL")
        parser.add_argument("--json", action="store_true", help="one line of JSON for each sweep")
        parser.add_argument("--database", help="alias of the database whose jobs to look after")

    def handle(self, *args: Any, **options: Any) -> None:
        logs.configure()
        alias = options["database"] or router.db_for_write(Job)
        if alias not in connections:
            raise CommandError(f"--database: there is no {alias!r} in DATABASES.")
        if options["interval"] is not None and options["interval"] <= 0:
            raise CommandError("--interval must be positive.")
        self.check(databases=[alias])
        watchdog = Watchdog(Line(alias, "watchdog"))
        if options["once"]:
            self._sweep(watchdog, options, housekeeping=True)
            return
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: stopping.set())
        self._run(watchdog, options, stopping)

    def _run(self, watchdog: Watchdog, options: dict[str, Any], stopping: threading.Event) -> None:
        interval = options["interval"] or conf.current().watchdog_interval.total_seconds()

        def step() -> float:
            self._sweep(watchdog, options, housekeeping=None)
            return interval

        loop = threading.Thread(target=keep_calling, args=(watchdog.line, stopping, step), name="watchdog", daemon=True)
        loop.start()
        while loop.is_alive():  # this thread cuts a line that does not answer
            watchdog.line.enforce(time.monotonic())
            loop.join(0.2)

    def _sweep(self, watchdog: Watchdog, options: dict[str, Any], *, housekeeping: bool | None) -> None:
        swept = watchdog.sweep(housekeeping=housekeeping)
        if options["json"]:
            self.stdout.write(swept.to_json())
            self.stdout.flush()
