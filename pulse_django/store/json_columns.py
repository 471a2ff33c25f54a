"""JSON columns that can always be read: one row that cannot be decoded must not break the list that it is in."""

from __future__ import annotations

import json
from typing import Any

from django.db import models

# What stands for a value that Python cannot read: numbers of more than 4,300 digits, lists within lists for thousands
# of levels. Pulse stores no such value; rows written by hand may have one.
UNREADABLE = "(cannot be read)"


def read(text: str) -> Any:
    """Return what a text of the database says."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return UNREADABLE


class Document(models.JSONField):
    """For showing only: what a handler is called with is decoded from the claim, and fails its own job."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return UNREADABLE

    def deconstruct(self) -> Any:
        """For migrations it is Django's own."""
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs
