"""The catalogue of conditions, the problems that Pulse detects. Each has a query, its meaning and its remedy.

``pulse_status``, ``pulse_check --all``, ``pulse_check``, the health view, the alerts, the board and the metrics
all use it, so they give the same answer. ``pulse_check --advice`` adds advice, a few conditions of the database and the
settings. An app adds its own conditions in ``AppConfig.ready()``::

    from pulse_django.health.conditions import Condition, Severity, register

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

from . import connections, failures, jobs, queues, schema, server, tables, timing, workers
from .asking import Finding as Finding
from .asking import Step as Step
from .asking import Verdict as Verdict
from .asking import ask as ask
from .asking import ask_all as ask_all
from .asking import repair as repair
from .catalogue import About as About
from .catalogue import Condition as Condition
from .catalogue import Limits as Limits
from .catalogue import Repair as Repair
from .catalogue import RepairRefused as RepairRefused
from .catalogue import Sentence as Sentence
from .catalogue import Severity as Severity
from .catalogue import Subject as Subject
from .catalogue import Threshold as Threshold
from .catalogue import add_ours
from .catalogue import known as known
from .catalogue import named as named
from .catalogue import register as register

add_ours(
    *failures.CONDITIONS, *jobs.CONDITIONS, *queues.CONDITIONS, *schema.CONDITIONS, *server.CONDITIONS,
    *workers.CONDITIONS, *connections.CONDITIONS, *tables.CONDITIONS, *timing.CONDITIONS,
)  # fmt: skip
