"""``manage.py pulse_health``: probes with exit codes. 0: healthy. 1: not healthy. 2: could not be checked."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from argparse import ArgumentTypeError
from dataclasses import replace
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandParser
from django.db import Error

from pulse_django import conf
from pulse_django.health.conditions import Limits, known, named
from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand
from pulse_django.queue.database.tables import explained, require_tables
from pulse_django.queue.words.display import inert
from pulse_django.shards.fleet import ask_shards

WELL, UNWELL, UNKNOWN = 0, 1, 2
PATIENCE = 3.0  # seconds; probes have timeouts of their own


class Command(PulseCommand):
    help = "Check the health of the fleet or, with --live or --ready, of one worker on this host. Exits with 0, 1 or 2."
    requires_system_checks = ()  # a probe should say how things are, and not how they are written

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--live", action="store_true", help="check that the worker's loops make progress")
        which.add_argument("--ready", action="store_true", help="check that the worker accepts jobs")
        parser.add_argument("--port", type=int, help="the --metrics-port of the worker, for --live and --ready")
        parser.add_argument(
            "--allow", action="append", default=[], type=_allowed, metavar="NAME=MOST",
            help=f"a threshold that overrides PULSE['ALERTS']: {', '.join(_measured())}",
        )  # fmt: skip
        arguments.add_output(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        code, said, facts = self._worker(options) if options["live"] or options["ready"] else self._fleet(options)
        if options["json"]:
            self.stdout.write(json.dumps({"command": "pulse_health", "is_well": code == WELL, "says": said, **facts}))
        else:
            self.stdout.write(inert(said))
        sys.exit(code)

    def _fleet(self, options: dict[str, Any]) -> tuple[int, str, dict[str, Any]]:
        aliases = arguments.aliases_of(options)
        try:
            if len(aliases) == 1:
                require_tables(aliases[0])
            limits = Limits.of(conf.current())
            allowed = {**limits.thresholds, **dict(options["allow"])}
            verdict = ask_shards(aliases, replace(limits, thresholds=allowed))
        except (Error, ImproperlyConfigured) as error:
            return UNKNOWN, explained(error, aliases[0]), {}
        code = WELL if verdict.is_well else UNKNOWN if verdict.is_unknown else UNWELL
        said = ("The fleet is healthy.", "The fleet is not healthy.", "The fleet could not be checked.")[code]
        return code, f"{said} {verdict.says}".strip(), verdict.to_json()

    def _worker(self, options: dict[str, Any]) -> tuple[int, str, dict[str, Any]]:
        if options["port"] is None:
            return UNKNOWN, "--live and --ready require --port, the --metrics-port of the worker", {}
        url = f"http://127.0.0.1:{options['port']}/{'live' if options['live'] else 'ready'}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return WELL, "The worker is healthy.", _body(answer.read())
        except urllib.error.HTTPError as refused:
            body = _body(refused.read())
            hanging = ", ".join(
                f"{name} has not responded for {seconds} s" for name, seconds in body.get("hanging", {}).items()
            )
            return UNWELL, str(body.get("reason") or hanging or refused), body
        except OSError as error:
            return UNWELL, f"no response from {url}: {error}", {}


def _measured() -> list[str]:
    """Return the conditions that have a threshold."""
    return [one.name for one in known() if one.threshold is not None]


def _body(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _allowed(text: str) -> tuple[str, float]:
    name, _, most = text.partition("=")
    try:
        number = float(most)
    except ValueError:
        number = -1.0
    if name not in _measured() or named(name).refuses(number):
        raise ArgumentTypeError(f"{text!r}: use NAME=NUMBER, where NAME is one of {', '.join(_measured())}")
    return name, number
