"""``manage.py pulse_doctor``: reads the database and the settings, and advises."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections, router

from pulse_django.fleet.doctor import Advice, Level, examine
from pulse_django.models import Job
from pulse_django.words.display import inert


class Command(BaseCommand):
    help = "Check leases, workers, connections, vacuum, indexes and retention. Read-only; safe on a live system."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--strict", action="store_true", help="exit with 1 if there is a warning")
        parser.add_argument("--json", action="store_true", help="print a list of JSON objects")
        parser.add_argument("--database", help="alias of the database to examine")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"] or router.db_for_write(Job)
        if alias not in connections:
            raise CommandError(f"--database: {alias!r} is not in DATABASES.")
        try:
            advices = examine(alias)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps([advice.to_json() for advice in advices]))
        else:
            for advice in advices:
                self._say(advice)
        warnings = sum(advice.level is Level.WARNING for advice in advices)
        if warnings and options["strict"]:
            raise CommandError(f"{warnings} warning{'' if warnings == 1 else 's'}.")

    def _say(self, advice: Advice) -> None:
        paint = {Level.GOOD: self.style.SUCCESS, Level.WARNING: self.style.ERROR}.get(advice.level, self.style.WARNING)
        self.stdout.write(f"{paint(f'{advice.level:7}')} {advice.topic}: {inert(advice.what)}")
        self.stdout.write(f"        Why: {advice.why}")
        if advice.to_do:
            self.stdout.write(f"        Do:  {advice.to_do}")
