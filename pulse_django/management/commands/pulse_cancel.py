"""``manage.py pulse_cancel``: cancel waiting jobs and ask running ones to stop, after a preview."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from pulse_django.operations.acts import LIVE
from pulse_django.operations.mass_command import MassCommand
from pulse_django.operations.preview import Selection
from pulse_django.operations.verbs import CancelMany


class Command(MassCommand):
    help = (
        "Cancel waiting jobs, and ask running jobs to stop. Without --yes, only list them. Exit codes: 0 done, 1 "
        "failed midway, 130 Ctrl-C."
    )
    statuses = LIVE

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", default="", metavar="TEXT", help="reason to store with each job")
        parser.add_argument(
            "--children", action="store_true", help="also cancel the jobs that they enqueued, recursively"
        )

    def verb(self, selection: Selection, options: dict[str, Any]) -> CancelMany:
        return CancelMany(selection=selection, reason=options["reason"], children=options["children"])
