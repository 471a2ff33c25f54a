"""Conditions of a start as SQL: the gates of all capabilities that are installed.

Claims, looks, setting aside and ``explain()`` ask the same words.
"""

from __future__ import annotations

from .capability import Gate, installed

_SHUT = (
    "SELECT '{gate.code}' AS code, facts.opens_at, facts.reason, facts.shut_by "
    "FROM (SELECT 1 AS one) AS asked LEFT JOIN LATERAL ({gate.facts}) AS facts ON true "
    "WHERE ({gate.lane}{gate.job}) IS NOT TRUE"
)


def gates() -> list[Gate]:
    return [gate for capability in installed() for gate in capability.gates]


def _all_of(conditions: list[str]) -> str:
    return " AND ".join(conditions) or "true"


def gates_of_jobs(row: str) -> str:
    """Return the SQL that says, beside ``gate_relations()``, whether all gates are open for a job."""
    return _all_of([gate.job.replace("{job}", row) for gate in gates() if gate.job])


def gates_by_id(row: str) -> str:
    """Return the SQL of the gates that a claim of certain jobs asks."""
    return _all_of([gate.job.replace("{job}", row) for gate in gates() if gate.by_id])


def gates_of_tasks(row: str) -> str:
    """Return the SQL of the gates that read the task and the queue alone."""
    return _all_of([gate.job.replace("{job}", row) for gate in gates() if gate.of_tasks])


def gates_of_lanes(lane: str, *, keyed: bool) -> str:
    """Return the SQL that says whether all gates are open for a lane."""
    asked = [gate for gate in gates() if gate.lane and (keyed or not gate.of_keys)]
    return _all_of([gate.lane.replace("{lane}", lane) for gate in asked])


def lanes_open_in(lane: str) -> str:
    """Return a query for the seconds until the first gate opens of those that are shut for a lane with a key."""
    opening = [
        f"SELECT facts.opens_at FROM ({gate.facts}) AS facts WHERE ({gate.lane}) IS NOT TRUE"  # noqa: S608 - constants
        for gate in gates()
        if gate.lane
    ]
    union = "\n        UNION ALL ".join(opening).replace("{lane}", lane) or "SELECT NULL::timestamptz AS opens_at"
    return f"""SELECT EXTRACT(epoch FROM pg_catalog.min(opens_at) - statement_timestamp())::float8
        FROM ({union}) AS opening"""  # noqa: S608 - made of constants


def gate_relations() -> str:
    """Return relations of one row each, to stand first in FROM. OFFSET 0, or the planner asks again for each use."""
    reading = [one for one in installed() if one.reads]
    return "".join(f"({one.reads} OFFSET 0) AS {one.name}\n    CROSS JOIN " for one in reading)


def shut_gates(job: str) -> str:
    """Return a query for the gates that are shut for a job, beside ``gate_relations()`` and its ``lane``."""
    asked = [_SHUT.format(gate=gate) for gate in gates()]
    return "\n    UNION ALL ".join(asked).replace("{job}", job).replace("{lane}", "lane")


def may_shut_tasks() -> str:
    """Return the SQL that says whether a gate may keep jobs of some task from starting now."""
    return " OR ".join([gate.may_shut for gate in gates() if gate.of_tasks]) or "false"
