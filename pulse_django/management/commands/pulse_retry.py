"""``manage.py pulse_retry``: retry dead letters, after a preview."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.db.models.functions import Coalesce

from pulse_django import conf
from pulse_django.operations import arguments
from pulse_django.operations.mass_command import MassCommand
from pulse_django.operations.preview import Selection
from pulse_django.operations.verbs import RetryMany

MOST_RUNS = 32_767


class Command(MassCommand):
    help = "Retry dead letters. Without --yes, only list them. Exit codes: 0 done, 1 failed midway, 130 Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        runs = arguments.whole_number(1, MOST_RUNS)
        parser.add_argument(
            "--runs", type=runs, default=1, metavar="N", help="minimum number of additional runs for each; default: 1"
        )
        parser.add_argument(
            "--delay", type=arguments.duration, default=timedelta(), metavar="DURATION", help="delay before they run"
        )
        arguments.add_cancelled_too(parser)

    def notes(self, verb: RetryMany, alias: str) -> list[str]:
        """A job that lost as many workers as it may is not given more of them by more runs."""
        limit, notes = Coalesce("max_losses", conf.current().max_losses), []
        if count := verb.jobs(alias).filter(losses__gte=limit).count():
            notes.append(
                f"{count} of them reached the limit of lost workers: one more ends the job, regardless of --runs."
            )
        if not verb.cancelled_too and (count := verb.of_cancelled(alias).count()):
            belongs = "belongs to a cancelled workflow" if count == 1 else "belong to cancelled workflows"
            notes.append(f"{count} of them {belongs} and will be left. --cancelled-too retries them as well.")
        return notes

    def verb(self, selection: Selection, options: dict[str, Any]) -> RetryMany:
        too = options["cancelled_too"]
        return RetryMany(selection=selection, runs=options["runs"], delay=options["delay"], cancelled_too=too)
