"""Eras, which are the partitions of the table of jobs.

Jobs that are not over and dead letters are in one, and the jobs that were completed or cancelled on one day in another.
The era of a day is its date as a number: 20261123.
"""

from __future__ import annotations

from datetime import date

HOT = 0
HOT_PARTITION = "pulse_django_job_hot"


def era_of(day: date) -> int:
    return day.year * 10_000 + day.month * 100 + day.day


def day_of(era: int) -> date | None:
    """Return the day of an era; None if it is none."""
    try:
        return date(era // 10_000, era // 100 % 100, era % 100)
    except ValueError:
        return None
