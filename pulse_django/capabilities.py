"""The installed capabilities, in the order in which verbs, workers and watchdogs use them."""

from __future__ import annotations

from .amendments import amending
from .chunks import gatherer as chunking
from .citus import dialect as citus
from .encryption import values as encryption
from .expiry import expire
from .health import unknown_tasks
from .limits import claiming
from .metrics import minute_recorder
from .on_dead import hooks
from .pauses import pausing as pauses
from .queue import capability
from .schedules import loop
from .sql_enqueue import loop as sql_enqueue
from .unique import keys as unique_keys
from .workflows import sweeps

_INSTALLED = (
    expire.CAPABILITY,
    unique_keys.CAPABILITY,
    amending.CAPABILITY,
    encryption.CAPABILITY,
    pauses.CAPABILITY,
    claiming.CAPABILITY,
    chunking.CAPABILITY,
    hooks.CAPABILITY,
    loop.CAPABILITY,
    sql_enqueue.CAPABILITY,
    minute_recorder.CAPABILITY,
    unknown_tasks.CAPABILITY,
    sweeps.CAPABILITY,
    citus.CAPABILITY,
)


def install() -> None:
    capability.install(*_INSTALLED)
