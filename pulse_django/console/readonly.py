"""A mixin for the admins of read-only tables."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from .statuses import VisibleText


class ReadOnly(VisibleText):
    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
