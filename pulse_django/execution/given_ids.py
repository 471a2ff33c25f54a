"""Refuse a need of an id that was never given: it is a typo, and would pass for a job that is over and was deleted."""

from __future__ import annotations

from collections.abc import Collection

from pulse_django.models import Job, StoredBatch
from pulse_django.store.shards import IDS_OF_BATCHES, IDS_OF_JOBS, known_position_of


def never_given(alias: str, *, jobs: Collection[int] = (), batches: Collection[int] = ()) -> str:
    """Name an id that is not there, and that the sequence of this database has not reached. Empty: there is none.

    What it has reached and is not there was deleted, or is in a transaction that is still open.
    """
    for kind, ids, model, sequence in (
        ("job", jobs, Job, IDS_OF_JOBS),
        ("batch", batches, StoredBatch, IDS_OF_BATCHES),
    ):
        if not ids:
            continue
        missing = set(ids).difference(model.objects.using(alias).filter(pk__in=ids).values_list("pk", flat=True))
        position = known_position_of(alias, sequence) if missing else None
        if position is not None and max(missing) > position:
            return f"{kind} {max(missing)} does not exist, and never did: no id in {alias!r} is above {position}"
    return ""
