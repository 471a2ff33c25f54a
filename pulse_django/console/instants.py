"""Instants as the console shows them: short to read, and on hover with seconds and zone."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timezone import template_localtime  # type: ignore[attr-defined]  # the stubs lack it

SHORT = "Y-m-d H:i:s"
EXACT = "Y-m-d H:i:s T"


def instant_shown(at: datetime | None, text: str = "", *, form: str = SHORT) -> str:
    """Return an element of HTML. ``text`` replaces the instant, such as how long ago it was. Empty: there is none."""
    if at is None:
        return ""
    exact = date_format(at, EXACT, use_l10n=False)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', at.isoformat(), exact, text or date_format(at, form, use_l10n=False)
    )


def here(at: datetime | None) -> datetime | None:
    """Return the instant in the time zone of the page."""
    local: datetime | None = template_localtime(at)
    return local


def column_of(name: str, description: Any = None) -> Any:
    """Return a column of a ``ModelAdmin`` that shows this field of a row, under the field's name."""

    def shown(row: Any) -> str:
        return instant_shown(here(getattr(row, name)), form="DATETIME_FORMAT") or "–"

    shown.__name__ = name  # Django finds label and help by it
    return admin.display(description=description)(shown) if description else shown
