"""The vital signs of workflows: a part of ``vital_signs``."""

from __future__ import annotations

from .vital_sign import SignKind, VitalSign

WAITING_JOBS = VitalSign(
    name="waiting_jobs",
    kind=SignKind.GAUGE,
    means="Number of jobs that wait for other jobs, batches or events. Counting stops at a limit.",
    to_do="Normal while workflows run. If it does not fall, look for held workflows and for events that were never "
    "sent.",
)
BATCHES_OPEN = VitalSign(
    name="batches_open",
    kind=SignKind.GAUGE,
    means="Number of batches and workflows that are not over. Counting stops at a limit.",
    to_do="If it only rises, workflows are held, wait for events, or are never sealed. Run manage.py pulse_workflows.",
)
BATCHES_HELD = VitalSign(
    name="batches_held",
    kind=SignKind.GAUGE,
    means="Number of these that have dead letters. They are over once those are retried or the whole is cancelled.",
    to_do="Fix what the dead letters died of, and retry them: manage.py pulse_workflows retry.",
)
BATCH_DURATION = VitalSign(
    name="batch_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    labels=("kind",),
    means="Time from the opening of a batch or workflow to its end. Those within others are not counted.",
    to_do="If it rises, the critical path on the page of a workflow says which of its jobs take the time.",
)
