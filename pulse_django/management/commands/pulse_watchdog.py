"""``manage.py pulse_watchdog``: recover lost runs, in a separate process."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Any

from django.core.checks import Tags
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from pulse_django.health import alerts
from pulse_django.metrics.minute_recorder import MinuteRecorder
from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand
from pulse_django.queue.database.deployments import require_deployment
from pulse_django.queue.database.rights import require_rights
from pulse_django.queue.database.tables import require_tables
from pulse_django.safe_logging import SafeLogger
from pulse_django.schedules.tick import look
from pulse_django.schedules.ticking import Ticker
from pulse_django.worker import logs
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.logs import LogWriter
from pulse_django.worker.loops import Loops, add_watchdog
from pulse_django.worker.watchdog import Swept, Watchdog

logger = SafeLogger("pulse_django.watchdog")

TICK = 0.2
PATIENCE_WITH_LOG = 1.0  # seconds to write the last log lines


class Command(PulseCommand):
    help = (
        "Recover runs whose lease expired, and delete old jobs. Several watchdogs can run at once, on any host; "
        "workers do the same by default."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="one sweep, housekeeping included, then exit")
        parser.add_argument("--interval", type=float, help="seconds between sweeps; default: WATCHDOG_INTERVAL")
        parser.add_argument("--json", action="store_true", help="JSON output: one line for each sweep")
        logs.add_log_format(parser)
        arguments.add_shard(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        arguments.require_unix("pulse_watchdog")
        logs.configure(options["log_format"])
        aliases = arguments.aliases_of(options)
        if options["interval"] is not None and options["interval"] <= 0:
            raise CommandError("--interval must be positive.")
        try:
            reachable = self.reachable(aliases, _require)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        self.check(tags=[Tags.database], databases=reachable)  # the others ran before this
        self._watch(aliases, options)

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
            loops.enforce(time.monotonic())  # this thread closes a connection that does not respond
            loops.restart_dead()
            if loops.over.is_set():
                time.sleep(TICK)
        log.close(PATIENCE_WITH_LOG)

    def _tell(self, swept: Swept, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(swept.to_json())
            self.stdout.flush()


def _require(alias: str) -> None:
    require_tables(alias)
    require_rights(alias, works=False, watches=True)
    require_deployment(alias)
