"""The system check of ``PULSE["ALERTS"]``."""

from __future__ import annotations

import difflib
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error

from pulse_django import conf

from .catalogue import known


def check_alerts(**_: Any) -> list[CheckMessage]:
    """Compare ``ALERTS`` with the catalogue of conditions, which apps may have extended."""
    conditions = {one.name: one for one in known()}
    found: list[CheckMessage] = []
    for name, most in conf.parse(getattr(settings, conf.SETTING, {}))[0].alerts.items():
        if name not in conditions:
            close = difflib.get_close_matches(name.lower().replace("_", "-"), conditions, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Known conditions: {', '.join(conditions)}."
            found.append(Error(f"ALERTS has an unknown condition {name!r}.", hint=hint, id="pulse_django.E011"))
        elif not isinstance(most, bool) and (problem := conditions[name].refuses(most)):
            found.append(Error(f"ALERTS[{name!r}] is {most:g}, {problem}.", id="pulse_django.E011"))
    return found
