"""``manage.py pulse_cancel``: cancel waiting jobs and ask running ones to stop, after a preview."""

from __future__ import annotations

from django.core.management.base import CommandParser

from pulse_django.models import Job
from pulse_django.operations.acts import ACTS, LIVE
from pulse_django.operations.mass_command import MassCommand
from pulse_django.operations.preview import with_families
from pulse_django.queue.database.querysets import JobQuerySet


class Command(MassCommand):
    help = (
        "Cancel waiting jobs, and ask running jobs to stop. Without --yes, only list them. Exit codes: 0 done, 1 "
        "failed midway, 130 Ctrl-C."
    )
    statuses = LIVE
    noun = "live jobs"
    would = "Would cancel {waiting} waiting and ask {running} running to stop"
    act, given = ACTS["cancel"], ("reason",)

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", default="", metavar="TEXT", help="reason to store with each job")
        children = "also cancel the jobs that they enqueued, recursively"
        parser.add_argument("--children", action="store_true", help=children)

    def jobs(self, alias: str) -> JobQuerySet[Job]:
        """Return the unfinished jobs that were not asked to stop before."""
        found = super().jobs(alias)
        if self.options["children"]:
            # An ended parent that is named by its id is kept, because its children may not have ended.
            found = with_families(self.selection.jobs(alias) if self.selection.ids else found)
        return self.act.matching(found)
