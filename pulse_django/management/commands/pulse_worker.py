"""``manage.py pulse_worker``: run jobs until stopped."""

from __future__ import annotations

import os
import socket
import sys
from argparse import SUPPRESS, BooleanOptionalAction
from functools import partial
from typing import Any

from django.conf import settings
from django.core.checks import Tags
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import OperationalError, connections

from pulse_django import conf
from pulse_django.health.unknown_tasks import run_known_now
from pulse_django.metrics.exporters.worker import exposed
from pulse_django.operations.arguments import PulseCommand, require_unix
from pulse_django.queue.database.deployments import require_deployment
from pulse_django.queue.database.rights import require_rights
from pulse_django.queue.database.tables import require_tables
from pulse_django.queue.words.other_queues import OF_WORKERS, FlagInstead
from pulse_django.run.middleware import configured
from pulse_django.run.registry import registry
from pulse_django.shards.ids import require_numbers
from pulse_django.shards.placement import checked_shard, shards
from pulse_django.worker import logs
from pulse_django.worker.http_port import PortRefused
from pulse_django.worker.keeper import Exit, Keeper
from pulse_django.worker.reloader import Changes, start_again
from pulse_django.worker.worker_options import WorkerOptions


class Command(PulseCommand):
    help = (
        "Run jobs. On SIGTERM or Ctrl-C, running jobs may finish within --shutdown-grace and the rest are returned to "
        "the queue; a second signal exits immediately. Exit codes: 0 stopped, 1 failed to start, 3 restart the worker, "
        "130 exited immediately."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--processes", type=int, help="processes that run handlers")
        parser.add_argument("--concurrency", type=int, help="concurrent handlers of each kind in each process")
        parser.add_argument("--queues", help="queues to serve, separated by commas; default: all")
        parser.add_argument("--name", help="name of the worker, the prefix of locked_by; default: host and pid")
        parser.add_argument("--burst", action="store_true", help="stop when nothing is due")
        parser.add_argument("--max-jobs", type=int, help="replace a process after this many runs")
        parser.add_argument("--max-rss-mib", type=int, help="replace a process that uses more than this many MiB")
        parser.add_argument("--shutdown-grace", type=float, help="seconds for handlers to finish after SIGTERM")
        parser.add_argument("--no-watchdog", action="store_true", help="do not recover expired leases in this worker")
        when = "restart when the code changes; requires DEBUG, and is the default on a terminal then"
        parser.add_argument("--reload", action=BooleanOptionalAction, help=when)
        logs.add_log_format(parser)
        parser.add_argument(*OF_WORKERS, action=FlagInstead, dest="celerys", nargs="?", help=SUPPRESS)
        parser.add_argument("--only-load", action="store_true", help=SUPPRESS)  # --reload tries it before it starts
        parser.add_argument("--metrics-port", type=int, help="port for /live, /ready and /metrics; default: none")
        parser.add_argument("--metrics-host", help="address for --metrics-port; default: 127.0.0.1")
        shard = "serve only this shard (repeatable); default: all"
        parser.add_argument("--shard", action="append", metavar="ALIAS", help=shard)

    def handle(self, *args: Any, **options: Any) -> None:
        require_unix("pulse_worker")
        logs.configure(options["log_format"])
        if options["reload"] and not settings.DEBUG:
            raise CommandError("--reload is for development and requires DEBUG = True.")
        try:
            worker_options = self._worker_options(options)
            watches = worker_options.watchdog
            require = partial(_require, is_worker=not options["only_load"], watches=watches)
            reachable = self.reachable(worker_options.aliases, require)
            if not reachable:  # of several, none
                require(worker_options.aliases[0])
            self.check(tags=[Tags.database], databases=reachable)  # the others ran before this
            registry.discover()
            configured()
            if options["only_load"]:
                return
        except (ValueError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:  # the supervisor starts it again
            raise CommandError(f"The database cannot be queried: {' '.join(str(error).split())}") from error
        may_change = reloads(options)
        if may_change:  # a job of a task that was just written is waiting
            for alias in reachable:
                run_known_now(alias)
        connections.close_all()  # a process that is forked would share them
        changes = Changes(conf.LOADED_AT) if may_change else None
        keeper = Keeper(worker_options, changed=changes.are_there if changes else lambda: False, exposed=exposed)
        try:
            code = keeper.run()
        except PortRefused as error:
            raise CommandError(str(error)) from error
        if changes is not None and changes.found and code is Exit.STOPPED:
            start_again()
        if code is not Exit.STOPPED:
            sys.exit(code)

    def _worker_options(self, options: dict[str, Any]) -> WorkerOptions:
        queues = options["queues"]
        flags = options | {
            "queues": tuple(name.strip() for name in queues.split(",") if name.strip()) if queues else None,
            "aliases": tuple(map(checked_shard, dict.fromkeys(options["shard"]))) if options["shard"] else None,
            "watchdog": False if options["no_watchdog"] else None,
            "burst": options["burst"] or None,
        }
        name = options["name"] or f"{socket.gethostname()}-{os.getpid()}"
        return WorkerOptions.of(conf.current(), name, {**flags, "name": None})


def reloads(options: dict[str, Any]) -> bool:
    if options["reload"] is not None:
        return bool(options["reload"])
    on_a_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    return settings.DEBUG and on_a_terminal and not options["burst"]


def _require(alias: str, *, is_worker: bool, watches: bool) -> None:
    require_tables(alias)
    require_rights(alias, works=True, watches=watches)
    require_deployment(alias, is_worker=is_worker)
    require_numbers(alias, shards()[alias])
