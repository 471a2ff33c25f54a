"""Receivers of the signals of a worker, which write down what they heard. Load them by ``PULSE["TASK_MODULES"]``."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from pulse_django import signals
from pulse_django.models import Job
from tests.worker.handlers import trace

SIGNALS = ("child_started", "worker_ready", "worker_stopping")


def exits(**_: Any) -> None:
    sys.exit("a receiver exits")


def listen(name: str) -> None:
    def heard(sender: type, signal: Any, **facts: Any) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        claims = [one.name for one in threading.enumerate() if one.name.startswith("claims")]
        jobs = Job.objects.count()  # a receiver may ask the database
        trace(name, 0, facts=facts, sender=sender.__name__, is_main=is_main, claims=claims, jobs=jobs)
        if os.environ.get("PULSE_HANGS") == name:
            time.sleep(600)

    signal = getattr(signals, name)
    signal.connect(exits, weak=False)
    signal.connect(heard, weak=False)


for signal_name in SIGNALS:
    listen(signal_name)
