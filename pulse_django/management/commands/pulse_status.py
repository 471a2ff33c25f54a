"""``manage.py pulse_status``: is it healthy? One screen, or with filters: what matches. It changes nothing."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from pulse_django import conf
from pulse_django.ops import arguments, vitals
from pulse_django.ops.diagnosis import troubles
from pulse_django.ops.facts import to_json
from pulse_django.ops.looking import read_only
from pulse_django.ops.matching import match
from pulse_django.ops.selection import Selection
from pulse_django.ops.status_lines import health_in_lines, matching_in_lines
from pulse_django.ops.terminal import inert, showable
from pulse_django.states import Status


class Command(BaseCommand):
    help = "Show queues, workers, dead letters and what is wrong; with filters, the jobs that match. Changes nothing."
    requires_system_checks = ()  # a project whose checks fail may need it most

    def add_arguments(self, parser: CommandParser) -> None:
        arguments.add_filters(parser, Status)
        parser.add_argument("--all", action="store_true", help="also workers that have stopped")

    def handle(self, *args: Any, **options: Any) -> None:
        alias, selection = arguments.alias_of(options), arguments.selection_of(options)
        try:
            with read_only(alias):
                facts, lines = self._look(alias, selection, options["all"])
        except (Error, ImproperlyConfigured) as error:
            raise CommandError(inert(" ".join(str(error).split())) or type(error).__name__) from error
        if options["json"]:
            self.stdout.write(json.dumps({"command": "pulse_status", "database": alias, **facts}))
            return
        for line in lines:
            self.stdout.write(showable(line, self.stdout))

    def _look(self, alias: str, selection: Selection, stopped_workers: bool) -> tuple[dict[str, Any], list[str]]:
        if not selection.is_everything:
            matching = match(selection, alias)
            return {"filters": to_json(selection), **to_json(matching)}, matching_in_lines(matching)
        health = vitals.take(alias, stopped_workers=stopped_workers)
        found = troubles(health, conf.current())
        return {"is_healthy": not found, "troubles": found, **to_json(health)}, health_in_lines(health, found)
