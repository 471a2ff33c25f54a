"""The columns of tags and of search terms: arrays of texts, their indexes, and the conditions that these serve.

``django.contrib.postgres`` has such a field. Since Django 6.0 it requires that app to be installed, and its lookups use
operators that are looked up on the search path (docs/adr/0039).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import BooleanField, Func, Q, Value

from pulse_django.words.payloads import clean_text

# Only the stubs of Django make this class generic.
if TYPE_CHECKING:
    _Field = models.Field[Any, Any]
else:
    _Field = models.Field

# The conditions of the indexes.
IS_TAGGED = Q(tags__isnull=False)
HAS_TERMS = Q(search_terms__isnull=False)


class Tags(_Field):
    """A ``text[]`` column. An empty list is NULL there, because an empty array takes 13 bytes of each row."""

    description = "Tags"

    def db_type(self, connection: Any) -> str:
        return "text[]"

    def get_prep_value(self, value: Any) -> Any:
        return list(value) if value else None

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        # A row that was written by hand may have NULL among them, or lists.
        return [] if value is None else [one if isinstance(one, str) else str(one) for one in value]

    def to_python(self, value: Any) -> Any:
        return list(value) if isinstance(value, list | tuple) else value


class HasAll(Func):
    """Whether the first list of tags has all of the second."""

    template = "(%(expressions)s)"
    arg_joiner = " OPERATOR(pg_catalog.@>) "
    arity = 2
    output_field = BooleanField()


def has_tags(tags: Sequence[str]) -> Q:
    """Jobs that have all of these tags."""
    return IS_TAGGED & Q(HasAll("tags", Value(list(tags), Tags())))


class HasAny(HasAll):
    """Whether the first list has one of the second."""

    arg_joiner = " OPERATOR(pg_catalog.&&) "


def has_a_term(terms: Sequence[str]) -> Q:
    """Jobs of which one of these terms is stored, as ``words/masks.py`` spells them."""
    possible = [term for term in terms if isinstance(term, str) and clean_text(term, len(term)) == term]
    return HAS_TERMS & Q(HasAny("search_terms", Value(possible, Tags())))


class TagIndex(models.Index):
    """A GIN index of tags, or of terms. Without a pending list no search reads one, and an enqueue pays for its own."""

    suffix = "gin"

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        statement = super().create_sql(model, schema_editor, using=" USING gin", **kwargs)
        statement.parts["extra"] = " WITH (fastupdate = off)"  # type: ignore[assignment]  # any text will do
        return statement
