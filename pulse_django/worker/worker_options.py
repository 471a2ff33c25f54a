"""The options of a worker. Settings are the defaults, and flags override them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pulse_django.conf import PulseSettings
from pulse_django.queue.words.job_options import QUEUE_NAME
from pulse_django.shards.placement import shards


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options, for every process of a worker."""

    name: str
    aliases: tuple[str, ...]  # of the shards
    processes: int
    concurrency: int  # handlers at a time in each process, for each executor
    queues: tuple[str, ...]  # empty: all
    shutdown_grace: float  # seconds for handlers after SIGTERM
    max_jobs: int  # runs until a process is replaced; 0: never
    max_rss_mib: int  # MiB until a process is replaced; 0: never
    burst: bool = False  # end when nothing is due
    watchdog: bool = True
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0  # for probes and metrics; 0: none

    def of_shard(self, alias: str) -> str:
        """Return the suffix for names of threads and connections: empty, unless there are several shards."""
        return f" {alias}" if len(self.aliases) > 1 else ""

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts about the worker for signals."""
        facts = {"name": self.name, "queues": self.queues or None, "processes": self.processes}
        return facts | {"concurrency": self.concurrency, "using": self.aliases}

    @classmethod
    def of(cls, settings: PulseSettings, name: str, flags: Mapping[str, Any]) -> WorkerOptions:
        """Combine settings and flags. None: the flag was not given. Raise ValueError for invalid values."""
        own = {one: getattr(settings, one) for one in ("processes", "concurrency", "queues", "max_jobs", "max_rss_mib")}
        options = cls(name=name, aliases=tuple(shards()), shutdown_grace=settings.shutdown_grace.total_seconds(), **own)
        known = {field.name for field in fields(cls)}
        given = {flag: value for flag, value in flags.items() if flag in known and value is not None}
        return replace(options, **given).checked()

    def checked(self) -> WorkerOptions:
        """Return the options if they are valid."""
        for queue in self.queues:
            QUEUE_NAME.check("queue", queue)
        for flag in ("processes", "concurrency"):
            if getattr(self, flag) < 1:
                raise ValueError(f"--{flag} must be at least 1")
        for flag in ("shutdown_grace", "max_jobs", "max_rss_mib"):
            if getattr(self, flag) < 0:
                raise ValueError(f"--{flag.replace('_', '-')} cannot be negative")
        if not 0 <= self.metrics_port <= 65_535:
            raise ValueError("--metrics-port must be a port from 1 to 65535, or 0 to disable")
        return self
