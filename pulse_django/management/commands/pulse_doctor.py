"""``manage.py pulse_doctor``: reads the database and the settings, and advises."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import OperationalError

from pulse_django.health.doctor import Advice, Level, examine
from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.payloads import error_in_one_line


class Command(PulseCommand):
    help = "Check leases, workers, connections, vacuum, indexes and retention. Read-only; safe on a live system."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--strict", action="store_true", help="exit with 1 if there is a warning")
        parser.add_argument("--json", action="store_true", help="print a list of JSON objects")
        arguments.add_shard(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        found: dict[str, list[Advice]] = {}
        away: dict[str, str] = {}
        for alias in (aliases := arguments.aliases_of(options)):
            try:
                found[alias] = examine(alias)
            except ImproperlyConfigured as error:
                raise CommandError(str(error)) from error
            except OperationalError as error:
                if len(aliases) == 1:
                    raise
                away[alias] = inert(error_in_one_line(error))
        if options["json"]:
            rows = [{"database": alias, **advice.to_json()} for alias, advices in found.items() for advice in advices]
            self.stdout.write(json.dumps(rows))
        else:
            for alias, advices in found.items():
                if len(aliases) > 1:
                    self.stdout.write(f"Shard {alias!r}:")
                for advice in advices:
                    self._say(advice)
        if away:
            raise CommandError("; ".join(f"shard {alias!r} does not respond: {said}" for alias, said in away.items()))
        warnings = sum(advice.level is Level.WARNING for advices in found.values() for advice in advices)
        if warnings and options["strict"]:
            raise CommandError(f"{warnings} warning{'' if warnings == 1 else 's'}.")

    def _say(self, advice: Advice) -> None:
        paint = {Level.GOOD: self.style.SUCCESS, Level.WARNING: self.style.ERROR}.get(advice.level, self.style.WARNING)
        self.stdout.write(f"{paint(f'{advice.level:7}')} {advice.topic}: {inert(advice.what)}")
        self.stdout.write(f"        Why: {advice.why}")
        if advice.to_do:
            self.stdout.write(f"        Do:  {advice.to_do}")
