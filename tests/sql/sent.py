"""Tell which statements this process sends, and fail what sends one that no file has.

The files have each statement of `queue/` and of the verbs of rooms, and whatever else writes or locks rows of our
tables. Not in them is what tests send themselves, what Django sends for its own tables, and the questions of pages and
commands: these are built from what an operator chooses, and have no end.

Hooked in where psycopg gets a statement, so that prepared statements and COPY are seen as well. What worker processes
send is not seen: they run in processes of their own, and call the same verbs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import django
import psycopg

from tests.citus import is_on_citus
from tests.floors import holds_a_verb

from .differences import OF_CITUS, digest_of
from .layout import key_of, laid_out, statements

FOLDER = Path(__file__).parent
WRITES = "PULSE_WRITE_SQL" in os.environ  # make sql
# Django's querysets are compiled in other words by another Django, so the files are compared with this one only.
MADE_WITH = (6, 1)

_TESTS = ("tests.", "testproject.", "pulse_django.testing.", "pulse_django.migrations.")
_CHANGES_OURS = re.compile(r"(?=.*\bpulse_django_)(?:.*\b(?:INSERT|UPDATE|DELETE|COPY|FOR SHARE)\b)", re.DOTALL)
# The module that calls one of these counts as the sender.
_BELOW = {
    "pulse_django.queue.ending",
    "pulse_django.citus.one_task",
    "pulse_django.queue.statements",
    "pulse_django.queue.database.prepared_statements",
    "pulse_django.queue.database.read_only",
    "pulse_django.queue.database.rules",
    "pulse_django.queue.database.transactions",
    "pulse_django.worker.guarded_connection",
}
# Around a statement: transactions, settings, what is prepared already, who answers, and the lock of a sequence.
_AROUND = re.compile(
    r"(?:SELECT set_config|SELECT pg_catalog\.pg_backend_pid|"
    r"ALTER|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET|RESET|EXECUTE|DEALLOCATE|FETCH|CLOSE)\b"
)
_DIGEST = re.compile(r"^-- .*: ([0-9a-f]{8})$", re.MULTILINE)
_BEFORE = re.compile(
    r"\s*(?:PREPARE \w+ AS|DECLARE .*? FOR)\s|, pg_catalog\.set_config\('synchronous_commit', 'on', true\)$", re.DOTALL
)


class Sent(NamedTuple):
    """A statement, and the module and the function of ours that sent it."""

    module: str
    function: str
    line: int
    statement: str

    @property
    def path(self) -> Path:
        """Return the file that has it: a verb's own, or one in the folder of its floor."""
        return FOLDER / (self.module.removeprefix("pulse_django.").removeprefix("queue.").replace(".", "/") + ".sql")


def is_comparable() -> bool:
    """Whether the files have what this run sends. A cluster of Citus is sent what ``citus/drive.py`` sends here."""
    return django.VERSION[:2] == MADE_WITH and not is_on_citus()


@contextmanager
def recording(keep: Callable[[Sent], object]) -> Iterator[None]:
    """Call ``keep`` with each statement that belongs into a file, once for each text that is sent."""
    known: set[str] = set()

    def look(query: Any) -> None:
        text = query if isinstance(query, str) else query.decode() if isinstance(query, bytes) else query.as_string()
        if text in known or (sender := _sender()) is None:
            return
        known.add(text)
        for statement in statements(_BEFORE.sub("", text)):
            if not _AROUND.match(statement) and (
                holds_a_verb(sender[0].removeprefix("pulse_django.")) or _CHANGES_OURS.match(statement)
            ):
                keep(Sent(*sender, statement))

    def hooked(original: Any) -> Any:
        def call(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
            look(query)
            return original(self, query, *args, **kwargs)

        return call

    with ExitStack() as stack:
        for kind, name in ((psycopg.Cursor, "execute"), (psycopg.Cursor, "copy"), (psycopg.ServerCursor, "execute")):
            stack.enter_context(mock.patch.object(kind, name, hooked(getattr(kind, name))))
        yield


def _sender() -> tuple[str, str, int] | None:
    """Return the nearest module of ours on the stack, and its function that was called from outside."""
    frame, sender = sys._getframe(3), None
    while frame is not None:
        name: str = frame.f_globals.get("__name__", "")
        if sender is None and name.startswith(_TESTS):
            return None
        if name.startswith("pulse_django.") and name not in _BELOW:
            if sender is not None and name != sender[0]:
                break
            sender = name, frame.f_code.co_qualname.partition(".<locals>")[0], frame.f_code.co_firstlineno
        elif sender is not None and name not in _BELOW:
            break
        frame = frame.f_back  # type: ignore[assignment]  # the last has none
    return sender


class Unknown(dict[str, str]):
    """Statements that no file has, and where each was sent from."""

    def keep(self, sent: Sent) -> None:
        if key_of(sent.statement) not in known_keys() and digest_of(sent.statement) not in known_digests():
            self[laid_out(sent.statement)] = f"{sent.module}.{sent.function}()"

    def told(self) -> str:
        """Return what is to be done about them, and forget them."""
        text = "\n\n".join(
            f"{sender} sent a statement that no file of tests/sql has:\n{one}" for one, sender in self.items()
        )
        self.clear()
        return text


@cache
def known_keys() -> frozenset[str]:
    return frozenset(key_of(one) for path in FOLDER.rglob("*.sql") for one in statements(path.read_text()))


@cache
def known_digests() -> frozenset[str]:
    return frozenset(found for path in OF_CITUS.rglob("*.sql") for found in _DIGEST.findall(path.read_text()))
