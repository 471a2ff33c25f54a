"""What an operation did so far: the counts of its chunks, added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.utils.formats import number_format

from pulse_django.models import StoredBatch
from pulse_django.words.states import Status
from pulse_django.workflows.batches import Batch

from .starting import ACT, KIND
from .verbs import BY_NAME

MOST_CHUNKS = 20_000  # 10 million jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    by: str
    lines: tuple[str, ...]


def totals_of(batch: Batch) -> Totals | None:
    """Add up what the chunks of an operation returned, or return None for any other batch."""
    row = StoredBatch.objects.using(batch.alias).only("kind", "context").filter(pk=batch.id).first()
    verb = BY_NAME.get((row.context or {}).get("verb", "")) if row is not None and row.kind == KIND else None
    if row is None or verb is None:
        return None
    counts: Counter[str] = Counter()
    done = batch.jobs.filter(task=ACT, status=Status.COMPLETED)
    for result in done.values_list("result", flat=True)[:MOST_CHUNKS]:
        counts += Counter(result or {})
    lines = [f"{number_format(counts[name], force_grouping=True)} {said}" for name, said in verb.answers.items()]
    return Totals(by=str((row.context or {}).get("by", "")), lines=tuple(lines))
