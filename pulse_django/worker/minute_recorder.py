"""Writes down each minute what the fleet did, asks the conditions, and looks for what is to be alerted.

A loop of its own, beside the watchdog's: questions may be slow, and nobody's recovery may wait for them. It keeps no
connection from one minute to the next.
"""

from __future__ import annotations

import random
import time
from datetime import datetime
from typing import Any

from django.db import Error

from pulse_django.fleet import alerts, conditions
from pulse_django.models import Minute
from pulse_django.safe_logging import SafeLogger

from .guarded_connection import GuardedConnection

logger = SafeLogger("pulse_django.chronicle")

PAUSE = 60.0  # seconds
FIRST = 5.0, 20.0  # seconds after the start, at random
JITTER = 0.2  # the share by which it may come early, so that a minute is seldom counted twice at a time
# Seconds for all conditions of a minute. Longer, and the next minute is late; shorter leaves slow ones unasked.
BUDGET = 30.0


class MinuteRecorder:
    def __init__(self, line: GuardedConnection) -> None:
        self.line = line
        self._has_begun = False

    def run_once(self) -> float:
        """Write what is over and not written. Return for how long to wait until the next time."""
        if not self._has_begun:  # a worker that starts has better things to do, and many may start together
            self._has_begun = True
            return random.uniform(*FIRST)  # noqa: S311 - no secret
        try:
            self.write()
        finally:
            self.line.hang_up()
        return PAUSE * random.uniform(1 - JITTER, 1.0)  # noqa: S311 - no secret

    def write(self) -> None:
        """Write the minutes that nobody has written. Who wrote the latest asks the conditions."""
        minutes = Minute.objects.db_manager(self.line.alias)
        unwritten = self.line.call(minutes.unwritten)
        for minute in unwritten[:-1]:
            self.line.call(minutes.write, minute, is_latest=False)
        for minute in unwritten[-1:]:
            if self.line.call(minutes.write, minute):
                self._judge(minute)
        if unwritten:
            self.line.call(minutes.forget)

    def _judge(self, minute: datetime) -> None:
        minutes = Minute.objects.db_manager(self.line.alias)
        self.line.call(minutes.note, minute, self._asked())
        self.line.call(alerts.look, self.line.alias, minute)

    def _asked(self) -> dict[str, Any]:
        """Ask every condition, each with a deadline of its own. Return how many things break which, and what is not
        known: which could not be asked, and of which there are more."""
        broken: dict[str, int] = {}
        more: list[str] = []
        unasked: list[str] = []
        until = time.monotonic() + BUDGET
        for one in conditions.known():
            found = self._ask(one) if time.monotonic() < until else None
            if found is None or found.error:
                unasked.append(one.name)
            elif not found.holds:
                broken |= {one.name: len(found.subjects)}
                more += [one.name] if found.is_more else []
        return {"broken": broken, "more": more, "unasked": unasked}

    def _ask(self, one: conditions.Condition) -> conditions.Finding | None:
        try:
            found: conditions.Finding = self.line.call(conditions.ask, one, self.line.alias)
        except Error:
            raise
        except BaseException:  # an app's own question
            logger.exception("Checking condition %s failed", one.name)
            return None
        return found
