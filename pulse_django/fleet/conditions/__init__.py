"""Named questions to the database, each about a state that should not be; with what it means and what mends it.

``manage.py pulse_watchdog --check`` asks them all. An app adds its own in ``AppConfig.ready()``::

    from pulse_django.fleet.conditions import Condition, Severity, register

    register(
        Condition(
            name="invoice-without-job",
            severity=Severity.STUCK,
            says="Every open invoice has a job that sends it.",
            means="Nobody will send these invoices.",
            to_do="Enqueue send_invoice for them.",
            sql="SELECT id, 'invoice ' || number FROM billing_invoice WHERE job_id IS NULL LIMIT %(limit)s",
        )
    )
"""

from __future__ import annotations

from . import fleet, jobs, schema, server  # noqa: F401 - they register what they hold
from .asking import Finding, Step, ask, ask_all, mend
from .catalogue import Condition, Limits, Repair, RepairRefused, Severity, Subject, known, named, register

__all__ = [
    "Condition",
    "Finding",
    "Limits",
    "Repair",
    "RepairRefused",
    "Severity",
    "Step",
    "Subject",
    "ask",
    "ask_all",
    "known",
    "mend",
    "named",
    "register",
]
