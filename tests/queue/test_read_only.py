"""What reads of operators and probes travel with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import pytest
from django.db import connection, transaction

from pulse_django.queue.database.read_only import briefly, read_only

pytestmark = pytest.mark.django_db(transaction=True)


def setting(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        return str(cursor.fetchone()[0])


@pytest.mark.parametrize("reading", [read_only, partial(briefly, timeout="5s")], ids=["read_only", "briefly"])
def test_a_read_is_bounded_and_not_compiled(reading: Callable[[str], AbstractContextManager[None]]) -> None:
    """The server's compiler takes seconds for long statements, which run in milliseconds."""
    names = ("transaction_read_only", "jit", "lock_timeout")
    before = [setting(name) for name in names]
    with reading("default"):
        assert [setting(name) for name in names] == ["on", "off", "1s"]
        assert setting("statement_timeout") in ("5s", "15s")
    assert [setting(name) for name in names] == before


def test_a_callers_transaction_gets_its_settings_back(pulse_db: None) -> None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL jit = on")
        with briefly("default", "5s"):
            assert setting("jit") == "off"
        assert (setting("jit"), setting("transaction_read_only")) == ("on", "off")
