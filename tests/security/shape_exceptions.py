"""Statements that may have a shape which Citus cuts into steps, and why each has it (docs/adr/0065).

They write several tables, or one in two ways, because all of it must stand or fall together; or they answer what else
follows from a row that they insert. Citus runs their steps in one transaction, and asks the node for each. On plain
PostgreSQL they are one round trip, and a worker that dies leaves nothing half done.
"""

from __future__ import annotations

from .shapes import Finding

_ENDS = "A run ends once: the job, its place in history, its row in the ledger, its hook, the note for who needs it."
_LEAVES = "A job leaves the hot partition for history, with the note for whoever needs it. It must be in one of them."
_NOTED = "Who needs what changes here has to look at it. A change without its note would be waited for for ever."
_DELETED = "What belongs to a job is deleted with it. A walk that looks for orphans is minutes behind."
_ADMITTED = "The key admits one job. A key without its job would refuse all others."
_MOVES = "A job moves between plain servers with all that belongs to it. Within Citus, Citus moves whole shards."

# What is written, and why together.
SEVERAL_WRITES = {
    "DELETE pulse_django_job_hot, INSERT pulse_django_attempt, INSERT pulse_django_job_hot, "
    "INSERT pulse_django_job_over, INSERT pulse_django_unresolved, INSERT pulse_django_unresolved, "
    "UPDATE pulse_django_job_hot": _ENDS,
    "DELETE pulse_django_job_hot, INSERT pulse_django_attempt, INSERT pulse_django_job_over, "
    "INSERT pulse_django_unresolved, INSERT pulse_django_unresolved, UPDATE pulse_django_job_hot": _ENDS,  # no hook
    "DELETE pulse_django_job_hot, INSERT pulse_django_job_over, INSERT pulse_django_unresolved": _LEAVES,
    "DELETE pulse_django_job_hot, INSERT pulse_django_job_over, INSERT pulse_django_unresolved, "
    "UPDATE pulse_django_job_hot": "Some jobs are cancelled, others asked to stop: of a job that is locked once, one.",
    "DELETE pulse_django_job_hot, INSERT pulse_django_job_over, INSERT pulse_django_unresolved, "
    "INSERT pulse_django_unresolved, UPDATE pulse_django_job_hot": "Some jobs are freed, others cancelled: " + _NOTED,
    "DELETE pulse_django_job, INSERT pulse_django_job_over": "A member of an open batch moves to another day: it must "
    "be in one of them.",
    "INSERT pulse_django_attempt, UPDATE pulse_django_job": "The run that completed a job moves into the ledger.",
    "DELETE pulse_django_amendment, DELETE pulse_django_attempt, DELETE pulse_django_job, DELETE pulse_django_key, "
    "INSERT pulse_django_unresolved": _DELETED,
    "DELETE pulse_django_amendment, DELETE pulse_django_attempt, DELETE pulse_django_job, DELETE pulse_django_key, "
    "DELETE pulse_django_window, INSERT pulse_django_unresolved": _DELETED,
    "DELETE pulse_django_amendment, DELETE pulse_django_attempt, DELETE pulse_django_key": _DELETED,
    "INSERT pulse_django_amendment, UPDATE pulse_django_job_hot": "The old arguments are kept where they are replaced.",
    "INSERT pulse_django_job_hot, INSERT pulse_django_key": _ADMITTED,
    "INSERT pulse_django_job_hot, INSERT pulse_django_window": _ADMITTED,
    "INSERT pulse_django_key, INSERT pulse_django_tick": "A tick fires once: it and the key of its job.",
    "INSERT pulse_django_unresolved, UPDATE pulse_django_batch": _NOTED,
    "INSERT pulse_django_unresolved, UPDATE pulse_django_batch, UPDATE pulse_django_batch": _NOTED,
    "UPDATE pulse_django_batch, UPDATE pulse_django_batch": "Sent to Citus: what is judged, and what ended late.",
    "INSERT pulse_django_unresolved, UPDATE pulse_django_dependency": _NOTED,
    "DELETE pulse_django_unresolved, UPDATE pulse_django_unresolved": "Notes are taken down, or the half of one that "
    "was dealt with: of rows that are locked once.",
    "DELETE pulse_django_amendment, DELETE pulse_django_attempt, DELETE pulse_django_job_hot, "
    "DELETE pulse_django_key, DELETE pulse_django_window, INSERT pulse_django_departure": _MOVES,
    "INSERT pulse_django_amendment, INSERT pulse_django_arrival, INSERT pulse_django_attempt, "
    "INSERT pulse_django_job_hot, INSERT pulse_django_key, INSERT pulse_django_window": _MOVES,
    "DELETE pulse_django_departure, INSERT pulse_django_amendment, INSERT pulse_django_attempt, "
    "INSERT pulse_django_job_hot, INSERT pulse_django_key, INSERT pulse_django_window": _MOVES,
    "INSERT pulse_django_worker": "A beat is noted, and answered with which one the worker is of those that live.",
    "INSERT pulse_django_step": "A sleep begins, or goes on: the answer is how long it still takes.",
    "INSERT pulse_django_unresolved": "A walk notes what it finds, and answers how far it came.",
}  # fmt: skip


_ASKED = "All conditions are asked in one statement. If a server refuses it, each is asked alone."
# What is read of the server's catalogue beside our tables.
CATALOGUE = {
    "pg_prepared_xacts, pg_replication_slots, pg_stat_activity, pg_stat_progress_vacuum, pg_stat_user_tables": _ASKED,
    "pg_class, pg_prepared_xacts, pg_replication_slots, pg_stat_activity, pg_stat_progress_vacuum, "
    "pg_stat_user_tables": _ASKED,  # with advice
}

EXCEPTIONS = {"writes": SEVERAL_WRITES, "catalogue": CATALOGUE}


def is_excepted(finding: Finding) -> bool:
    return finding.what in EXCEPTIONS.get(finding.rule, ())
