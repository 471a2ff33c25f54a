"""The row that a worker writes about itself with every heartbeat."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Sequence

import django
import psycopg

from pulse_django import __version__, conf
from pulse_django.queue.database.releases import PROJECT
from pulse_django.queue.database.workers import Presence
from pulse_django.queue.words.leases import MAX_HOST, Identity, printable
from pulse_django.run.registry import registry

from .channel import Message
from .children import ChildSlot
from .worker_options import WorkerOptions


def presence_of(
    identity: Identity, options: WorkerOptions, child_slots: Sequence[ChildSlot], vitals: Message
) -> Presence:
    held = [child.held() for child in child_slots]
    begun = [
        sum(one.begun for one in mine) + child.said.get("slots_beyond_leases", 0)
        for mine, child in zip(held, child_slots, strict=True)
    ]
    return Presence(
        name=identity.name,
        boot_id=identity.boot_id,
        host=printable(socket.gethostname(), MAX_HOST),
        pid=os.getpid(),
        versions={
            "pulse_django": __version__,
            "django": django.get_version(),
            "psycopg": psycopg.__version__,
            "python": platform.python_version(),
            **({PROJECT: conf.current().project_version} if conf.current().project_version else {}),
        },
        queues=options.queues,
        slots=options.processes * options.concurrency,
        # Ended runs that are not reported yet hold leases, too.
        in_flight=sum(max(0, min(options.concurrency, mine)) for mine in begun),
        stuck_slots=sum(child.stuck for child in child_slots),
        tasks=list(registry),
        vitals=vitals | {"prefetched": sum(not one.begun for mine in held for one in mine)},
    )
