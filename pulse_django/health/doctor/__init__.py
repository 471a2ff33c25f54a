"""The advice of ``pulse_check --advice`` on a database and its settings: facts, reasons and actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.db import DatabaseError

from pulse_django import conf
from pulse_django.queue.database.tables import problem_with_tables
from pulse_django.queue.words.payloads import error_in_one_line

from .advice import Advice as Advice
from .advice import Level as Level
from .advice import unknown, warning
from .citus import on_citus
from .connections import on_connections
from .fleet import on_the_fleet, on_timing
from .tables import on_the_tables

Examiner = Callable[[str, conf.PulseSettings], Iterator[Advice]]
EXAMINERS: tuple[Examiner, ...] = (on_timing, on_the_fleet, on_connections, on_the_tables, on_citus)


def examine(alias: str) -> list[Advice]:
    """Read the database and the settings. Nothing is changed, and no table of jobs is scanned."""
    if problem := problem_with_tables(alias):
        why = "Pulse cannot run without its tables."
        return [warning("tables", problem, why, "Run manage.py migrate.")]
    return [advice for examiner in EXAMINERS for advice in _careful(examiner, alias)]


def _careful(examiner: Examiner, alias: str) -> Iterator[Advice]:
    try:
        yield from examiner(alias, conf.current())
    except DatabaseError as error:
        yield unknown(
            examiner.__name__.removeprefix("on_").removeprefix("the_"),
            f"could not be checked: {error_in_one_line(error)}",
            "The role lacks permission, or the server has a problem.",
            "Run the command as the owner of the tables, or grant the role pg_read_all_stats.",
        )
