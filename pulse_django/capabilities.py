"""The capabilities that are installed, in the order in which verbs, workers and watchdogs ask them."""

from __future__ import annotations

from .execution import amending, encryption, pauses, unique_keys
from .fleet import unknown_tasks
from .limits import claiming
from .metrics import minute_recorder
from .protocol import expire
from .schedules import loop
from .store import capability
from .worker import chunking
from .workflows import sweeps


def install() -> None:
    capability.install(
        expire.CAPABILITY,
        unique_keys.CAPABILITY,
        amending.CAPABILITY,
        encryption.CAPABILITY,
        pauses.CAPABILITY,
        claiming.CAPABILITY,
        chunking.CAPABILITY,
        loop.CAPABILITY,
        minute_recorder.CAPABILITY,
        unknown_tasks.CAPABILITY,
        sweeps.CAPABILITY,
    )
