"""Pause a queue in all of its shards, and resume it."""

from __future__ import annotations

from datetime import timedelta

from pulse_django.models import Queue

from .databases import aliases_of_jobs
from .notify import wake_workers


def pause_queue(name: str, *, for_: timedelta | None = None, reason: str = "", using: str | None = None) -> None:
    """Start no job of a queue, for a time or until it is resumed. It holds from the next claim on. Runs go on.

    Pausing it again replaces the reason and the end. In every shard, unless ``using`` names one.
    """
    for alias in aliases_of_jobs(using):
        Queue.objects.db_manager(alias).pause(name, reason=reason, lasting=for_)


def resume_queue(name: str, *, using: str | None = None) -> bool:
    """Let jobs of a queue start again. Return whether it was paused."""
    was_paused = False
    for alias in aliases_of_jobs(using):
        if Queue.objects.db_manager(alias).resume(name):
            was_paused = True
            wake_workers(alias, [name])
    return was_paused
