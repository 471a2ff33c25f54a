"""``manage.py pulse_explain``: explain why a job does not run, and when it may start. Read-only."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import Error

from pulse_django.health.explanation import explain
from pulse_django.models import Job
from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand
from pulse_django.operations.status_lines import explanation_in_lines
from pulse_django.operations.terminal import showable
from pulse_django.queue.database.tables import explained, require_tables
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.job_ids import MAX_ID
from pulse_django.shards.placement import locate


class Command(PulseCommand):
    help = "Explain why a job does not run, its position, and when it may start. Read-only."
    requires_system_checks = ()  # a project whose checks fail may need it most

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", type=arguments.whole_number(1, MAX_ID), metavar="ID", help="this job")
        arguments.add_output(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        alias = arguments.alias_of(options)
        try:
            if options["shard"] is None:
                alias = locate(options["id"]).alias
            require_tables(alias)
            explanation = explain(options["id"], using=alias)
        except Job.DoesNotExist as error:
            raise CommandError(f"There is no job {options['id']}.") from error
        except (Error, ImproperlyConfigured) as error:
            raise CommandError(inert(explained(error, alias))) from error
        if options["json"]:
            said = explanation.to_json()
            self.stdout.write(json.dumps({"command": "pulse_explain", "database": alias, **said}))
            return
        for line in explanation_in_lines(explanation):
            self.stdout.write(showable(line, self.stdout))
