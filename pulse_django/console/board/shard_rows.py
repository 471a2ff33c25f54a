"""The board's table of shards: a row for each, whether it answers or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.utils.translation import gettext

from pulse_django import conf
from pulse_django.console.shards import Shards
from pulse_django.execution.placement import shards
from pulse_django.fleet import history
from pulse_django.fleet.shards import MOST_COUNTED, FleetVerdict
from pulse_django.fleet.snapshot import Health
from pulse_django.models import Job
from pulse_django.words.states import Status
from pulse_django.words.vital_signs import JOBS_ENQUEUED

from .looking import Seen
from .sparkline import rate_in_words


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRow:
    """What is not known is an empty str."""

    alias: str
    number: str
    verdict: str
    is_well: bool
    waiting: str = ""
    running: str = ""
    dead: str = ""
    rate_in: str = ""
    rate_completed: str = ""
    workers: str = ""


def rows_of(everywhere: Shards, verdict: FleetVerdict, seen: Mapping[str, Seen]) -> list[ShardRow]:
    """Return a row for each shard."""
    dead = everywhere.ask(_dead_letters)
    rows = []
    for alias in everywhere.aliases:
        number = str(shards()[alias])
        one = seen.get(alias)
        if one is None or alias in everywhere.away:
            rows.append(ShardRow(alias=alias, number=number, verdict=gettext("does not respond"), is_well=False))
        elif one.error:
            rows.append(ShardRow(alias=alias, number=number, verdict=one.error, is_well=False))
        else:
            rows.append(_row(alias, number, verdict, one, dead.get(alias, "")))
    return rows


def _row(alias: str, number: str, verdict: FleetVerdict, one: Seen, dead: str) -> ShardRow:
    said = verdict.by_shard[alias]
    names = ", ".join(finding.condition.name for finding in said.found)
    silence = conf.current().worker_silence
    return ShardRow(
        alias=alias,
        number=number,
        verdict=names or gettext("No problems"),
        is_well=said.is_well,
        waiting=_waiting(one.health),
        running=str(sum(queue.running for queue in one.health.queues)),
        dead=dead,
        rate_in=rate_in_words(one.past.rate(history.counted(JOBS_ENQUEUED))),
        rate_completed=rate_in_words(one.past.rate(history.ended_as(Status.COMPLETED))),
        workers=str(sum(worker.is_alive(silence) for worker in one.health.workers)),
    )


def _waiting(health: Health) -> str:
    more = "+" if any(queue.is_more for queue in health.queues) else ""
    return f"{sum(queue.due + queue.later for queue in health.queues)}{more}"


def _dead_letters(alias: str) -> str:
    # In the order of their index: a LIMIT alone may be answered from the table, whatever has to be skipped there.
    dead = Job.objects.using(alias).dead_letters().order_by("finished_at", "id")
    count = dead.values("pk")[: MOST_COUNTED + 1].count()
    return f"{MOST_COUNTED}+" if count > MOST_COUNTED else str(count)
