"""From needs to reasons: what a WAITING job waits for, first what only a person ends. Nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pulse_django.fleet.workflows import NeedFacts
from pulse_django.words.job_options import When

from . import asking
from .sentences import Reason

MOST_NEEDS = 1_000  # that are looked at
MOST_NAMED = 10

_OF_BATCH = {When.CLOSED: "waits-for-batch", When.ENDED: "waits-for-end", When.DEAD: "waits-for-dead-letter"}


def reasons_of(needs: Sequence[NeedFacts], paused: asking.PausedBatch | None) -> list[Reason]:
    """Explain a job by the needs of it that are not met, and by its batch if that is paused."""
    found = []
    if paused is not None:
        found.append(Reason(code="batch-paused", facts={"batch": paused.id, "name": paused.name}))
    if held_by := [job_id for need in needs for job_id in need.held_by]:
        found.append(Reason(code="held-by-dead-letter", facts=_named(held_by)))
    found += _of_batches(needs)
    found += [
        Reason(code="waits-for-event", until=need.until, facts={"event": need.event})
        for need in needs
        if need.event is not None
    ][:MOST_NAMED]
    if jobs := [need.job for need in needs if need.job is not None and not need.held_by]:
        found.append(Reason(code="waits-for-jobs", facts=_named(jobs)))
    return found or [Reason(code="needs-met")]


def _of_batches(needs: Sequence[NeedFacts]) -> Iterator[Reason]:
    for need in [need for need in needs if need.batch is not None][:MOST_NAMED]:
        code = _OF_BATCH[When(need.moment)] if need.is_sealed else "batch-not-sealed"
        yield Reason(code=code, facts={"batch": need.batch, "name": need.name})


def _named(jobs: Sequence[int]) -> dict[str, Any]:
    return {"jobs": list(jobs[:MOST_NAMED]), "more": max(0, len(jobs) - MOST_NAMED)}
