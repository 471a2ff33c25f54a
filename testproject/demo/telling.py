"""Plays one act: do something, watch the table until the expected follows, and fail if it does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulse_django.backend import new_job
from pulse_django.exceptions import PulseError
from pulse_django.models import Attempt, Job
from pulse_django.run.registry import Task

from .pace import DemoPace
from .rows import Row, ledger, look
from .screen import Screen, line
from .stage import Stage

LOOK_AGAIN = 0.1  # seconds; what is measured is as exact as this


class WentOtherwise(PulseError):
    """A step of the story did not happen. The message says what was expected and what was seen."""


@dataclass(frozen=True, slots=True)
class Telling:
    screen: Screen
    stage: Stage
    pace: DemoPace
    queue: str  # of the demo alone: it touches no other jobs
    patience: float

    def enqueue(self, task: Task, *args: Any) -> int:
        """Add a job. Not through the project's TASKS, which may know other queues only, or another backend."""
        return int(Job.objects.enqueue(replace(new_job(task, args, {}), queue=self.queue)).pk)

    def expect(self, happened: bool, expected: str, seen: object) -> None:
        if not happened:
            raise WentOtherwise(f"expected {expected}; seen: {seen}")

    def watch(self, expected: str, ids: Sequence[int], happened: Callable[[Sequence[Row]], bool]) -> Sequence[Row]:
        """Show these jobs until it happened. A job that is over will not change any more."""

        def seen() -> Sequence[Row] | None:
            rows = look(ids)
            self.screen.show(rows)
            if happened(rows):
                return rows
            self.expect(not all(row.is_over for row in rows), expected, self._told(rows))
            return None

        rows: Sequence[Row] = self.wait(expected, seen, lambda: self._told(look(ids)))
        return rows

    def wait(self, expected: str, look_for: Callable[[], Any], explain: Callable[[], object] = str) -> Any:
        """Look again and again until there is something, and return it."""
        deadline = time.monotonic() + self.patience
        while not (found := look_for()):
            for worker in self.stage.ended_by_themselves():
                raise WentOtherwise(f"expected {expected}; seen: {worker.name} ended with status {worker.exit_code}")
            if time.monotonic() > deadline:
                raise WentOtherwise(f"expected {expected} within {self.patience:.0f} s; seen: {explain()}")
            time.sleep(LOOK_AGAIN)
        return found

    def expect_ledger(self, job_id: int, *outcomes: str) -> list[Attempt]:
        """Look at the ended runs of a job, which are written in the statement that ends them."""
        runs = ledger(job_id)
        seen = [run.outcome for run in runs]
        self.expect(seen == list(outcomes), f"the runs of job {job_id} to be {list(outcomes)}", seen)
        return runs

    def _told(self, rows: Sequence[Row]) -> str:
        return "\n" + "\n".join(line(row, self.screen.elapsed) for row in rows)
