"""Alerts: report once per incident that a condition was found, by log, signal and mail.

The minutes hold which incidents are open. Only the watchdog that wrote a minute sends its alerts, so of many watchdogs
one does; and an incident is reported when it begins and when it is over, not for as long as it lasts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from threading import Thread
from typing import Any, NamedTuple

from django.core.mail import mail_admins

from pulse_django import conf
from pulse_django.models import Job, Minute
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import alert_ended, alert_raised, send

from .conditions import Finding, Verdict

logger = SafeLogger("pulse_django.alerts")

# An incident that was open before a longer gap between two minutes is reported again.
REMEMBERED = timedelta(hours=1)

MOST_OF_A_KEY = 200  # characters

_sending: list[Thread] = []


def update(alias: str, minute: Any, verdict: Verdict) -> list[Finding]:
    """Note in the minute which incidents are open. Send an alert for each that begins, and for each that is over."""
    settings, before = conf.current(), _before(alias)
    found = {one.condition.name: one for one in verdict.found if one.condition.is_alerted(settings)}
    open_now = {name: _keys(one, before.incidents.get(name)) for name, one in found.items() if _counts(one, before)}
    begun = [found[name] for name in open_now if set(open_now[name]) - set(before.incidents.get(name, ()))]
    # What is unknown here is of an app that other processes have. What is not alerted any more is not over.
    asked = {finding.condition.name: finding for finding in verdict.findings}
    over = [name for name in before.incidents if name in asked and asked[name].is_clear]
    unknown = {name: keys for name, keys in before.incidents.items() if name not in asked}
    Minute.objects.db_manager(alias).note(minute, {"alerts": unknown | open_now})
    _announce(begun, over, mail=settings.alert_mail)
    return begun


class _Before(NamedTuple):
    """What the minute before said."""

    incidents: Mapping[str, Sequence[str]]
    unasked: Collection[str]


def _before(alias: str) -> _Before:
    rows = Minute.objects.using(alias).filter(
        minute__gt=StatementTimestamp() - REMEMBERED, minute__lte=StatementTimestamp()
    )
    noted = [one for one in rows.order_by("-minute").values_list("signs", flat=True) if isinstance(one, dict)]
    latest: Any = next((one for one in noted if isinstance(one.get("alerts"), dict)), {})
    unasked: Any = next((one["unasked"] for one in noted[1:] if isinstance(one.get("unasked"), list)), [])
    incidents = {name: keys for name, keys in latest.get("alerts", {}).items() if isinstance(keys, list)}
    return _Before(incidents, unasked)


def _counts(one: Finding, before: _Before) -> bool:
    """A condition that cannot be checked is an incident after two minutes: one may be a lock or a restart."""
    name = one.condition.name
    return bool(one.subjects) or name in before.unasked or name in before.incidents


def _keys(one: Finding, before: Sequence[str] | None) -> Sequence[str]:
    """Return what the incident is about. A queue or task that joins is reported; of single jobs only the first."""
    if one.error:
        return before or ["unknown"]
    return sorted(
        {"job" if isinstance(subject.key, int) else str(subject.key)[:MOST_OF_A_KEY] for subject in one.subjects}
    )


def _announce(begun: list[Finding], over: Collection[str], *, mail: bool) -> None:
    for one in begun:
        logger.error("Alert %s (%s): %s", one.condition.name, one.condition.severity, one.says)
    for name in over:
        logger.info("Alert %s is over", name)
    if begun or over:
        # A mail server that does not answer must not keep the watchdog from its work.
        thread = Thread(target=_send_all, args=(begun, over, mail), name="alerts", daemon=True)
        _sending[:] = [other for other in _sending if other.is_alive()] + [thread]
        thread.start()


def _send_all(begun: list[Finding], over: Collection[str], mail: bool) -> None:
    for one in begun:
        condition = one.condition
        send(
            alert_raised,
            Job,
            name=condition.name,
            severity=str(condition.severity),
            found=len(one.subjects),
            says=one.says,
            means=condition.means,
            to_do=condition.to_do,
        )
    for name in over:
        send(alert_ended, Job, name=name)
    if not mail or not begun:
        return
    paragraphs = (
        f"{one.condition.name} ({one.condition.severity}): {one.says}\n{one.condition.means}\n{one.condition.to_do}"
        for one in begun
    )
    try:
        mail_admins(", ".join(one.condition.name for one in begun), "\n\n".join(paragraphs))
    except Exception:
        logger.exception("Sending mail to the admins failed")


def finish(patience: float = 10.0) -> None:
    """Wait until running alerts have been sent, for a process that is about to end."""
    until = time.monotonic() + patience
    for thread in _sending:
        thread.join(max(0.0, until - time.monotonic()))
