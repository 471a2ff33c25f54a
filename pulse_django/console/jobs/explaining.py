"""The box on the page of a waiting job that explains why it does not run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db import OperationalError

from pulse_django.encryption.values import MASK
from pulse_django.health.explanation import explained
from pulse_django.models import Job
from pulse_django.queue.database.read_only import briefly, is_lost
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.queue.words.states import CLAIMABLE, Status

TIMEOUT = "3s"  # of a statement; the page is also useful without the box


def explanation_of(job: Job, *, shows_key: bool) -> dict[str, Any]:
    """Return the context of a waiting job, or {} for others. The key of a limit is masked: it is an argument."""
    alias = job._state.db
    if alias is None or not (Status(job.status) in CLAIMABLE or job.status == Status.WAITING):
        return {}
    try:
        with briefly(alias, TIMEOUT):
            explanation = explained(alias, job.pk)
    except Job.DoesNotExist:  # it was deleted a moment ago
        return {}
    except OperationalError as refused:
        if is_lost(alias):
            raise
        return {"unexplained": error_in_one_line(refused)}
    if not shows_key:
        reasons = [
            replace(one, facts={**one.facts, "key": MASK}) if one.facts.get("key") is not None else one
            for one in explanation.reasons
        ]
        explanation = replace(explanation, reasons=reasons)
    return {"explanation": explanation}
