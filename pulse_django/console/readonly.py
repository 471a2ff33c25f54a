"""A mixin for the admins of read-only tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest
from django.utils.translation import gettext

from .statuses import VisibleText


class ReadOnly(VisibleText):
    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


# A list of the admin that shows all of its rows on one page.


def first_of_each(request: HttpRequest, by_shard: Mapping[str, list[Any]], most: int) -> dict[str, list[Any]]:
    """Return so many of the rows of each shard, of which one more was read. Say so if there are more."""
    if any(len(rows) > most for rows in by_shard.values()):
        said = gettext("Only the first %(count)d of each shard are shown. The search finds the others.")
        messages.info(request, said % {"count": most})
    return {alias: rows[:most] for alias, rows in by_shard.items()}


def show_all(changelist: Any, rows: list[Any]) -> None:
    """Let a changelist show these rows."""
    changelist.result_list = rows
    changelist.result_count = changelist.full_result_count = len(rows)
    changelist.show_full_result_count = False
    changelist.show_admin_actions = False
    changelist.can_show_all = False
    changelist.multi_page = False
    changelist.paginator = Paginator(rows, max(1, len(rows)))
