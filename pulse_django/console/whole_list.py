"""A list of the admin that shows all of its rows on one page."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator


def show_all(changelist: Any, rows: list[Any]) -> None:
    """Let a changelist show these rows."""
    changelist.result_list = rows
    changelist.result_count = changelist.full_result_count = len(rows)
    changelist.show_full_result_count = False
    changelist.show_admin_actions = False
    changelist.can_show_all = False
    changelist.multi_page = False
    changelist.paginator = Paginator(rows, max(1, len(rows)))
