"""``manage.py pulse_prune``: delete jobs that have ended, after a preview."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.operations.acts import ACTS
from pulse_django.operations.mass_command import MassCommand
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.states import TERMINAL, Status


class Command(MassCommand):
    help = (
        "Delete ended jobs and their attempts. Without --older-than, delete jobs older than KEEP_COMPLETED, "
        "KEEP_CANCELLED or KEEP_DEAD_LETTERS. Dead letters require --status DEAD_LETTERED. Without --yes, only list "
        "them. Exit codes: 0 done, 1 failed midway, 130 Ctrl-C."
    )
    statuses = TERMINAL
    default = (Status.COMPLETED, Status.CANCELLED)  # an operator should have read dead letters
    noun = "ended jobs"
    would = "Would permanently delete {matches} and their attempts"
    act = ACTS["delete"]

    def jobs(self, alias: str) -> JobQuerySet[Job]:
        """Return the jobs of this age or, without one, those beyond their retention."""
        jobs = super().jobs(alias)
        if self.selection.older_than is not None:
            return jobs
        outlived, kept = Q(pk__in=()), {status: conf.current().retention[status] for status in self.meant}
        for age in {*kept.values()} - {timedelta()}:
            same = [status for status in kept if kept[status] == age]
            outlived |= Q(status__in=same, finished_at__lt=StatementTimestamp() - age)
        return jobs.filter(outlived)

    def notes(self, alias: str) -> list[str]:
        if self.selection.older_than is not None:
            return []
        ages = {status: conf.current().retention[status] for status in self.meant}
        kept = [f"{one} for {in_words(age.total_seconds()) if age else 'ever'}" for one, age in ages.items()]
        return [f"Your settings keep {', '.join(kept)}. --older-than overrides them."]
