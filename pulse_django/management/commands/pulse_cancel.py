"""``manage.py pulse_cancel``: cancel what waits and ask what runs to stop, after a look at what that means."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from pulse_django.operations.mass_command import MassCommand
from pulse_django.operations.selection import Selection
from pulse_django.operations.verbs import LIVE, CancelMany


class Command(MassCommand):
    help = (
        "Cancel waiting jobs, and ask running ones to stop. Without --yes it only shows which. "
        "Exit codes: 0 done, 1 failed midway, 130 Ctrl-C."
    )
    statuses = LIVE

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", default="", metavar="TEXT", help="kept with each job")
        parser.add_argument("--children", action="store_true", help="and all that they enqueued, and those theirs")

    def verb(self, selection: Selection, options: dict[str, Any]) -> CancelMany:
        return CancelMany(selection=selection, reason=options["reason"], children=options["children"])
