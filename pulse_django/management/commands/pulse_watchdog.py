"""``manage.py pulse_watchdog``: the loop that ends lost runs, in a process of its own, with or without workers.

``--check`` asks every condition and exits, ``--repair`` repairs one and exits.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from typing import Any

from django.core.checks import Tags
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from pulse_django.health import alerts
from pulse_django.health.conditions import ask
from pulse_django.metrics.minute_recorder import MinuteRecorder
from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand
from pulse_django.operations.condition_report import findings_in_words, perform, rehearse, repairable
from pulse_django.queue.database.tables import require_tables
from pulse_django.safe_logging import SafeLogger
from pulse_django.schedules.tick import look
from pulse_django.schedules.ticking import Ticker
from pulse_django.shards.fleet import FleetVerdict, ask_shards
from pulse_django.worker import logs
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.logs import LogWriter
from pulse_django.worker.loops import Loops, add_watchdog
from pulse_django.worker.watchdog import Swept, Watchdog

logger = SafeLogger("pulse_django.watchdog")

TICK = 0.2
PATIENCE_WITH_LOG = 1.0  # seconds for the last lines to be written


class Command(PulseCommand):
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
        logs.add_log_format(parser)
        arguments.add_shard(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        logs.configure(options["log_format"])
        aliases = arguments.aliases_of(options)
        if options["interval"] is not None and options["interval"] <= 0:
            raise CommandError("--interval must be positive.")
        if options["yes"] and not options["repair"]:
            raise CommandError("--yes requires --repair.")
        try:
            reachable = self.reachable(aliases, require_tables)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        self.check(tags=[Tags.database], databases=reachable)  # the others ran before this
        if options["check"]:
            self._check(aliases, as_json=options["json"])
        elif options["repair"]:
            for alias in aliases:
                self._repair(alias, options)
        else:
            self._watch(aliases, options)

    def _check(self, aliases: Sequence[str], *, as_json: bool) -> None:
        fleet = ask_shards(aliases)
        if as_json:
            self.stdout.write(json.dumps(fleet.to_json(clear_too=True)))
        for alias, verdict in fleet.by_shard.items() if not as_json else ():
            if len(aliases) > 1:
                self.stdout.write(f"Shard {alias!r}:")
            for line in findings_in_words(verdict.findings, self.style.SUCCESS, self.style.WARNING, self.style.ERROR):
                self.stdout.write(line)
        if not fleet.is_well:
            raise CommandError(_problems_in_words(fleet))

    def _repair(self, alias: str, options: dict[str, Any]) -> None:
        condition = repairable(options["repair"])
        if not options["yes"]:
            finding = ask(condition, alias)
            self._write_lines(*([json.dumps(finding.to_json())] if options["json"] else rehearse(condition, finding)))
            return
        done = perform(condition, alias, (lambda _: None) if options["json"] else self._write_lines)
        if options["json"]:
            self.stdout.write(json.dumps(done))
        if not done["is_clear"]:
            raise CommandError(f"{condition.name} still applies.")

    def _write_lines(self, *lines: str) -> None:
        for line in lines:
            self.stdout.write(line)

    def _watch(self, aliases: Sequence[str], options: dict[str, Any]) -> None:
        if options["once"]:
            for alias in aliases:
                self._sweep_once(alias, options)
            alerts.finish()
            return
        loops = Loops(lambda name, why: logger.error("The thread %r ended (%s); restarting it", name, why))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: loops.over.set())
        self._run(aliases, loops, options)

    def _sweep_once(self, alias: str, options: dict[str, Any]) -> None:
        watchdog = Watchdog(GuardedConnection(alias, "watchdog"), options["interval"])
        self._tell(watchdog.sweep(housekeeping=True), options)
        if watchdog.database.call(look, alias).is_due:
            ticker = Ticker(alias)
            while watchdog.database.call(ticker.step).has_more:
                pass
        MinuteRecorder(watchdog.database).write()

    def _run(self, aliases: Sequence[str], loops: Loops, options: dict[str, Any]) -> None:
        for alias in aliases:
            add_watchdog(
                loops,
                alias,
                interval=options["interval"],
                swept=lambda swept: self._tell(swept, options),
                of_shard=f" {alias}" if len(aliases) > 1 else "",
            )
        log = LogWriter()
        log.start(loops.threads)
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


def _problems_in_words(fleet: FleetVerdict) -> str:
    lines = [f"Shard {alias!r} does not respond: {said}." for alias, said in fleet.away.items()]
    for alias, verdict in fleet.by_shard.items():
        if not verdict.is_well:
            names = ", ".join(finding.condition.name for finding in verdict.problems)
            where = "" if len(fleet.by_shard) + len(fleet.away) == 1 else f" of shard {alias!r}"
            lines.append(f"{len(verdict.problems)} of {len(verdict.findings)} conditions{where} are problems: {names}.")
    return " ".join(lines)
