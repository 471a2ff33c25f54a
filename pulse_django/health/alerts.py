"""Alerts: report each incident of a condition once, by log, signal and mail.

The minutes store the open incidents. Only the watchdog that wrote a minute sends its alerts, so several watchdogs do
not repeat them. An incident is reported when it begins and when it ends, but not in between.
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

# After a longer gap between two minutes, an open incident is reported again.
REMEMBERED = timedelta(hours=1)

MOST_OF_A_KEY = 200  # characters

_sending: list[Thread] = []


def update(alias: str, minute: Any, verdict: Verdict) -> list[Finding]:
    """Store the open incidents in the minute. Send an alert for each incident that begins, and for each that ends."""
    settings, before = conf.current(), _before(alias)
    found = {one.condition.name: one for one in verdict.found if one.condition.is_alerted(settings)}
    open_now = {name: _keys(one, before.incidents.get(name)) for name, one in found.items() if _counts(one, before)}
    begun = [found[name] for name in open_now if set(open_now[name]) - set(before.incidents.get(name, ()))]
    # A condition that is unknown here is of an app in other processes. One that no longer raises alerts is not over.
    asked = {finding.condition.name: finding for finding in verdict.findings}
    over = [name for name in before.incidents if name in asked and asked[name].is_clear]
    unknown = {name: keys for name, keys in before.incidents.items() if name not in asked}
    Minute.objects.db_manager(alias).note(minute, {"alerts": unknown | open_now})
    _announce(begun, over, mail=settings.alert_mail)
    return begun


class _Before(NamedTuple):
    """The state of the previous minute."""

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
    """Return whether it is an incident. A failed check is one after two minutes: it may be a lock or a restart."""
    name = one.condition.name
    return bool(one.subjects) or name in before.unasked or name in before.incidents


def _keys(one: Finding, before: Sequence[str] | None) -> Sequence[str]:
    """Return the subjects of an incident. Each new queue or task is reported; of single jobs, only the first is."""
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
        # In a thread: a mail server that does not answer must not block the watchdog.
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
        logger.exception("Sending an alert by mail to the admins failed")


def finish(patience: float = 10.0) -> None:
    """Wait until running alerts have been sent, before the process ends."""
    until = time.monotonic() + patience
    for thread in _sending:
        thread.join(max(0.0, until - time.monotonic()))
