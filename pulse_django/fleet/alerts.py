"""Alerts: what ``PULSE["ALERTS"]`` allows is compared with each minute, and who cares is told once per incident.

Which incidents are open stands in the minutes themselves. Only who wrote a minute looks at it, so of many watchdogs
one tells; and an incident is told when it begins, not for as long as it lasts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from threading import Thread
from typing import Any

from django.core.mail import mail_admins

from pulse_django import conf
from pulse_django.models import Job, Minute
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import alert_ended, alert_raised, tell
from pulse_django.store.sql_functions import StatementTimestamp
from pulse_django.words import counters
from pulse_django.words.states import Status
from pulse_django.words.thresholds import UNREAPED, UNSERVED, Crossing, FleetFacts, crossed, orphans_of
from pulse_django.words.vital_signs import JOBS_ENDED, LEASE_EXPIRATIONS

logger = SafeLogger("pulse_django.alerts")

HOUR = timedelta(hours=1)

_telling: list[Thread] = []


def look(alias: str, minute: Any) -> list[Crossing]:
    """Compare the minute that we wrote with what is allowed, and tell what began and what is over."""
    settings = conf.current()
    if not settings.alerts:
        return []
    hour = _last_hour(alias)
    found = {one.name: one for one in crossed(facts_of(hour), settings.alerts)}
    before: Mapping[str, float] = next((signs["alerts"] for signs in reversed(hour) if "alerts" in signs), {})
    Minute.objects.db_manager(alias).note(minute, {"alerts": {name: one.found for name, one in found.items()}})
    begun = [one for name, one in found.items() if name not in before]
    over = [name for name in before if name not in found]
    _tell(begun, over, mail=settings.alert_mail)
    return begun


def facts_of(hour: list[Mapping[str, Any]]) -> FleetFacts:
    """Read the facts from the minutes of the last hour, the latest last."""
    latest: Mapping[str, Any] = next((signs for signs in reversed(hour) if "queues" in signs), {})
    asked: Mapping[str, Any] = next((signs for signs in reversed(hour) if "broken" in signs), {})
    broken: Mapping[str, int] = asked.get("broken") or {}
    paused = set(latest.get("paused") or ())
    overdue = [overdue for queue, (_, _, overdue) in latest.get("queues", {}).items() if queue not in paused]
    return FleetFacts(
        oldest_due=max((seconds for seconds in overdue if seconds is not None), default=0.0),
        dead_letters=round(sum(counters.total(one, JOBS_ENDED, status=Status.DEAD_LETTERED) for one in hour)),
        expirations=round(sum(counters.total(one, LEASE_EXPIRATIONS) for one in hour)),
        unserved_queues=broken.get(UNSERVED, 0),
        unreaped=broken.get(UNREAPED, 0),
        orphans=orphans_of(broken),
    )


def _last_hour(alias: str) -> list[Mapping[str, Any]]:
    rows = Minute.objects.using(alias).filter(minute__gt=StatementTimestamp() - HOUR, minute__lte=StatementTimestamp())
    return list(rows.order_by("minute").values_list("signs", flat=True))


def _tell(begun: list[Crossing], over: list[str], *, mail: bool) -> None:
    for one in begun:
        logger.error("Alert %s: %s", one.name, one.says)
    for name in over:
        logger.info("Alert %s is over", name)
    if begun or over:
        # A mail server that does not answer must not keep the watchdog from its work.
        thread = Thread(target=_tell_others, args=(begun, over, mail), name="alerts", daemon=True)
        _telling[:] = [other for other in _telling if other.is_alive()] + [thread]
        thread.start()


def _tell_others(begun: list[Crossing], over: list[str], mail: bool) -> None:
    for one in begun:
        tell(alert_raised, Job, name=one.name, found=one.found, allowed=one.allowed, says=one.says)
    for name in over:
        tell(alert_ended, Job, name=name)
    if not mail or not begun:
        return
    try:
        mail_admins(", ".join(one.name for one in begun), "\n".join(f"{one.name}: {one.says}." for one in begun))
    except Exception:
        logger.exception("Sending mail to the admins failed")


def finish(patience: float = 10.0) -> None:
    """Wait until what began to be told has been told, for a process that is about to end."""
    until = time.monotonic() + patience
    for thread in _telling:
        thread.join(max(0.0, until - time.monotonic()))
