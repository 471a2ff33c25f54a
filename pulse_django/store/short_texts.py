"""Short text columns that are compared by PostgreSQL's own operators, whatever the search path contains.

``varchar`` has no operators. ``status = 'RUNNING'`` looks for one of (varchar, varchar) on the whole search path, finds
none of the catalogue's, and takes ``text``'s only if no better one was planted. Compared as ``text`` it fits the
catalogue's own exactly (docs/adr/0039).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models.lookups import (
    Exact,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Range,
)


class _AsText:
    def process_lhs(self, compiler: Any, connection: Any, lhs: Any = None) -> tuple[str, Any]:
        sql, params = super().process_lhs(compiler, connection, lhs)  # type: ignore[misc]  # of the lookup beside it
        return f"{sql}::text", params


if TYPE_CHECKING:
    ShortText = models.CharField  # whose values the plugin of mypy knows
else:

    class _AnyCharField(type):
        """Let Django mix these columns with other text in an expression: it asks for an instance of the same class."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, models.CharField)

    class ShortText(models.CharField, metaclass=_AnyCharField):
        """A ``varchar`` column whose lookups compare it as ``text``. Indexes on it serve them all the same."""

    # Lookups by a part of the text, as __startswith, are compared as text by Django itself.
    for _lookup in (Exact, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, Range):
        ShortText.register_lookup(type(_lookup.__name__, (_AsText, _lookup), {}))
