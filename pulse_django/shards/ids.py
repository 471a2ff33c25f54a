"""Set and check the shard number in the ids that a database gives."""

from __future__ import annotations

import time

from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections, models, transaction

from pulse_django.exceptions import NotInsideTransaction
from pulse_django.queue.database.dialects import Statements, statements_for
from pulse_django.queue.database.tables import models_with_tables
from pulse_django.queue.database.transactions import LOCK_NOT_AVAILABLE, is_in_callers_transaction, run_joined
from pulse_django.queue.words.job_ids import floor_of_ids, shard_number_of

# The sequences that give ids. The sequence of fencing tokens belongs to no column.
_SEQUENCES = """
SELECT pg_catalog.pg_get_serial_sequence(name, 'id'::text) FROM pg_catalog.unnest(%s::text[]) AS name
"""
# NULL: this role may not read the sequence.
_POSITION = """
SELECT CASE
    WHEN pg_catalog.has_sequence_privilege(%s::text, 'SELECT, USAGE'::text)
    THEN COALESCE(pg_catalog.pg_sequence_last_value(%s::regclass), 0)
END
"""
_OWNER = """
SELECT pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(relowner)) FROM pg_class WHERE oid = %s::regclass::oid
"""
_LOCK = "ALTER SEQUENCE {sequence} OWNER TO {owner}"
_RAISE = """
SELECT pg_catalog.setval(%s::regclass, GREATEST(
    %s::bigint, COALESCE(pg_catalog.pg_sequence_last_value(%s::regclass), 1)
))
"""
# Every client that takes a value waits for this lock.
_WAIT_BRIEFLY = "SET LOCAL lock_timeout = '500ms'"
TRIES, PAUSE = 20, 0.2  # seconds
IDS_OF_JOBS, IDS_OF_BATCHES = "pulse_django_job_id_seq", "pulse_django_batch_id_seq"
TOKENS = "pulse_django_token"  # fencing tokens


class Sequences(Statements):
    """The sequences of a database."""

    def tables_with_ids(self) -> list[str]:
        """Return the tables whose ids contain their shard."""
        return [one._meta.db_table for one in models_with_tables() if isinstance(one._meta.pk, models.AutoField)]

    def position(self, sequence: str) -> int:
        return known_position_of(self.alias, sequence) or 0

    def raise_to(self, sequence: str, floor: int) -> None:
        with transaction.atomic(using=self.alias), connections[self.alias].cursor() as cursor:
            cursor.execute(_WAIT_BRIEFLY)
            cursor.execute(_OWNER, [sequence])
            cursor.execute(_LOCK.format(sequence=sequence, owner=cursor.fetchone()[0]))
            cursor.execute(_RAISE, [sequence, floor, sequence])

    def problem(self) -> str:
        """Return why no number would help. Empty: a number is missing."""
        return ""

    def node(self) -> str:
        """Return the node of a cluster that has the tables. Empty: they are on this server."""
        return ""


def number_ids(alias: str, shard_number: int) -> list[str]:
    """Raise the sequences of a database, so that its ids begin with the number of its shard. Return those raised.

    It can be called again. It never lowers a sequence.
    """
    floor = floor_of_ids(shard_number)
    raised = []
    for (sequence,) in run_joined(alias, _SEQUENCES, [statements_for(Sequences, alias).tables_with_ids()]):
        if position_of(alias, sequence) < floor:
            raise_sequence(alias, sequence, floor)
            raised.append(sequence)
    return raised


def raise_sequence(alias: str, sequence: str, floor: int) -> None:
    """Raise a sequence, so that its next values are larger than ``floor``. Never lower it.

    ``setval()`` takes no lock, so a value that is taken meanwhile could be given twice. ``ALTER SEQUENCE`` with the
    same owner changes nothing, but locks the sequence. Only the owner may do so.
    """
    for tries_left in reversed(range(TRIES)):
        if position_of(alias, sequence) >= floor:
            return
        if is_in_callers_transaction(alias):  # it would keep the lock, and block every client that takes a value
            raise NotInsideTransaction(f"{sequence} cannot be raised inside a transaction: call this outside atomic().")
        try:
            statements_for(Sequences, alias).raise_to(sequence, floor)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", "") != LOCK_NOT_AVAILABLE or not tries_left:
                raise
            time.sleep(PAUSE)


def require_numbers(alias: str, shard_number: int) -> None:
    """Raise ImproperlyConfigured if new ids would not contain the number of their shard."""
    if problem := problem_with_numbers(alias, shard_number):
        raise ImproperlyConfigured(problem)


def problem_with_numbers(alias: str, shard_number: int) -> str:
    """Return why the ids of a database do not contain its shard number. Empty: they do, or this role cannot know."""
    position = known_position_of(alias, IDS_OF_JOBS)
    counted = shard_number if position is None else shard_number_of(position)
    if counted == shard_number:
        return ""
    if problem := statements_for(Sequences, alias).problem():
        return problem
    if counted > shard_number:
        return (
            f"The ids in database {alias!r} begin with shard number {counted}, but PULSE['SHARDS'] has "
            f"{shard_number}. Numbers cannot be lowered: set the number {counted}, or use another database"
        )
    return (
        f"The ids in database {alias!r} do not begin with its shard number {shard_number} yet. "
        f"Run: python manage.py migrate --database {alias}"
    )


def position_of(alias: str, sequence: str) -> int:
    """Return the last value of a sequence. 0: none yet, or this role may not read it."""
    return statements_for(Sequences, alias).position(sequence)


def known_position_of(alias: str, sequence: str) -> int | None:
    """Return the last value of a sequence. 0: none yet. None: this role may not read it."""
    found: int | None = run_joined(alias, _POSITION, [sequence, sequence])[0][0]
    return found
