"""The catalogue of what can be wrong: each condition is a question to the database, its meaning and its remedy.

``pulse_status``, ``pulse_watchdog --check``, ``pulse_health``, the health view, the alerts, the board, the doctor and
the metrics all read it, so they give the same answer. An app adds its own conditions in ``AppConfig.ready()``::

    from pulse_django.fleet.conditions import Condition, Severity, register

    register(
        Condition(
            name="invoice-without-job",
            severity=Severity.STUCK,
            says="Every open invoice has a job that sends it.",
            means="These invoices will not be sent.",
            to_do="Enqueue send_invoice for them.",
            sql="SELECT id, 'invoice ' || number FROM billing_invoice WHERE job_id IS NULL LIMIT %(limit)s",
        )
    )
"""

from __future__ import annotations

from . import failures, jobs, limits, queues, schedules, schema, server, workers
from .asking import Finding, Step, Verdict, ask, ask_all, repair
from .catalogue import (
    OURS,
    About,
    Condition,
    Limits,
    Repair,
    RepairRefused,
    Severity,
    Subject,
    Threshold,
    known,
    named,
    register,
)

for one in (
    *failures.CONDITIONS, *jobs.CONDITIONS, *limits.CONDITIONS, *queues.CONDITIONS, *schedules.CONDITIONS,
    *schema.CONDITIONS, *server.CONDITIONS, *workers.CONDITIONS,
):  # fmt: skip
    OURS.add(register(one).name)

__all__ = [
    "About",
    "Condition",
    "Finding",
    "Limits",
    "Repair",
    "RepairRefused",
    "Severity",
    "Step",
    "Subject",
    "Threshold",
    "Verdict",
    "ask",
    "ask_all",
    "known",
    "named",
    "register",
    "repair",
]
