"""The statuses of a job and the moves that each verb may make between them.

``MOVES`` is the transition table of the whole product. The docstring of ``managers.py`` prints it, and a test drives
every (status, verb) pair against the database and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Status(StrEnum):
    """Where a job is in its life. "Scheduled" is PENDING with a future ``next_run_at``: a display name only."""

    PENDING = "PENDING"  # waits for its time and for a worker
    RUNNING = "RUNNING"  # a worker holds its lease
    RETRYING = "RETRYING"  # a run failed; waits out its backoff
    COMPLETED = "COMPLETED"  # a run's result was accepted
    DEAD_LETTERED = "DEAD_LETTERED"  # gave up, with a reason; an operator may retry it
    CANCELLED = "CANCELLED"  # ended on request

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL

    @property
    def is_claimable(self) -> bool:
        return self in CLAIMABLE


CLAIMABLE = (Status.PENDING, Status.RETRYING)
TERMINAL = (Status.COMPLETED, Status.DEAD_LETTERED, Status.CANCELLED)


class Verb(StrEnum):
    """What can be done to a job that exists, in the order of its life."""

    CLAIM = "claim"
    HEARTBEAT = "heartbeat"
    SETTLE = "settle"
    REAP = "reap"
    TOUCH_EXPIRED = "touch_expired"
    MEND = "mend"
    SHORTEN_LEASES = "shorten_leases"
    RELEASE = "release"
    REQUEST_CANCEL = "request_cancel"
    RESCHEDULE = "reschedule"
    MOVE = "move"
    RETRY = "retry"
    PRUNE = "prune"


# The status a pruned job moves to: none, its row is gone.
GONE = None

Moves = Mapping[Status, frozenset[Status | None]]


def _moves(moves: dict[Status, set[Status | None]]) -> Moves:
    return MappingProxyType({origin: frozenset(targets) for origin, targets in moves.items()})


# A status that a verb does not list is left exactly as it was: the verb's WHERE refuses it.
MOVES: Mapping[Verb, Moves] = MappingProxyType(
    {
        Verb.CLAIM: _moves({Status.PENDING: {Status.RUNNING}, Status.RETRYING: {Status.RUNNING}}),
        Verb.HEARTBEAT: _moves({Status.RUNNING: {Status.RUNNING}}),
        Verb.SETTLE: _moves({Status.RUNNING: {Status.PENDING, Status.RETRYING, *TERMINAL}}),
        Verb.REAP: _moves({Status.RUNNING: {Status.RETRYING, Status.DEAD_LETTERED, Status.CANCELLED}}),
        Verb.TOUCH_EXPIRED: _moves({Status.RUNNING: {Status.RUNNING}}),
        Verb.MEND: _moves({Status.RUNNING: {Status.RUNNING}}),
        Verb.SHORTEN_LEASES: _moves({Status.RUNNING: {Status.RUNNING}}),
        Verb.RELEASE: _moves({Status.RUNNING: {Status.PENDING, Status.CANCELLED}}),
        Verb.REQUEST_CANCEL: _moves(
            {
                Status.PENDING: {Status.CANCELLED},
                Status.RETRYING: {Status.CANCELLED},
                Status.RUNNING: {Status.RUNNING},  # asked; its handler ends it
            }
        ),
        Verb.RESCHEDULE: _moves({status: {status} for status in CLAIMABLE}),
        Verb.MOVE: _moves({status: {status} for status in CLAIMABLE}),
        Verb.RETRY: _moves({Status.DEAD_LETTERED: {Status.PENDING}}),
        Verb.PRUNE: _moves({status: {GONE} for status in TERMINAL}),
    }
)


def allows(verb: Verb, origin: Status, target: Status | None) -> bool:
    """Say whether ``verb`` may move a job from ``origin`` to ``target``."""
    return target in MOVES[verb].get(origin, frozenset())
