"""How far back a page with charts looks: an hour, a day or two weeks, as its address says."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulse_django.fleet.traffic import WINDOWS, Window

WINDOW_NAMES = {"hour": _("Last hour"), "day": _("Last day"), "weeks": _("Last two weeks")}


def window_of(request: HttpRequest) -> Window:
    """Return the window that the address names, or a day."""
    return WINDOWS.get(request.GET.get("window", ""), WINDOWS["day"])
