"""Signals: what a project may listen to. A receiver that raises is logged by Django and harms nobody.

| signal | sent when | arguments |
|---|---|---|
| ``job_started`` | a handler is about to be called | ``claim``, ``task`` |
| ``job_finished`` | a job has come to its end, whatever that is | ``claim``, ``status``, ``outcome`` |
| ``job_failed`` | a run failed, timed out, stalled or lost its process | ``claim``, ``status``, ``outcome`` |
| ``job_dead_lettered`` | a job used up its attempts, or may not be retried | ``job_id``, ``reason`` |
| ``error_after_completion`` | a handler raised after it had completed its job itself | ``claim``, ``error`` |
| ``lease_lost`` | a report came too late: the job had moved on | ``claim``, ``outcome`` |
| ``job_reaped`` | a watchdog ended a run | ``reaped`` |
| ``alert_raised`` | a threshold of ``ALERTS`` began to be exceeded | ``name``, ``found``, ``allowed``, ``says`` |
| ``alert_ended`` | it is not exceeded any more | ``name`` |
| ``worker_lost`` | a child of a worker died, and jobs of it were recovered | ``name``, ``reason``, ``leases`` |

The first is sent where the handler runs, the last four by the keeper or a watchdog, the others by the process that
reports; what a keeper or a watchdog dead-letters, they tell.

The sender is ``Job``. Django's own signals of its Tasks, ``task_started`` and ``task_finished``, are sent as well.
"""

from __future__ import annotations

from typing import Any

from django.dispatch import Signal

job_started = Signal()
job_finished = Signal()
job_failed = Signal()
job_dead_lettered = Signal()
error_after_completion = Signal()
lease_lost = Signal()
job_reaped = Signal()
alert_raised = Signal()
alert_ended = Signal()
worker_lost = Signal()


def tell(signal: Signal, sender: type, **facts: Any) -> None:
    """Send to whoever listens; nobody usually does, and then it costs nothing."""
    if signal.receivers:
        signal.send_robust(sender, **facts)
