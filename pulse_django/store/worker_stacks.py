"""Where a handler of a live worker is: an operator asks in the worker's row, and the worker answers there.

It reads the question with its next heartbeat, so no connection to its host is needed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import BooleanField, ExpressionWrapper, Q, Value
from django.db.models.expressions import Combinable

from .sql_functions import StatementTimestamp

# A question is forgotten after the first: whoever asked has gone, or the worker has. An answer is kept for the second.
ASKED_FOR, SHOWN_FOR = timedelta(minutes=2), timedelta(minutes=10)
_IS_ASKED = f"noted.stack_asked_at > statement_timestamp() - interval '{ASKED_FOR.seconds} s'"
WANTED = f"CASE WHEN {_IS_ASKED} THEN noted.stack_wanted END"

ASK = """
WITH live AS MATERIALIZED (
    SELECT id FROM pulse_django_worker
    WHERE name::text = %s AND boot_id::text = %s AND stopped_at IS NULL
    FOR NO KEY UPDATE
),
asked AS MATERIALIZED (
    SELECT id, statement_timestamp() AS now FROM live
)
UPDATE pulse_django_worker AS worker
SET stack_wanted = %s, stack_asked_at = asked.now
FROM asked
WHERE worker.id = asked.id
RETURNING worker.id
"""

ANSWER = """
WITH mine AS MATERIALIZED (
    SELECT id FROM pulse_django_worker WHERE name::text = %s AND boot_id::text = %s FOR NO KEY UPDATE
),
taken AS MATERIALIZED (
    SELECT id, statement_timestamp() AS now FROM mine
)
UPDATE pulse_django_worker AS worker
SET stack_wanted = NULL, stack_of = %s, stack = %s, stack_at = taken.now
FROM taken
WHERE worker.id = taken.id
RETURNING worker.id
"""

FORGET_STACKS = f"""
UPDATE pulse_django_worker
SET stack = '', stack_of = NULL, stack_at = NULL
WHERE stack_at < statement_timestamp() - interval '{SHOWN_FOR.seconds} s'
RETURNING id
"""  # noqa: S608 - made of constants


def is_asked() -> ExpressionWrapper[Any]:
    """Return whether the question of a row still stands."""
    return _since("stack_asked_at", ASKED_FOR)


def is_shown() -> ExpressionWrapper[Any]:
    """Return whether the answer of a row is young enough to be shown."""
    return _since("stack_at", SHOWN_FOR)


def _since(column: str, age: timedelta) -> ExpressionWrapper[Any]:
    earliest: Combinable = StatementTimestamp() - Value(age)
    return ExpressionWrapper(Q(**{f"{column}__gt": earliest}), output_field=BooleanField())
