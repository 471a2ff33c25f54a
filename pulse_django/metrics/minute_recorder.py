"""Record the statistics of each minute, check the conditions, and send the alerts.

It has its own loop, because queries may be slow, and the recovery of the watchdog must not wait for them. It closes its
connection after each minute.
"""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

from django.db import DatabaseError

from pulse_django.health import alerts, conditions
from pulse_django.limits.facts import limits
from pulse_django.limits.keys import declared_limits
from pulse_django.models import Minute
from pulse_django.queue.capability import Capability, KeeperLoop
from pulse_django.queue.words.counters import MOST_VALUES
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.safe_logging import SafeLogger

logger = SafeLogger("pulse_django.watchdog")

PAUSE = 60.0  # seconds
FIRST = 5.0, 20.0  # seconds after the start, at random
JITTER = 0.2  # of the pause, so that watchdogs rarely count a minute at the same time


class MinuteRecorder(KeeperLoop):
    purpose, longest_pause, is_of_watchdogs = "minutes", PAUSE, True
    _has_begun = False

    def run_once(self) -> float:
        """Write the unwritten minutes. Return the seconds until the next call."""
        if not self._has_begun:  # many workers may start at once, and claims are more important
            self._has_begun = True
            return random.uniform(*FIRST)  # noqa: S311 - no secret
        try:
            self.write()
        finally:
            self.database.hang_up()
        return PAUSE * random.uniform(1 - JITTER, 1.0)  # noqa: S311 - no secret

    def write(self) -> None:
        """Write the unwritten minutes. After the latest one, check the conditions."""
        minutes = Minute.objects.db_manager(self.database.alias)
        unwritten = self.database.call(minutes.unwritten)
        for minute in unwritten[:-1]:
            self.database.call(minutes.write, minute, is_latest=False)
        for minute in unwritten[-1:]:
            if self.database.call(minutes.write, minute):
                self._ask(minute)
        if unwritten:
            self.database.call(minutes.forget)

    def _ask(self, minute: datetime) -> None:
        """Store the results of the conditions in the minute, and send the alerts."""
        minutes = Minute.objects.db_manager(self.database.alias)
        verdict = conditions.ask_all(self.database.alias, call=self.database.call)
        self.database.call(minutes.note, minute, noted(verdict) | self._use_of_limits())
        self.database.call(alerts.update, self.database.alias, minute, verdict)

    def _use_of_limits(self) -> dict[str, Any]:
        """Return the numbers of running and due jobs of each limit, for the pages."""
        if not declared_limits():
            return {}
        try:
            found = self.database.call(limits, self.database.alias)
        except DatabaseError as error:  # the conditions are still stored
            logger.warning("The use of limits could not be read: %s", error_in_one_line(error))
            return {}
        most_used = sorted(found, key=lambda one: one.running + one.waiting, reverse=True)[:MOST_VALUES]
        return {"limits": {one.name: [one.running, one.waiting] for one in most_used}}


def noted(verdict: conditions.Verdict) -> dict[str, Any]:
    """Return the part of a verdict that a minute stores."""
    found = {finding.condition.name: len(finding.subjects) for finding in verdict.found if finding.subjects}
    unasked = [finding.condition.name for finding in verdict.found if finding.error]
    return {"conditions": found, "unasked": unasked}


CAPABILITY = Capability(name="metrics", loops=(MinuteRecorder,))
