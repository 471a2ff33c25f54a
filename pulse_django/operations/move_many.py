"""Move waiting jobs to another shard, as one of the operations on many jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pulse_django.execution.moving import movable, move
from pulse_django.models import Job
from pulse_django.store.querysets import JobQuerySet

from .preview import Selection
from .verbs import Counts

KeyRange = tuple[str, str]  # the first four digits of the hashes of keys: from, and below


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveMany:
    """Move what waits and is counted by nothing here."""

    selection: Selection
    to: str
    keys: KeyRange | None = None
    noun = "waiting jobs that can be moved"
    answers = ("moved", "went_back", "left")

    def jobs(self, alias: str) -> JobQuerySet:
        found = self.selection.jobs(alias)
        if self.keys is not None:
            first, below = self.keys
            found = found.filter(lane_key__gte=f":{first}", lane_key__lt=f":{below}")
        return movable(found)

    def act(self, alias: str, ids: Collection[int]) -> Counts:
        done = move(Job.objects.using(alias).filter(pk__in=list(ids)), self.to)
        left = len(ids) - done.moved - done.went_back
        return {"moved": done.moved, "went_back": done.went_back, "left": left}

    def would(self, matches: int, running: int) -> str:
        return f"Would move {matches} to shard {self.to!r}"

    def summary(self, counts: Counts) -> str:
        back = f" {counts['went_back']} stayed: another job there has their key." if counts["went_back"] else ""
        return f"{counts['moved']} moved, {counts['left']} were locked or no longer matched.{back}"
