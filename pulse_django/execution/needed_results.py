"""What a job needed, and what came of it: ``context.results``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulse_django.exceptions import NeedNotDone
from pulse_django.models import Dependency, Event, Job
from pulse_django.words.job_options import Met
from pulse_django.words.masks import RESULT
from pulse_django.words.states import Status

from .encryption import value_of


@dataclass(frozen=True, slots=True)
class NeededResults(Mapping[str, Any]):
    """The results of the jobs that a job needed, by name. They are read when they are asked for."""

    job_id: int
    alias: str

    def __getitem__(self, name: str) -> Any:
        """Return the result of a job that was needed. Raise ``NeedNotDone`` if it is a dead letter or was cancelled."""
        found = [need for need in self._needs() if need.name == name]
        for need in found:
            return self._result_of(need)
        for need in self._batches():  # a large group is needed as a batch, and its jobs have the names
            member = self._members(need).filter(node=name).first()
            if member is not None:
                return _value(member, name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        for need in self._needs():
            if need.name or need.needs_batch is None:
                yield need.name
            else:
                yield from self._members(need).values_list("node", flat=True)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def one(self) -> Any:
        """Return the result of the only job that was needed."""
        names = list(self)
        if len(names) != 1:
            raise ValueError(f"this job needed {len(names)} results, not one: {', '.join(names[:10])}")
        return self[names[0]]

    @property
    def not_done(self) -> dict[str, str]:
        """The names of what was needed and is not done, each with "dead" or "cancelled"."""
        return {need.name: str(need.met) for need in self._needs() if need.met in (Met.DEAD, Met.CANCELLED)}

    def _needs(self) -> list[Dependency]:
        return list(Dependency.objects.using(self.alias).filter(job_id=self.job_id, met__isnull=False).order_by("id"))

    def _batches(self) -> list[Dependency]:
        return [need for need in self._needs() if need.needs_batch is not None]

    def _members(self, need: Dependency) -> Any:
        batch = need.needs_batch or 0
        return Job.objects.using(self.alias).in_batch(batch).filter(node__isnull=False).order_by("id")

    def _result_of(self, need: Dependency) -> Any:
        if need.needs_event is not None:
            event = Event.objects.using(self.alias).filter(name=need.needs_event).first()
            return None if event is None else event.payload
        if need.needs_batch is not None:
            return {member.node: _value(member, str(member.node)) for member in self._members(need)}
        job = Job.objects.using(self.alias).filter(pk=need.needs).first()
        if job is None:
            raise NeedNotDone(need.name, "deleted")
        return _value(job, need.name)


def _value(job: Job, name: str) -> Any:
    if job.status != Status.COMPLETED:
        raise NeedNotDone(name, str(job.status))
    return value_of(job, RESULT)
