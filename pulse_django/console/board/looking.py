"""One look at a shard for the board: what is there now, and the lines of the last hours."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import OperationalError

from pulse_django.health import snapshot
from pulse_django.health.snapshot import Health
from pulse_django.metrics import history
from pulse_django.metrics.history import History
from pulse_django.models import Job
from pulse_django.queue.database.read_only import briefly, is_lost
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.shards.fleet import MOST_COUNTED

TIMEOUT = "5s"  # of one statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    health: Health
    past: History
    error: str = ""  # why nothing could be read
    dead: str = ""  # how many dead letters there are, where it was asked


def look(alias: str, *, counts_dead: bool = False) -> Seen:
    """Read a few queries, whatever the number of jobs. A locked table is not waited for."""
    try:
        with briefly(alias, TIMEOUT):
            dead = _dead_letters(alias) if counts_dead else ""
            return Seen(health=snapshot.glance(alias), past=history.read(alias), dead=dead)
    except OperationalError as refused:
        if is_lost(alias):
            raise
        return Seen(health=snapshot.NOTHING, past=history.NOTHING, error=error_in_one_line(refused))


def _dead_letters(alias: str) -> str:
    # In the order of their index: a LIMIT alone may be answered from the table, whatever has to be skipped there.
    dead = Job.objects.using(alias).dead_letters().order_by("finished_at", "id")
    count = dead.values("pk")[: MOST_COUNTED + 1].count()
    return f"{MOST_COUNTED}+" if count > MOST_COUNTED else str(count)
