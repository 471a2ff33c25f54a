"""Alerts: tell once per incident that a condition was found, by log, signal and mail.

The minutes hold which incidents are open. Only the watchdog that wrote a minute sends its alerts, so of many watchdogs
one tells; and an incident is told when it begins and when it is over, not for as long as it lasts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from threading import Thread
from typing import Any

from django.core.mail import mail_admins

from pulse_django import conf
from pulse_django.models import Job, Minute
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import alert_ended, alert_raised, send
from pulse_django.store.sql_functions import StatementTimestamp

from .conditions import Finding, Verdict

logger = SafeLogger("pulse_django.alerts")

# An incident that was open before a longer gap between two minutes is told again.
REMEMBERED = timedelta(hours=1)

_telling: list[Thread] = []


def update(alias: str, minute: Any, verdict: Verdict) -> list[Finding]:
    """Note in the minute which incidents are open. Tell those that begin and those that are over."""
    settings, before = conf.current(), _open_before(alias)
    alerted = [finding for finding in verdict.findings if finding.condition.is_alerted(settings)]
    found = {finding.condition.name: finding for finding in alerted if finding.subjects}
    # What could not be checked is not over.
    unknown = {finding.condition.name for finding in alerted if finding.error}
    still = {name: before[name] for name in before if name in unknown}
    Minute.objects.db_manager(alias).note(
        minute, {"alerts": still | {name: len(one.subjects) for name, one in found.items()}}
    )
    begun = [one for name, one in found.items() if name not in before]
    over = [name for name in before if name not in found and name not in unknown]
    _tell(begun, over, mail=settings.alert_mail)
    return begun


def _open_before(alias: str) -> Mapping[str, int]:
    rows = Minute.objects.using(alias).filter(
        minute__gt=StatementTimestamp() - REMEMBERED, minute__lte=StatementTimestamp()
    )
    signs = rows.order_by("-minute").values_list("signs", flat=True)
    latest: Any = next((one["alerts"] for one in signs if isinstance(one, Mapping) and "alerts" in one), {})
    return latest if isinstance(latest, Mapping) else {}


def _tell(begun: list[Finding], over: Collection[str], *, mail: bool) -> None:
    for one in begun:
        logger.error("Alert %s (%s): %s", one.condition.name, one.condition.severity, one.says)
    for name in over:
        logger.info("Alert %s is over", name)
    if begun or over:
        # A mail server that does not answer must not keep the watchdog from its work.
        thread = Thread(target=_tell_others, args=(begun, over, mail), name="alerts", daemon=True)
        _telling[:] = [other for other in _telling if other.is_alive()] + [thread]
        thread.start()


def _tell_others(begun: list[Finding], over: Collection[str], mail: bool) -> None:
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
    try:
        mail_admins(", ".join(one.condition.name for one in begun), "\n\n".join(_paragraph(one) for one in begun))
    except Exception:
        logger.exception("Sending mail to the admins failed")


def _paragraph(one: Finding) -> str:
    condition = one.condition
    return f"{condition.name} ({condition.severity}): {one.says}\n{condition.means}\n{condition.to_do}"


def finish(patience: float = 10.0) -> None:
    """Wait until running alerts have been sent, for a process that is about to end."""
    until = time.monotonic() + patience
    for thread in _telling:
        thread.join(max(0.0, until - time.monotonic()))
