"""The conditions that a job must meet to start, as SQL: the gates of all installed capabilities.

Claims, the search of idle workers, ``set_aside`` and ``explain()`` use the same SQL.
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
    """Return the SQL condition that all gates are open for a job. It reads ``gate_relations()``."""
    return _all_of([gate.job.replace("{job}", row) for gate in gates() if gate.job])


def gates_by_id(row: str) -> str:
    """Return the SQL of the gates that a claim by job ids checks."""
    return _all_of([gate.job.replace("{job}", row) for gate in gates() if gate.by_id])


def gates_of_tasks(row: str) -> str:
    """Return the SQL of the gates that read only the task and the queue."""
    return _all_of([gate.job.replace("{job}", row) for gate in gates() if gate.of_tasks])


def gates_of_lanes(lane: str, *, keyed: bool) -> str:
    """Return the SQL condition that all gates are open for a lane."""
    asked = [gate for gate in gates() if gate.lane and (keyed or not gate.of_keys)]
    return _all_of([gate.lane.replace("{lane}", lane) for gate in asked])


def lanes_open_in(lane: str) -> str:
    """Return a query for the seconds until the first shut gate of a lane with a key opens."""
    opening = [
        f"SELECT facts.opens_at FROM ({gate.facts}) AS facts WHERE ({gate.lane}) IS NOT TRUE"  # noqa: S608 - constants
        for gate in gates()
        if gate.lane
    ]
    union = "\n        UNION ALL ".join(opening).replace("{lane}", lane) or "SELECT NULL::timestamptz AS opens_at"
    return f"""SELECT EXTRACT(epoch FROM pg_catalog.min(opens_at) - statement_timestamp())::float8
        FROM ({union}) AS opening"""  # noqa: S608 - made of constants


def gate_relations() -> str:
    """Return one-row relations to put first in FROM. Without OFFSET 0, the planner would run them for each use."""
    reading = [one for one in installed() if one.reads]
    return "".join(f"({one.reads} OFFSET 0) AS {one.name}\n    CROSS JOIN " for one in reading)


def shut_gates(job: str) -> str:
    """Return a query for the gates that are shut for a job. It reads ``gate_relations()`` and ``lane``."""
    asked = [_SHUT.format(gate=gate) for gate in gates()]
    return "\n    UNION ALL ".join(asked).replace("{job}", job).replace("{lane}", "lane")


def may_shut_tasks() -> str:
    """Return the SQL condition that a gate may keep the jobs of some task from starting now."""
    return " OR ".join([gate.may_shut for gate in gates() if gate.of_tasks]) or "false"
