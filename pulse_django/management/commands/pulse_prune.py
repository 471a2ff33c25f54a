"""``manage.py pulse_prune``: delete jobs that have ended, after a preview."""

from __future__ import annotations

from typing import Any

from pulse_django.operations.mass_command import MassCommand
from pulse_django.operations.preview import Selection
from pulse_django.operations.verbs import PruneMany, retention
from pulse_django.words.display import in_words
from pulse_django.words.states import TERMINAL


class Command(MassCommand):
    help = (
        "Delete ended jobs and their attempts. Without --older-than, delete jobs older than KEEP_COMPLETED, "
        "KEEP_CANCELLED or KEEP_DEAD_LETTERS. Dead letters require --status DEAD_LETTERED. Without --yes, only list "
        "them. Exit codes: 0 done, 1 failed midway, 130 Ctrl-C."
    )
    statuses = TERMINAL

    def verb(self, selection: Selection, options: dict[str, Any]) -> PruneMany:
        return PruneMany(selection=selection)

    def notes(self, verb: PruneMany, alias: str) -> list[str]:
        if verb.selection.older_than is not None:
            return []
        kept = [
            f"{status} for {in_words(age.total_seconds())}" if (age := retention(status)) else f"{status} for ever"
            for status in verb.statuses
        ]
        return [f"Your settings keep {', '.join(kept)}. --older-than overrides them."]
