"""One watchdog of a fleet gets a duty in an interval, and no other waits for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from pulse_django.models import Duty
from tests.database import empty_tables
from tests.faults import all_faults
from tests.queue.steps import sql
from tests.rival import Rival

EVERY = {"sweep": 10.0, "housekeeping": 60.0}

pytestmark = pytest.mark.usefixtures("pulse_db")


def taken() -> set[str]:
    return set(Duty.objects.take(EVERY).taken)


def age(name: str, seconds: float) -> None:
    at = "statement_timestamp() - %s * interval '1 s'"
    sql(f"UPDATE pulse_django_duty SET taken_at = {at}, done_at = {at} WHERE name = %s", seconds, seconds, name)


def test_what_was_taken_and_not_done_is_known_to_the_next() -> None:
    taken()
    age("sweep", 11)
    assert Duty.objects.take(EVERY).unfinished == set()
    assert Duty.objects.take(EVERY).unfinished == {"sweep"}, "it is being done"
    Duty.objects.done(["sweep"])
    assert Duty.objects.take(EVERY).unfinished == set()


def test_the_first_gets_all_and_each_is_due_again_after_its_own_interval() -> None:
    assert taken() == {"sweep", "housekeeping"}
    assert taken() == set()
    age("sweep", 9)
    age("housekeeping", 59)
    assert taken() == set()
    age("sweep", 11)
    assert taken() == {"sweep"}
    age("housekeeping", 61)
    assert taken() == {"housekeeping"}
    age("sweep", -3_600)  # in the future: of before the clock was set back
    assert taken() == {"sweep"}
    assert taken() == set()


def test_one_that_is_being_taken_is_left_and_not_waited_for(rival: Rival) -> None:
    taken()
    age("sweep", 11)
    rival.begin()
    rival.lock_duties()
    sql("SET lock_timeout = '2s'")
    turn = Duty.objects.take(EVERY)
    assert (turn.taken, turn.overdue) == (set(), set())
    age_unseen = EVERY | {"sweep": 2.0}
    assert Duty.objects.take(age_unseen).overdue == {"sweep"}, "nobody could take it for four intervals"
    sql("RESET lock_timeout")
    rival.rollback()
    assert taken() == {"sweep"}


def test_of_many_at_once_one_gets_it() -> None:

    def ask(_: int) -> set[str]:
        try:
            return taken()
        finally:
            connection.close()

    with all_faults() as about:
        for begins_empty in [True, False]:
            with about(begins_empty):
                empty_tables()
                with ThreadPoolExecutor(8) as pool:
                    for _ in range(20):
                        if begins_empty:
                            sql("DELETE FROM pulse_django_duty")
                        else:
                            sql(
                                "INSERT INTO pulse_django_duty VALUES ('sweep', '1900-01-01', '1900-01-01')"
                                " ON CONFLICT DO NOTHING"
                            )
                            sql("UPDATE pulse_django_duty SET taken_at = '1900-01-01'")
                        got = list(pool.map(ask, range(8)))
                        assert sum("sweep" in one for one in got) == 1, got
