"""``manage.py pulse_watchdog``: the loop that ends lost runs, in a process of its own, with or without workers.

``--check`` asks every condition and exits, ``--repair`` repairs one and exits.
"""

from __future__ import annotations

import json
import signal
import time
from typing import Any

from django.core.checks import Tags
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections, router

from pulse_django.fleet import alerts
from pulse_django.fleet.conditions import ask_all
from pulse_django.models import Job
from pulse_django.operations.condition_report import (
    Unrepairable,
    findings_in_words,
    perform,
    rehearse,
    repairable,
)
from pulse_django.protocol.tick import look
from pulse_django.safe_logging import SafeLogger
from pulse_django.schedules.ticking import tick_due
from pulse_django.store.tables import require_tables
from pulse_django.worker import log_format
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.log_writer import LogWriter
from pulse_django.worker.loops import Loops
from pulse_django.worker.minute_recorder import MinuteRecorder
from pulse_django.worker.sweeps import Swept
from pulse_django.worker.watchdog import Watchdog
from pulse_django.worker.watchdog_loops import WatchdogLoops

logger = SafeLogger("pulse_django.watchdog")

TICK = 0.2
PATIENCE_WITH_LOG = 1.0  # seconds for the last lines to be written


class Command(BaseCommand):
    help = (
        "Recover runs whose lease expired, and delete old jobs. Several watchdogs can run at once, on any host; "
        "workers do the same by default. --check exits with 1 if a condition is a problem."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--once", action="store_true", help="one sweep, housekeeping included, then exit")
        what.add_argument("--check", action="store_true", help="check every condition; exit with 1 if one is a problem")
        what.add_argument("--repair", metavar="NAME", help="show the repair of this condition; --yes applies it")
        parser.add_argument("--yes", action="store_true", help="with --repair: apply the repair")
        parser.add_argument("--interval", type=float, help="seconds between sweeps; default: WATCHDOG_INTERVAL")
        parser.add_argument(
            "--json", action="store_true", help="JSON output: one line for each sweep, or one for the result"
        )
        parser.add_argument("--database", help="alias of the database that stores the jobs")

    def handle(self, *args: Any, **options: Any) -> None:
        log_format.configure()
        alias = options["database"] or router.db_for_write(Job)
        if alias not in connections:
            raise CommandError(f"--database: {alias!r} is not in DATABASES.")
        if options["interval"] is not None and options["interval"] <= 0:
            raise CommandError("--interval must be positive.")
        if options["yes"] and not options["repair"]:
            raise CommandError("--yes requires --repair.")
        try:
            require_tables(alias)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        self.check(tags=[Tags.database], databases=[alias])  # the others ran before this
        if options["check"]:
            self._check(alias, as_json=options["json"])
        elif options["repair"]:
            self._repair(alias, options)
        else:
            self._watch(alias, options)

    def _check(self, alias: str, *, as_json: bool) -> None:
        verdict = ask_all(alias)
        if as_json:
            findings = [finding.to_json() for finding in verdict.findings]
            self.stdout.write(json.dumps({"is_well": verdict.is_well, "conditions": findings}))
        else:
            for line in findings_in_words(verdict.findings, self.style.SUCCESS, self.style.WARNING, self.style.ERROR):
                self.stdout.write(line)
        if not verdict.is_well:
            names = ", ".join(finding.condition.name for finding in verdict.problems)
            raise CommandError(f"{len(verdict.problems)} of {len(verdict.findings)} conditions are problems: {names}.")

    def _repair(self, alias: str, options: dict[str, Any]) -> None:
        try:
            condition = repairable(options["repair"])
            if not options["yes"]:
                finding, lines = rehearse(condition, alias)
                if options["json"]:
                    self.stdout.write(json.dumps(finding.to_json()))
                else:
                    self._write_lines(*lines)
                return
            done = perform(condition, alias, (lambda _: None) if options["json"] else self._write_lines)
        except Unrepairable as refused:
            raise CommandError(str(refused)) from refused
        if options["json"]:
            self.stdout.write(json.dumps(done))
        if not done["is_clear"]:
            raise CommandError(f"{condition.name} still applies.")

    def _write_lines(self, *lines: str) -> None:
        for line in lines:
            self.stdout.write(line)

    def _watch(self, alias: str, options: dict[str, Any]) -> None:
        if options["once"]:
            watchdog = Watchdog(GuardedConnection(alias, "watchdog"), options["interval"])
            self._tell(watchdog.sweep(housekeeping=True), options)
            if watchdog.database.call(look, alias).is_due:
                watchdog.database.call(tick_due, alias)
            MinuteRecorder(watchdog.database).write()
            alerts.finish()
            return
        loops = Loops(_log_death)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: loops.over.set())
        self._run(alias, loops, options)

    def _run(self, alias: str, loops: Loops, options: dict[str, Any]) -> None:
        watching = WatchdogLoops(
            loops, alias, interval=options["interval"], swept=lambda swept: self._tell(swept, options)
        )
        log = LogWriter()
        loops.threads.start("log", log.run, log.over)
        log.install()
        watching.add()
        loops.start()
        while not loops.over.wait(TICK) or loops.is_running:
            loops.enforce(time.monotonic())  # this thread closes a connection that does not answer
            loops.restart_dead()
            if loops.over.is_set():
                time.sleep(TICK)
        log.close(PATIENCE_WITH_LOG)

    def _tell(self, swept: Swept, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(swept.to_json())
            self.stdout.flush()


def _log_death(name: str, why: str) -> None:
    logger.error("The thread %r ended (%s); restarting it", name, why)
