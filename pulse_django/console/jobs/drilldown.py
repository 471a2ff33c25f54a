"""The date links above the list: years, then months, days and hours, from the oldest job to the newest.

Django's own links query all distinct dates of the table. These are computed from the two ends, and some may be empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext as _

from pulse_django.console.periods import Period, years

from .page_window import Extent

Link = Callable[[Period | None], str]


def drilldown(extent: Extent, period: Period | None, link: Link) -> dict[str, Any]:
    """Return the context for Django's ``admin/date_hierarchy.html``."""
    if period is None:
        return {"show": True, "back": None, "choices": [_choice(one, link) for one in _start(extent)]}
    smaller = list(period.within(extent.oldest_at, extent.newest_at)) if len(period.parts) < 4 else []
    choices = [_choice(one, link) for one in smaller] if smaller else [{"title": period.title}]
    parent = period.parent
    back = {"link": link(parent), "title": _("All dates") if parent is None else parent.title}
    return {"show": True, "back": back, "choices": choices}


def _start(extent: Extent) -> list[Period]:
    """Return the first level that offers a choice, as Django does: never a single year or a single month."""
    level = years(extent.oldest_at, extent.newest_at)
    while len(level) == 1 and len(level[0].parts) < 3:
        level = list(level[0].within(extent.oldest_at, extent.newest_at))
    return level


def _choice(period: Period, link: Link) -> dict[str, str]:
    return {"link": link(period), "title": period.title}
