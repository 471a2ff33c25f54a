"""A mixin for the admins of read-only tables."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest

from .shards import SHARD
from .statuses import ConsoleAdmin


class ReadOnly(ConsoleAdmin):
    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ShardList(ChangeList):
    """A list of the admin whose address may name a shard, which is no filter."""

    def get_filters(self, request: HttpRequest) -> Any:
        self.filter_params.pop(SHARD, None)
        return super().get_filters(request)
