"""``manage.py pulse_retry``: retry dead letters, after a preview."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.db.models.functions import Coalesce

from pulse_django import conf
from pulse_django.models import StoredBatch
from pulse_django.operations import arguments
from pulse_django.operations.acts import ACTS
from pulse_django.operations.mass_command import MassCommand

MOST_RUNS = 32_767


class Command(MassCommand):
    help = "Retry dead letters. Without --yes, only list them. Exit codes: 0 done, 1 failed midway, 130 Ctrl-C."
    noun = "dead letters"
    would = "Would retry {matches} (--runs {runs}, --delay {delay})"
    act, given = ACTS["retry"], ("runs", "delay", "cancelled_too")

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        runs, said = arguments.whole_number(1, MOST_RUNS), "minimum number of additional runs for each; default: 1"
        parser.add_argument("--runs", type=runs, default=1, metavar="N", help=said)
        delay: dict[str, Any] = {"type": arguments.duration, "default": timedelta(), "metavar": "DURATION"}
        parser.add_argument("--delay", **delay, help="delay before they run")
        arguments.add_cancelled_too(parser)

    def notes(self, alias: str) -> list[str]:
        """Warn about jobs that reached the limit of lost workers: more runs do not raise that limit."""
        limit, notes, jobs = Coalesce("max_lost_workers", conf.current().max_lost_workers), [], self.jobs(alias)
        if count := jobs.filter(losses__gte=limit).count():
            notes.append(
                f"{count} of them reached the limit of lost workers: one more ends the job, regardless of --runs."
            )
        cancelled = StoredBatch.objects.using(alias).filter(cancelled_at__isnull=False).values("pk")
        if not self.options["cancelled_too"] and (count := jobs.filter(batch_id__in=cancelled).count()):
            belongs = "belongs to a cancelled workflow" if count == 1 else "belong to cancelled workflows"
            notes.append(f"{count} of them {belongs} and will be left. --cancelled-too retries them as well.")
        return notes
