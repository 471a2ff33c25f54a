"""Helpers that several verbs share: compiled queries, and the spelling of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, TypeVar

from django.db import DataError, Error, IntegrityError, OperationalError, connections, transaction

from pulse_django.safe_logging import SafeLogger

from .database.database_errors import is_timeout
from .database.transactions import hurried, renew_deadline
from .words.bounds import MAX_DELAY
from .words.durations import WANTED
from .words.leases import Lease
from .words.payloads import error_in_one_line
from .words.states import HOT_PARTITION, Status

T = TypeVar("T")
R = TypeVar("R")

logger = SafeLogger(__name__)

# To find one row among a thousand takes thirteen. More show that the database is slow for all of them. Short attempts
# count as well: if only full ones did, a call could make hundreds of them.
MOST_TIMEOUTS = 24
BARE = 3  # tries of a single row: one with a short time, two with the full time, and this one

UNSTORABLE = (DataError, IntegrityError)  # errors that one bad value raises for its whole statement

_STATUSES = frozenset(str(status) for status in Status)

Compiled = tuple[str, tuple[Any, ...]]  # SQL and its parameters


def skip_locked(rows: Any, *, no_key: bool = True) -> Any:
    return rows.select_for_update(skip_locked=True, of=("self",), no_key=no_key)


def compiled(rows: Any, alias: str, *, everywhere: bool = False) -> Compiled:
    """Compile a query on the hot partition, or ``everywhere`` on all partitions.

    Statuses are written into the SQL: with a parameter, a prepared statement could not use the partial indexes.
    """
    # Django compiles select_for_update() only inside a transaction. This one costs nothing: psycopg sends BEGIN
    # together with the first statement, and none is sent.
    with transaction.atomic(using=alias, savepoint=False):
        sql, params = rows.query.get_compiler(connection=connections[alias]).as_sql()
    table = "pulse_django_job" if everywhere else HOT_PARTITION
    begin, *rest = sql.replace('"pulse_django_job"', f'"{table}"').split("%s")
    others = []
    for value, following in zip(params, rest, strict=True):
        if isinstance(value, str) and value in _STATUSES:
            begin += f"'{value}'{following}"
        else:
            begin += f"%s{following}"
            others.append(value)
    return begin, tuple(others)


def keys_of(lease: Lease) -> dict[str, Any]:
    return {"id": lease.job_id, "holder": lease.holder, "attempt": lease.attempt}


def in_halves(
    alias: str,
    send: Callable[[Sequence[T], bool], list[R]],
    *parts: Sequence[T],
    go_on: Callable[[], object] = lambda: None,
    timeouts: int = 0,
    found: list[R] | None = None,
) -> list[R]:
    """Send a statement about each part. If it is refused or times out, send it about each half of that part, and so on.

    ``send`` handles a single row that is refused. One that times out waits until all others were sent. It is sent twice
    with the full time, and then bare: without the notes that may fail, such as its hook. ``go_on`` is called after each
    timeout, and raises if the database is slow for all rows. Other rows are sent before an error is raised. Answers are
    added to ``found``, which has those before an error, too. ``timeouts``: so many came before.
    """
    waiting, found = [(part, 0) for part in reversed(parts) if part], [] if found is None else found
    refused: Error | None = None
    while waiting:
        some, tries = waiting.pop()
        # One row may make it slow. Until all others are sent, each attempt keeps their leases from being extended.
        is_short = timeouts > 0 and not tries
        try:
            with hurried(alias) if is_short else nullcontext():
                found += send(some, tries == BARE)
        except (OperationalError, *UNSTORABLE) as error:
            half, is_slow = len(some) // 2, is_timeout(error)
            timeouts += is_slow
            is_of_all = isinstance(error, OperationalError) and not is_slow
            if is_of_all or timeouts == MOST_TIMEOUTS or connections[alias].in_atomic_block:
                raise
            logger.warning(
                "Ending %d runs%s failed: %s", len(some), " bare" * (tries == BARE), error_in_one_line(error)
            )
            renew_deadline(alias)
            if is_slow:
                go_on()
            if half:
                waiting += [(some[half:], 0), (some[:half], 0)]
            elif is_slow and tries < BARE:
                waiting.insert(0, (some, 1 if is_short else max(tries, 1) + 1))
            else:
                refused = error
        if timeouts or waiting:
            renew_deadline(alias)  # for the next statement, here or of the caller
    if refused is not None:
        raise refused
    return found


def array(elements: Iterable[str]) -> str:
    return f"{{{','.join(elements)}}}"


def quoted(text: str) -> str:
    """Quote an element of an array for PostgreSQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def check_delay(delay: timedelta) -> None:
    if not isinstance(delay, timedelta):
        raise TypeError(f"delay: {delay!r} is not {WANTED}")
    if not timedelta() <= delay <= MAX_DELAY:
        raise ValueError(f"{delay} is not between 0 and {MAX_DELAY.days} days")


def check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit: {limit} is less than one")
