"""Every write to job state: a file for each verb. No other module writes to the jobs table.

    verb            from                    to
    enqueue         -                       PENDING, WAITING
    resolve         WAITING                 PENDING, CANCELLED
    hold            PENDING, RETRYING       WAITING
    claim           PENDING, RETRYING       RUNNING
    heartbeat       RUNNING                 RUNNING
    settle          RUNNING                 COMPLETED, RETRYING, PENDING, WAITING, DEAD_LETTERED, CANCELLED
    reap            RUNNING                 RETRYING, DEAD_LETTERED, CANCELLED
    touch_expired   RUNNING                 RUNNING, unchanged
    mend            RUNNING                 RUNNING, with a lease that can be
    shorten_leases  RUNNING                 RUNNING, with a lease that can be
    release         RUNNING                 PENDING, CANCELLED
    expire          PENDING                 CANCELLED
    request_cancel  PENDING, RETRYING,      CANCELLED
                    WAITING
                    RUNNING                 RUNNING, asked to stop
    reschedule      PENDING                 PENDING, at another time
                    RETRYING                RETRYING, at another time
    move            PENDING                 PENDING, elsewhere
                    RETRYING                RETRYING, elsewhere
    amend           PENDING                 PENDING, with other arguments
                    RETRYING                RETRYING, with other arguments
                    WAITING                 WAITING, with other arguments
    set_aside       PENDING                 PENDING, out of what claims read
                    RETRYING                RETRYING, out of what claims read
    bring_back      PENDING                 PENDING, in line again
                    RETRYING                RETRYING, in line again
    retry           DEAD_LETTERED           PENDING
    prune           COMPLETED,              (gone)
                    DEAD_LETTERED,
                    CANCELLED

The claim is the lease. One UPDATE sets RUNNING, ``locked_by``, ``lease_until``, ``token`` and the next ``attempts``;
every later write of that run looks its row up by ``id``, ``locked_by`` and ``attempts``. That is the fence: once the
job has moved on, the statement finds no row, and "no row" is the answer that the caller gets. ``settle`` is the one
door out of RUNNING for workers; ``reap`` is the same door for watchdogs.

An enqueue with a unique key that another job holds adds none. It may change the arguments and the time of that job, if
that one is PENDING and has never been claimed (``unique``).

A job that needs others is WAITING, which no claim reads. The statement that ends a job which another one needs, or
that is in a batch, notes it; ``resolve`` looks at the notes after the commit, and frees what waits. ``hold`` lets the
jobs of a paused batch wait.

``set_aside`` and ``bring_back`` change no status. Between them ``ready`` is NULL, and claims do not read the job.

What waits or runs, and dead letters, are in the hot partition, which statements name. ``settle``, ``reap``,
``expire`` and ``request_cancel`` move what they complete or cancel to the partition of the day (``ending``). ``prune``
makes and drops these partitions.

Seven habits hold in every statement below:

- What touches several rows locks them first, jobs in the order of their ids and attempts of their (job, number), or
  skips locked ones. Sorted parameters alone deadlock.
- Locks are FOR NO KEY UPDATE, but for what is to be deleted: an open transaction of an app that refers to a job by
  foreign key is no reason to skip its heartbeat.
- One bad row or value fails itself and not its batch: values are cleaned and bounded on their way in, and where a
  batch is refused all the same, its rows are tried one by one.
- Instants are written with clock_timestamp() and compared with statement_timestamp(); Python's clock decides nothing.
- ``request_cancel``, ``reschedule``, ``move``, ``amend`` and ``retry`` take an ``attempt``, because an operator decides
  by what a page showed. A job that has had another attempt since is left alone, even if its status is the same again.
  The comparison is made under the row's lock.
- A fence does not mention ``status``: a CHECK ties ``locked_by`` to RUNNING, and with stale statistics a condition on
  the status lets the planner start from the wrong index.
- Functions that take arguments are called as pg_catalog's, and operators stand between types for which it has one:
  short text is compared as ``text``. A planted function or operator that fits better would be called (docs/adr/0039).

Lists travel as one JSON document instead of one array per column: psycopg quotes it in one go, and a batch of a
hundred settles took 2.4 ms instead of 2.9.

``MOVES`` is the table as values. A test compares it with the one above, and drives every (status, verb) pair against
the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from pulse_django.words.states import CLAIMABLE, TERMINAL, Status


class Verb(StrEnum):
    """What can be done to a job that exists, in the order of its life."""

    RESOLVE = "resolve"
    HOLD = "hold"
    CLAIM = "claim"
    HEARTBEAT = "heartbeat"
    SETTLE = "settle"
    REAP = "reap"
    TOUCH_EXPIRED = "touch_expired"
    MEND = "mend"
    SHORTEN_LEASES = "shorten_leases"
    RELEASE = "release"
    EXPIRE = "expire"
    REQUEST_CANCEL = "request_cancel"
    RESCHEDULE = "reschedule"
    MOVE = "move"
    AMEND = "amend"
    SET_ASIDE = "set_aside"
    BRING_BACK = "bring_back"
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
        Verb.RESOLVE: _moves({Status.WAITING: {Status.PENDING, Status.CANCELLED}}),
        Verb.HOLD: _moves({status: {Status.WAITING} for status in CLAIMABLE}),
        Verb.CLAIM: _moves({Status.PENDING: {Status.RUNNING}, Status.RETRYING: {Status.RUNNING}}),
        Verb.HEARTBEAT: _moves({Status.RUNNING: {Status.RUNNING}}),
        Verb.SETTLE: _moves({Status.RUNNING: {Status.PENDING, Status.RETRYING, Status.WAITING, *TERMINAL}}),
        Verb.REAP: _moves({Status.RUNNING: {Status.RETRYING, Status.DEAD_LETTERED, Status.CANCELLED}}),
        Verb.TOUCH_EXPIRED: _moves({Status.RUNNING: {Status.RUNNING}}),
        Verb.MEND: _moves({Status.RUNNING: {Status.RUNNING}}),
        Verb.SHORTEN_LEASES: _moves({Status.RUNNING: {Status.RUNNING}}),
        Verb.RELEASE: _moves({Status.RUNNING: {Status.PENDING, Status.CANCELLED}}),
        Verb.EXPIRE: _moves({Status.PENDING: {Status.CANCELLED}}),
        Verb.REQUEST_CANCEL: _moves(
            {
                Status.PENDING: {Status.CANCELLED},
                Status.RETRYING: {Status.CANCELLED},
                Status.WAITING: {Status.CANCELLED},
                Status.RUNNING: {Status.RUNNING},  # asked; its handler ends it
            }
        ),
        Verb.RESCHEDULE: _moves({status: {status} for status in CLAIMABLE}),
        Verb.MOVE: _moves({status: {status} for status in CLAIMABLE}),
        Verb.AMEND: _moves({status: {status} for status in (Status.WAITING, *CLAIMABLE)}),
        Verb.SET_ASIDE: _moves({status: {status} for status in CLAIMABLE}),
        Verb.BRING_BACK: _moves({status: {status} for status in CLAIMABLE}),
        Verb.RETRY: _moves({Status.DEAD_LETTERED: {Status.PENDING}}),
        Verb.PRUNE: _moves({status: {GONE} for status in TERMINAL}),
    }
)


def allows(verb: Verb, origin: Status, target: Status | None) -> bool:
    """Say whether ``verb`` may move a job from ``origin`` to ``target``."""
    return target in MOVES[verb].get(origin, frozenset())
