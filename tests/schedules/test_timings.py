"""When schedules are due, above all on the days on which clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, product, takewhile

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pulse_django.exceptions import InvalidSchedule
from pulse_django.schedules.timings import Cron, Every, next_of, zone_of
from tests.faults import all_faults

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def of_day(expression: str, tz: str, day: str) -> list[str]:
    """Return the ticks of a local day, as local times with their offsets."""
    zone = zone_of(tz)
    begin = datetime.fromisoformat(day).replace(tzinfo=zone)
    found = Cron(expression, tz).ticks(begin.astimezone(UTC) - timedelta(seconds=1))
    local = (at.astimezone(zone) for at in found)
    return [f"{at:%H:%M%z}" for at in takewhile(lambda at: at.date() == begin.date(), local)]


# By hand, from the rules of the zones: in 2026 Berlin changes on 29 March and 25 October at 01:00 UTC, New York on 8
# March and 1 November at 02:00 local, Lord Howe by half an hour on 5 April (back) and 4 October (forward) at 02:00.
BY_HAND = [
    ("30 2 * * *", BERLIN, "2026-03-29", ["03:00+0200"]),
    ("30 2 * * *", BERLIN, "2026-10-25", ["02:30+0200"]),
    ("0 3 * * *", BERLIN, "2026-03-29", ["03:00+0200"]),
    ("0 3 * * *", BERLIN, "2026-10-25", ["03:00+0100"]),
    ("15,45 2 * * *", BERLIN, "2026-03-29", ["03:00+0200"]),
    ("*/30 2 * * *", BERLIN, "2026-03-29", []),
    ("*/30 2 * * *", BERLIN, "2026-10-25", ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"]),
    ("0 0 * * *", BERLIN, "2026-03-29", ["00:00+0100"]),
    ("30 2 * * *", NEW_YORK, "2026-03-08", ["03:00-0400"]),
    ("30 1 * * *", NEW_YORK, "2026-11-01", ["01:30-0400"]),
    ("59 1 * * *", NEW_YORK, "2026-03-08", ["01:59-0500"]),
    ("0 2 * * *", NEW_YORK, "2026-11-01", ["02:00-0500"]),
    ("15 2 * * *", LORD_HOWE, "2026-10-04", ["02:30+1100"]),
    ("45 1 * * *", LORD_HOWE, "2026-04-05", ["01:45+1100"]),
    ("30 1 * * *", LORD_HOWE, "2026-04-05", ["01:30+1100"]),
    ("0 2 * * *", LORD_HOWE, "2026-04-05", ["02:00+1030"]),
]


def test_days_on_which_clocks_change() -> None:
    with all_faults() as about:
        for expression, tz, day, expected in BY_HAND:
            with about(f"{expression} in {tz} on {day}"):
                assert of_day(expression, tz, day) == expected


HOURS_OF_DAYS = [
    (BERLIN, "2026-03-29", 23),
    (BERLIN, "2026-10-25", 25),
    (NEW_YORK, "2026-03-08", 23),
    (NEW_YORK, "2026-11-01", 25),
]


def test_what_is_due_each_hour_is_due_as_often_as_there_are_hours() -> None:
    with all_faults() as about:
        for tz, day, hours in HOURS_OF_DAYS:
            with about(f"{tz} on {day}"):
                assert len(of_day("0 * * * *", tz, day)) == hours
                assert len(of_day("*/15 * * * *", tz, day)) == 4 * hours


def test_what_begins_in_the_hour_that_comes_twice_does_not_go_back() -> None:
    begin = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 for the second time
    found = next_of(Cron("30 2 * * *", BERLIN), begin)
    assert found == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


EXPRESSIONS = ["30 2 * * *", "0 3 * * *", "15,45 2 * * *", "*/30 2 * * *", "0 * * * *", "*/10 * * * *", "30 1 * * *",
               "0 0 * * SUN", "5 1-3 * * *", "0 */2 * * *", "59 23 L * *", "1 2 25-31 3,10 *"]  # fmt: skip
CHANGES = [(BERLIN, "2026-03-28T20:00+00:00"), (BERLIN, "2026-10-24T20:00+00:00"),
           (NEW_YORK, "2026-03-08T02:00+00:00"), (NEW_YORK, "2026-11-01T02:00+00:00"),
           (LORD_HOWE, "2026-04-04T10:00+00:00"), (LORD_HOWE, "2026-10-03T10:00+00:00")]  # fmt: skip


def ticks_around(cron: Cron, change: datetime) -> list[datetime]:
    """Return the ticks of some weeks, read from long before the change."""
    return list(takewhile(lambda at: at < change + timedelta(days=45), cron.ticks(change - timedelta(days=3))))


def test_from_every_minute_of_a_change_the_next_tick_is_the_next_of_all_ticks() -> None:
    """Starting in the middle gives the same instants as starting long before."""
    with all_faults() as about:
        for expression, (tz, begin) in product(EXPRESSIONS, CHANGES):
            with about(f"{expression} in {tz} from {begin}"):
                cron, first = Cron(expression, tz), datetime.fromisoformat(begin)
                known = ticks_around(cron, first)
                assert known == sorted(set(known))
                for minute in range(0, 36 * 60, 13):
                    instant = first + timedelta(minutes=minute)
                    later = next((at for at in known if at > instant), None)
                    assert later is None or next_of(cron, instant) == later


def fields_match(expression: str, at: datetime) -> bool:
    """Read an expression of numbers and stars again, as plainly as can be."""
    minute, hour, day, month, weekday = expression.split()
    found = (at.minute, at.hour, at.day, at.month, at.isoweekday() % 7)
    in_fields = [
        field == "*" or (field.startswith("*/") and value % int(field[2:]) == 0) or field == str(value)
        for field, value in zip((minute, hour, day, month, weekday), found, strict=True)
    ]
    by_day = in_fields[2] and in_fields[4] if "*" in (day, weekday) else in_fields[2] or in_fields[4]
    return in_fields[0] and in_fields[1] and by_day and in_fields[3]


MINUTES = st.sampled_from(["*", "*/7", "0", "30", "59"])
HOURS = st.sampled_from(["*", "*/5", "0", "2", "23"])
DAYS = st.sampled_from(["*", "1", "28", "31"])
MONTHS = st.sampled_from(["*", "2", "3", "10"])
WEEKDAYS = st.sampled_from(["*", "0", "5"])


@settings(max_examples=60)
@given(
    expression=st.builds(lambda *fields: " ".join(fields), MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS),
    days=st.integers(0, 3_650),
    minutes=st.integers(0, 1_439),
)
def test_in_utc_the_ticks_are_the_minutes_that_match(expression: str, days: int, minutes: int) -> None:
    begin = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=days, minutes=minutes)
    assume(" 31 2 " not in expression)  # it is refused
    window = timedelta(days=1)
    minute = begin.replace(second=0, microsecond=0)
    naive = [minute + timedelta(minutes=n) for n in range(1, int(window.total_seconds() // 60))]
    expected = [at for at in naive if at > begin and fields_match(expression, at)]
    found = list(takewhile(lambda at: at <= naive[-1], Cron(expression).ticks(begin)))
    assert found == expected


class TestEvery:
    def test_it_counts_from_a_fixed_instant(self) -> None:
        every = Every(timedelta(minutes=15), phase=timedelta(minutes=2))
        found = list(islice(every.ticks(datetime(2026, 1, 1, 0, 1, tzinfo=UTC)), 3))
        assert [f"{at:%H:%M}" for at in found] == ["00:02", "00:17", "00:32"]

    def test_the_next_is_later_than_the_instant_itself(self) -> None:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        assert next_of(Every(timedelta(hours=1)), at) == at + timedelta(hours=1)

    def test_nonsense_is_refused(self) -> None:
        for bad in (timedelta(), timedelta(milliseconds=1), timedelta(days=10**6)):
            with pytest.raises(InvalidSchedule, match="every"):
                Every(bad)


def test_expressions_and_time_zones_that_cannot_be_are_refused() -> None:
    with all_faults() as about:
        for bad in ["", "* * * *", "61 * * * *", "a b c d e", "0 0 30 2 *", "* " * 300, "0 0 31 4 *", "@reboot"]:
            with about(repr(bad[:20])), pytest.raises(InvalidSchedule, match="cron"):
                Cron(bad)
        for bad in ["", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "Europe", "\0"]:
            with about(repr(bad)), pytest.raises(InvalidSchedule, match="tz"):
                Cron("0 3 * * *", bad)


def test_names_of_cron_are_expressions() -> None:
    with all_faults() as about:
        for name in ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"]:
            with about(name):
                assert len(Cron(name).expression.split()) == 5
    begin = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
    assert next_of(Cron("@daily"), begin) == datetime(2026, 1, 2, tzinfo=UTC)
    assert next_of(Cron("@weekly"), begin) == datetime(2026, 1, 4, tzinfo=UTC)  # a Sunday
    assert next_of(Cron("@hourly"), begin) == datetime(2026, 1, 1, 13, tzinfo=UTC)
