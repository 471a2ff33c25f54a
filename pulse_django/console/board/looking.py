"""Read the present state and the last hours of one shard, for the board."""

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
    dead: str = ""  # the number of dead letters, if it was requested


def look(alias: str, *, counts_dead: bool = False) -> Seen:
    """Run a few queries, independent of the number of jobs. Do not wait for a locked table."""
    try:
        with briefly(alias, TIMEOUT):
            dead = _dead_letters(alias) if counts_dead else ""
            return Seen(health=snapshot.glance(alias), past=history.read(alias), dead=dead)
    except OperationalError as refused:
        if is_lost(alias):
            raise
        return Seen(health=snapshot.NOTHING, past=history.NOTHING, error=error_in_one_line(refused))


def _dead_letters(alias: str) -> str:
    # Ordered by their index: a LIMIT alone may be answered by a scan of the table.
    dead = Job.objects.using(alias).dead_letters().order_by("finished_at", "id")
    count = dead.values("pk")[: MOST_COUNTED + 1].count()
    return f"{MOST_COUNTED}+" if count > MOST_COUNTED else str(count)
