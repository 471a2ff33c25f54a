"""``manage.py pulse_check``: checks for machines, with exit codes. 0: healthy, 1: not healthy, 2: not checked."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import Error
from django.db.models import Value

from pulse_django import conf
from pulse_django.health.conditions import Limits, ask, known, named
from pulse_django.models import Worker
from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand
from pulse_django.operations.condition_report import findings_in_words, perform, problems_in_words, rehearse, repairable
from pulse_django.queue.database import deployments
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.database.tables import explained, require_tables
from pulse_django.queue.words.display import inert
from pulse_django.shards.fleet import FleetVerdict, ask_shards

WELL, UNWELL, UNKNOWN = 0, 1, 2
PATIENCE = 3.0  # seconds; probes have timeouts of their own


class Command(PulseCommand):
    help = (
        "Check the health of the fleet, of one worker on this host (--live, --ready), every condition (--all), or "
        "the database and the settings (--advice). --repair shows the repair of a condition. --adopt lets this "
        "deployment adopt a copy of another one's database. Exits with 0, 1 or 2."
    )
    requires_system_checks = ()  # a probe checks the fleet, not the code

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--live", action="store_true", help="check that the worker's loops make progress")
        what.add_argument("--ready", action="store_true", help="check that the worker accepts jobs")
        what.add_argument("--all", action="store_true", help="list every condition; exit with 1 if one is a problem")
        what.add_argument("--advice", action="store_true", help="check leases, connections, vacuum, indexes, retention")
        what.add_argument("--repair", metavar="NAME", help="show the repair of this condition; --yes applies it")
        what.add_argument("--adopt", action="store_true", help="show who owns the database; --yes adopts it")
        parser.add_argument("--yes", action="store_true", help="with --repair and --adopt: make the change")
        parser.add_argument("--strict", action="store_true", help="with --advice: exit with 1 if there is a warning")
        parser.add_argument("--port", type=int, help="the --metrics-port of the worker, for --live and --ready")
        parser.add_argument(
            "--allow", action="append", default=[], type=_allowed, metavar="NAME=MOST",
            help=f"a threshold that overrides PULSE['ALERTS']: {', '.join(_measured())}",
        )  # fmt: skip
        arguments.add_output(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        for flag, needed in (("yes", ("repair", "adopt")), ("strict", ("advice",))):
            if options[flag] and not any(options[name] for name in needed):
                raise CommandError(f"--{flag} requires --{' or --'.join(needed)}.", returncode=UNKNOWN)
        if options["all"] or options["advice"] or options["repair"]:
            self._conditions(options)
        elif options["adopt"]:
            for alias in arguments.aliases_of(options):
                self._adopt(alias, options)
        else:
            self._probe(options)

    def _probe(self, options: dict[str, Any]) -> None:
        code, said, facts = self._worker(options) if options["live"] or options["ready"] else self._fleet(options)
        if options["json"]:
            self.stdout.write(json.dumps({"command": "pulse_check", "is_well": code == WELL, "says": said, **facts}))
        else:
            self.stdout.write(inert(said))
        sys.exit(code)

    def _fleet(self, options: dict[str, Any]) -> tuple[int, str, dict[str, Any]]:
        aliases = arguments.aliases_of(options)
        try:
            if len(aliases) == 1:
                require_tables(aliases[0])
            verdict = ask_shards(aliases, _limits(options))
        except (Error, ImproperlyConfigured) as error:
            return UNKNOWN, explained(error, aliases[0]), {}
        code = _code_of(verdict)
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

    # Conditions and repairs

    def _conditions(self, options: dict[str, Any]) -> None:
        aliases = arguments.aliases_of(options)
        try:
            self.reachable(aliases, require_tables)
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=UNKNOWN) from error
        if not options["repair"]:
            self._list(aliases, options)
            return
        for alias in aliases:
            self._repair(alias, options)

    def _list(self, aliases: Sequence[str], options: dict[str, Any]) -> None:
        """List every condition or, as advice, those that were found or have figures."""
        fleet, as_json = ask_shards(aliases, _limits(options), advice=options["advice"]), options["json"]
        if as_json:
            self.stdout.write(json.dumps(fleet.to_json(clear_too=True)))
        for alias, verdict in fleet.by_shard.items() if not as_json else ():
            if len(aliases) > 1:
                self.stdout.write(f"Shard {alias!r}:")
            paints = self.style.SUCCESS, self.style.WARNING, self.style.ERROR
            listed = [one for one in verdict.findings if options["all"] or one.figures or not one.is_clear]
            self._write_lines(*findings_in_words(listed, *paints))
        warnings = [one for verdict in fleet.by_shard.values() for one in verdict.findings if one.is_warning]
        if fleet.away or (options["all"] and not fleet.is_well):
            raise CommandError(problems_in_words(fleet), returncode=_code_of(fleet))
        if options["strict"] and warnings:
            raise CommandError(f"Warnings: {', '.join(one.condition.name for one in warnings)}.")

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

    def _adopt(self, alias: str, options: dict[str, Any]) -> None:
        """Let this deployment adopt a copy of another one's database."""
        if not (name := conf.current().deployment):
            raise CommandError("PULSE['DEPLOYMENT'] is not set: there is nothing to adopt.", returncode=UNKNOWN)
        require_tables(alias)
        owner, silence = deployments.owner_of(alias), conf.current().worker_silence
        heard = StatementTimestamp() - Value(silence)
        if options["yes"]:
            live = Worker.objects.using(alias).filter(stopped_at=None, last_beat_at__gt=heard).count()
            if live and owner not in (None, name):
                raise CommandError(
                    f"{live} workers of {owner!r} were heard in database {alias!r} within {silence}. Nothing was "
                    f"changed: stop them, or wait {silence.total_seconds():g} s if it is a copy."
                )
            deployments.adopt(alias)
        if options["json"]:
            facts = {"database": alias, "owner": owner, "deployment": name, "adopted": options["yes"]}
            self._write_lines(json.dumps(facts))
            return
        done = f"It belongs to {name!r} now." if options["yes"] else "Nothing was changed. Add --yes to adopt it."
        whose = f"belongs to deployment {owner!r}" if owner else "belongs to no deployment"
        said = f"Database {alias!r} {whose}, and this is {name!r}. "
        said += f"The deployment that adopts it runs its jobs and schedules. {done}"
        self._write_lines(inert(said))


def _limits(options: dict[str, Any]) -> Limits:
    limits = Limits.of(conf.current())
    return replace(limits, thresholds={**limits.thresholds, **dict(options["allow"])})


def _code_of(verdict: FleetVerdict) -> int:
    return WELL if verdict.is_well else UNKNOWN if verdict.is_unknown else UNWELL


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
