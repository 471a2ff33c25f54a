"""Harm that is done from inside of a worker's process: its threads end, its descriptors are used up, its log raises."""

from __future__ import annotations

import gc
import logging
import os
import resource
import threading
from contextlib import suppress
from typing import Any

from pulse_django import signals
from pulse_django.worker.child import Child
from pulse_django.worker.executors import processes
from pulse_django.worker.logs import LogWriter

THREADS = ("claims", "reports", "run-events", "log", "event-loop", "handler", "processes")  # of a child

_kept: list[int] = []


class Killed(BaseException):
    """What ends a thread. No code of the package expects it."""


class RaisingHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise SystemExit("a log handler raises")


def _dies(*_: Any, **__: Any) -> Any:
    raise Killed


def _dies_in(name: str, otherwise: Any) -> Any:
    """Raise in the thread of that name, once."""
    doomed = {name}

    def dies() -> Any:
        if threading.current_thread().name in doomed:
            doomed.clear()
            raise Killed
        return otherwise()

    return dies


def end_thread(name: str) -> None:
    """Have the thread of that name end at its next turn: not by its step, for a loop survives what that raises."""
    child = next(one for one in gc.get_objects() if isinstance(one, Child))
    log = next(one for one in gc.get_objects() if isinstance(one, LogWriter))
    targets = {
        "claims": (child._stopping, "is_set"),  # asked by others as well
        "reports": (child._finished, "is_set"),
        "run-events": (child._run_events, "run_once"),
        "log": (log, "run_once"),
        "event-loop": (child._executors.loop._loop, "_run_once"),
        "handler": (child._executors.threads, "_sleep"),
        "processes": (processes, "logger"),
    }
    target, attribute = targets[name]
    setattr(target, attribute, _dies_in(name, getattr(target, attribute)) if attribute == "is_set" else _dies)
    if name == "processes":
        child._executors.processes._turn = _dies  # type: ignore[method-assign]
        child._executors.processes._nudges.nudge()
    if name == "event-loop":
        child._executors.loop._loop.call_soon_threadsafe(int)


def leak_descriptors() -> None:
    """Use up all that this process may open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with suppress(OSError):
        while True:
            _kept.append(os.dup(0))


def raise_in_receivers_and_log() -> None:
    for name in ("job_started", "job_finished", "job_failed", "job_dead_lettered", "job_reaped", "worker_lost"):
        getattr(signals, name).connect(_exits, dispatch_uid="sabotage")
    logger = logging.getLogger("pulse_django")
    if not any(isinstance(handler, RaisingHandler) for handler in logger.handlers):
        logger.addHandler(RaisingHandler())


def _exits(**_: Any) -> None:
    raise SystemExit("a receiver exits")
