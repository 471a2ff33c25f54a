"""The choices of the filters beside the list. They cost two bounded queries for each page."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from django.http import HttpRequest

from pulse_django.console.dead_letters.groups import WALKED
from pulse_django.health.known_queues import KNOWN_NAMES
from pulse_django.pauses.statements import IS_OF_QUEUE
from pulse_django.queue.database.constraints import IS_CLAIMABLE
from pulse_django.queue.database.read_only import rows
from pulse_django.queue.database.sql_functions import loose_scan
from pulse_django.run.registry import registry
from pulse_django.shards.page import shard_of

MOST = 100  # of each kind; the address accepts other values too
MOST_TASKS = 200
MOST_GROUPS = 20
GROUPS_LOOKED_AT = 200  # one probe of the index each; of more groups, only the last by name

_WAITING = loose_scan(
    "waiting",
    "queue",
    where=IS_CLAIMABLE,
    order="queue, priority DESC",
    following=("queue::text > waiting.queue::text",),
    most="%(most)s",
)
_NAMES = f"""{_WAITING}
SELECT
    ARRAY(
        SELECT queue FROM waiting
        UNION
        (SELECT queue FROM pulse_django_pause WHERE {IS_OF_QUEUE} ORDER BY queue LIMIT %(most)s)
        UNION
        SELECT queue FROM pulse_django_job_hot WHERE status::text = 'RUNNING'
        UNION
        {KNOWN_NAMES}
        ORDER BY 1
        LIMIT %(most)s
    ),
    ARRAY(
        SELECT DISTINCT key
        FROM pulse_django_worker
        CROSS JOIN LATERAL pg_catalog.jsonb_array_elements_text(tasks) AS said (key)
        WHERE stopped_at IS NULL AND pg_catalog.jsonb_typeof(tasks) = 'array'
        ORDER BY key
        LIMIT %(most_tasks)s
    ),
    ARRAY(
        SELECT name::text || ':' || boot_id::text
        FROM pulse_django_worker
        WHERE stopped_at IS NULL
        ORDER BY name, boot_id
        LIMIT %(most)s
    )
"""  # noqa: S608 - made of constants

_GROUPS = f"{WALKED}\nSELECT fingerprint FROM walked ORDER BY finished_at DESC LIMIT %(most)s"


class Names(NamedTuple):
    queues: list[str]  # with live jobs, dead letters or recent traffic, and paused queues
    tasks: list[str]  # of live workers
    workers: list[str]  # that have not stopped, in the form in which holders begin


class Sidebar:
    """The choices of all filters of a page, read once."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    @cached_property
    def names(self) -> Names:
        return Names(*rows(self._alias, _NAMES, {"most": MOST, "most_tasks": MOST_TASKS})[0])

    @cached_property
    def tasks(self) -> list[str]:
        with suppress(Exception):  # the page must open even if a module of the project cannot be imported
            registry.discover()
        return sorted({*registry, *self.names.tasks})[:MOST_TASKS]

    @cached_property
    def groups(self) -> list[str]:
        """Return the fingerprints of the latest errors of dead letters."""
        params = {"most_groups": GROUPS_LOOKED_AT, "most": MOST_GROUPS}
        return [fingerprint for (fingerprint,) in rows(self._alias, _GROUPS, params)]


def sidebar_of(request: HttpRequest) -> Sidebar:
    """Return the sidebar of this request."""
    sidebar: Sidebar = request.__dict__.setdefault("_pulse_sidebar", Sidebar(shard_of(request, reads=True)))
    return sidebar
