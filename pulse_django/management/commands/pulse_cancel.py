"""``manage.py pulse_cancel``: cancel waiting jobs and ask running ones to stop, after a preview."""

from __future__ import annotations

from dataclasses import replace

from django.core.management.base import CommandParser

from pulse_django.operations.acts import LIVE, Given
from pulse_django.operations.mass_command import Counts, MassCommand
from pulse_django.operations.preview import has_status, with_families
from pulse_django.queue.database.querysets import JobQuerySet


class Command(MassCommand):
    help = (
        "Cancel waiting jobs, and ask running jobs to stop. Without --yes, only list them. Exit codes: 0 done, 1 "
        "failed midway, 130 Ctrl-C."
    )
    statuses = LIVE
    noun = "live jobs"
    verb = "cancel"
    answers = ("cancelled", "asked", "refused")

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", default="", metavar="TEXT", help="reason to store with each job")
        children = "also cancel the jobs that they enqueued, recursively"
        parser.add_argument("--children", action="store_true", help=children)

    def jobs(self, alias: str) -> JobQuerySet:
        """Return the unfinished jobs that were not asked to stop before."""
        meant, children = self.selection, self.options["children"]
        # An ended parent that is named by its id is kept, because its children may not have ended.
        if not (children and meant.ids):
            meant = replace(meant, statuses=meant.statuses or LIVE)
        found = with_families(meant.jobs(alias)) if children else meant.jobs(alias)
        return found.filter(has_status(LIVE), cancel_requested_at__isnull=True)

    def given(self) -> Given:
        return {"reason": self.options["reason"]}

    def would(self, matches: int, running: int) -> str:
        return f"Would cancel {matches - running} waiting and ask {running} running to stop"

    def summary(self, counts: Counts) -> str:
        cancelled, asked, refused = counts["cancelled"], counts["asked"], counts["refused"]
        return f"{cancelled} cancelled, {asked} asked to stop, {refused} had already ended."
