"""Who serves a queue: its live workers, and the command that starts one where there is none."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Q

from pulse_django import conf
from pulse_django.console.shards import Shards
from pulse_django.models import Worker
from pulse_django.store.sql_functions import StatementTimestamp

MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    workers: Sequence[Worker]
    more: bool  # than are named
    missing_in: Sequence[str]  # shards in which no worker serves it; of a single shard, its alias
    command: str  # starts a worker for it


def serving(name: str, everywhere: Shards) -> Serving:
    """Return the live workers of a queue."""

    def live(alias: str) -> list[Worker]:
        heard = StatementTimestamp() - conf.current().worker_silence
        serves = Q(queues=[]) | Q(queues__contains=[name])
        rows = Worker.objects.using(alias).filter(serves, stopped_at=None, last_beat_at__gt=heard)
        return list(rows.only("id", "name", "boot_id").order_by("name", "boot_id")[: MOST_NAMED + 1])

    found = everywhere.ask(live)
    once = {(one.name, one.boot_id): one for workers in found.values() for one in workers}
    workers = sorted(once.values(), key=lambda one: (one.name, one.boot_id))
    return Serving(
        workers=workers[:MOST_NAMED],
        more=len(workers) > MOST_NAMED,
        missing_in=[alias for alias, served in found.items() if not served],
        command=_command_for(name),
    )


def _command_for(name: str) -> str:
    if "," in name or name != name.strip():  # a worker for all queues serves it
        return "python manage.py pulse_worker"
    return f"python manage.py pulse_worker --queues={shlex.quote(name)}"
