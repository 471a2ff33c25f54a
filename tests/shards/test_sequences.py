"""A sequence that is raised while others take values from it gives none of them twice."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from pulse_django.shards.ids import TOKENS, position_of, raise_sequence
from tests.factories import PauseFactory
from tests.queue.steps import sql
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("pulse_db")
# Where claims take them: on Citus from the node that has the table.
TAKE_ONE = f"SELECT nextval('{TOKENS}') FROM pulse_django_pause"
TAKE = f"{TAKE_ONE} CROSS JOIN generate_series(1, 20)"
RAISES = 150


@pytest.fixture(autouse=True)
def _one_queue(pulse_db: None) -> None:
    PauseFactory()


@pytest.mark.one_server("a node takes its values alone: test_citus_nodes shows that they rise")
def test_it_is_never_lowered() -> None:
    before = position_of("default", TOKENS)
    raise_sequence("default", TOKENS, before + 1_000)
    raise_sequence("default", TOKENS, before + 10)
    assert sql(TAKE_ONE) == [(before + 1_001,)]


def test_no_value_is_given_twice() -> None:
    over = threading.Event()

    def take() -> list[int]:
        taken: list[int] = []
        while not over.is_set():
            taken += [value for (value,) in sql(TAKE)]
        connection.close()
        return taken

    with ThreadPoolExecutor(2) as takers:
        taking = [takers.submit(take) for _ in range(2)]
        try:
            for _ in range(RAISES):
                floor = position_of("default", TOKENS) + 3
                raise_sequence("default", TOKENS, floor)
                assert position_of("default", TOKENS) >= floor
        finally:
            over.set()
    taken = [value for one in taking for value in one.result()]
    assert len(taken) > RAISES
    assert len(set(taken)) == len(taken)


@pytest.mark.one_server("the rival holds a lock of its node, which is not seen here")
def test_it_waits_for_those_who_have_taken_a_value(rival: Rival) -> None:
    """Their values may not be seen by anybody yet."""
    floor = position_of("default", TOKENS) + 1_000
    rival.begin()
    rival.run(sql, TAKE_ONE)
    holder = rival.pid
    with ThreadPoolExecutor(1) as thread:

        def raise_it() -> None:
            raise_sequence("default", TOKENS, floor)
            connection.close()

        raising = thread.submit(raise_it)
        rival.wait_until_blocked(holder)
        assert position_of("default", TOKENS) < floor
        rival.rollback()
        raising.result(20)
    assert position_of("default", TOKENS) == floor
