"""PostgreSQL's functions and types as Django expressions and fields: "now" in two variants, sizes, arrays, JSON.

The clock of the database decides. Write ``ClockTimestamp``: with ``now()``, a claim late in a transaction would be born
expired, and with ``statement_timestamp()``, a statement that waited for a row lock would write a past instant. Compare
with ``StatementTimestamp``: it is stable, so an index can be used. With the volatile ``clock_timestamp()``, an idle
poll would read every row that is not due yet. It is the earlier of the two, which is the safe side.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import (
    BooleanField,
    CharField,
    CheckConstraint,
    DateTimeField,
    Func,
    IntegerField,
    Q,
    TextField,
    Value,
)
from django.db.models.functions import Greatest, Least
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual, Range
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pulse_django.queue.words.bounds import FIRST_YEAR, LAST_YEAR
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.payloads import clean_text
from pulse_django.queue.words.states import Status

T = TypeVar("T")


class ClockTimestamp(Func):
    """The instant at which the row is written."""

    function = "clock_timestamp"
    output_field = DateTimeField()


class StatementTimestamp(Func):
    """The instant at which the statement arrived."""

    function = "statement_timestamp"
    output_field = DateTimeField()


class StoredSize(Func):
    """The size of a value in bytes as it is stored, compressed. Unlike ``TextSize``, it does not unpack the value."""

    function = "pg_catalog.pg_column_size"
    output_field = IntegerField()


class Cardinality(Func):
    """The number of elements of an array."""

    function = "pg_catalog.cardinality"
    output_field = IntegerField()


class PlaceOfNull(Func):
    """The position of the first NULL in an array of texts, or NULL. An array of arrays is an error."""

    template = "pg_catalog.array_position(%(expressions)s, NULL::text)"
    output_field = IntegerField()


class TextSize(Func):
    """The size in bytes of a JSON value or an array as text, as a worker reads it. It unpacks the value."""

    template = "pg_catalog.octet_length((%(expressions)s)::text)"
    output_field = IntegerField()


class JsonType(Func):
    """The type of a jsonb value: ``array``, ``object``, ``string`` and so on."""

    function = "pg_catalog.jsonb_typeof"
    output_field = CharField()


# The parts that differ between errors of the same kind. PostgreSQL takes the longest match. No pattern has a percent
# sign, which is special in a statement with parameters.
_VALUES = (
    r"[a-z][a-z0-9+.-]*://[^\s'\"<>]+",  # URLs
    r"[^\s'\"<>()\[\]{}=,:;]+@[^\s'\"<>()\[\]{}=,:;]+",  # email addresses
    r"(?<!\w)'[^']*'(?!\w)",  # quoted text, but not after the apostrophe of "can't"
    r"\"[^\"]*\"",
    r"(?<![^\s'\"(=:,\[])(~|[.][.]?)?/[^\s'\"()<>,;:]+",  # paths
    r"\m[a-z]:[\\/][^\s'\"<>]+",
    r"\m[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\M",  # UUIDs, also if they begin with letters alone
    r"-?\m(0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f]*)([.,:-]+[0-9a-f]+)*\M",  # numbers, ids, instants, addresses of hosts
    r"[0-9]+([.,][0-9]+)*",
)
_IS_VALUE = "|".join(_VALUES).replace("'", "''")
# The place where an error was raised, at the end of the text, as ``ErrorReport.last_error`` writes it.
_FRAME = r"\[[^][\s]+:[^][\s]+\]$"


class Fingerprint(Func):
    """The common part of errors of the same kind: the place where they were raised, and their text without values.

    If the template changes in one letter, the index does not match it any more (docs/adr/0074).
    """

    template = (
        "(pg_catalog.left(COALESCE("
        f"pg_catalog.\"substring\"(pg_catalog.right(%(expressions)s, 100) COLLATE \"C\", '{_FRAME}') || ' ', '') ||"
        " pg_catalog.regexp_replace(pg_catalog.left("
        f"pg_catalog.regexp_replace(%(expressions)s COLLATE \"C\", ' ?{_FRAME}', ''), 300),"
        f" '{_IS_VALUE}', '#', 'gi'), 200) COLLATE \"C\")"
    )
    output_field = TextField()


class InUtc(Func):
    """An instant in UTC as a key that only one index has, so that a query in this order uses that index.

    The expression is IMMUTABLE, unlike an instant in the session's time zone.
    """

    template = "(%(expressions)s AT TIME ZONE 'UTC')"
    output_field = DateTimeField()


# Short text columns that are compared with PostgreSQL's own operators, whatever the search path contains.
#
# ``varchar`` has no operators. For ``status = 'RUNNING'``, PostgreSQL searches the whole search path for an operator of
# (varchar, varchar). pg_catalog has none, so it takes that of ``text``, unless another role created a better match. A
# comparison as ``text`` matches the operator of pg_catalog exactly (docs/adr/0039).


class _AsText:
    def process_lhs(self, compiler: Any, connection: Any, lhs: Any = None) -> tuple[str, Any]:
        sql, params = super().process_lhs(compiler, connection, lhs)  # type: ignore[misc]  # of the lookup class
        return f"{sql}::text", params


if TYPE_CHECKING:
    ShortText = models.CharField  # the mypy plugin knows its values
else:

    class _AnyCharField(type):
        """Allow expressions that mix these columns with other text: Django compares the classes of the fields."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, models.CharField)

    class ShortText(models.CharField, metaclass=_AnyCharField):
        """A ``varchar`` column whose lookups compare it as ``text``. They still use its indexes."""

    # Django itself compares lookups by a part of the text, such as __startswith, as text.
    for _lookup in (Exact, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, Range):
        ShortText.register_lookup(type(_lookup.__name__, (_AsText, _lookup), {}))


# JSON columns that can always be read: a row that cannot be decoded must not break a whole list of rows.


# The replacement for a value that Python cannot read, as a number of more than 4,300 digits or lists that are nested
# thousands of levels deep. Pulse stores no such value, but rows written by hand may have one.
UNREADABLE = "(cannot be read)"


def read(text: str) -> Any:
    """Return the value of a JSON text of the database."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return UNREADABLE


class Document(models.JSONField):
    """A JSON column for display. The arguments of a handler are decoded from the claim, and fail only its job."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return UNREADABLE

    def deconstruct(self) -> Any:
        """Appear as Django's own field in migrations."""
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs


# Instants with a time zone. Without USE_TZ, Django reads and asks for naive ones, which are in TIME_ZONE.


def aware(instant: T) -> T:
    """Return an instant in UTC if it is naive, and any other value as it is.

    In TIME_ZONE, Python would compare and subtract clock times, which is wrong across a change of the clocks.
    """
    if not isinstance(instant, datetime) or settings.USE_TZ or timezone.is_aware(instant):
        return instant
    made: Any = timezone.make_aware(instant, timezone.get_default_timezone()).astimezone(UTC)
    return made  # type: ignore[no-any-return]


def as_django_reads(instant: T) -> T:
    """Return an instant as Django reads it from a database: naive without USE_TZ."""
    if not isinstance(instant, datetime) or settings.USE_TZ or timezone.is_naive(instant):
        return instant
    made: Any = timezone.make_naive(instant, timezone.get_default_timezone())
    return made  # type: ignore[no-any-return]


if TYPE_CHECKING:
    Instant = models.DateTimeField  # the mypy plugin knows its values
else:

    class Instant(models.DateTimeField):
        """A column whose values have a time zone, also without USE_TZ."""

        def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
            return aware(value)

        def value_from_object(self, obj: Any) -> Any:
            return as_django_reads(super().value_from_object(obj))

        def save_form_data(self, instance: Any, data: Any) -> None:
            setattr(instance, self.attname, aware(data))

        def deconstruct(self) -> Any:
            """Appear as Django's own field in migrations."""
            name, _path, args, kwargs = super().deconstruct()
            return name, "django.db.models.DateTimeField", args, kwargs


# Ranges that Python can read. PostgreSQL can store more, and a row that cannot be read breaks a whole list of rows.


# Python reads no infinity, no years BC and none above 9999. A year on each side is for time zones.
FIRST, LAST = datetime(FIRST_YEAR - 1, 1, 1, tzinfo=UTC), datetime(LAST_YEAR + 2, 1, 1, tzinfo=UTC)


def in_range(*names: str, lowest: Any = FIRST, highest: Any = LAST) -> Q:
    """Return the condition that each of these columns is in this range, or NULL."""
    found = Q()
    for name in names:
        found &= Q(**{f"{name}__gte": lowest, f"{name}__lt": highest})
    return found


def least_and_greatest_in_range(*names: str) -> Q:
    """Return the same condition as a shorter expression, for two columns or more."""
    return Q(GreaterThanOrEqual(Least(*names), Value(FIRST))) & Q(LessThan(Greatest(*names), Value(LAST)))


def rule(name: str, condition: Any) -> CheckConstraint:
    """Return a constraint on each row of a table."""
    return CheckConstraint(name=name, condition=condition)


def index(name: str, fields: list[str], condition: Q | None = None) -> models.Index:
    """Return an index on these columns, of the rows that meet the condition."""
    return models.Index(fields=fields, name=name, condition=condition)


def instants_of(what: str, *names: str) -> CheckConstraint:
    """Return the constraint on the range of a table's instants."""
    condition = least_and_greatest_in_range(*names) if len(names) > 1 else in_range(*names)
    return rule(f"pulse_{what}_instants_can_be_read", condition)


def bounded(name: str, **most_bytes: int) -> CheckConstraint:
    """Return the constraint on the sizes of columns as text. A NULL is allowed."""
    condition = Q()
    for column, most in most_bytes.items():
        condition &= Q(LessThanOrEqual(TextSize(column), most))
    return rule(name, condition)


# The columns of tags and of search terms: arrays of texts, their indexes, and the conditions that use these.
#
# ``django.contrib.postgres`` has such a field. Since Django 6.0, it requires that app to be installed. Its lookups use
# operators that PostgreSQL finds on the search path (docs/adr/0039).


# This class is generic only in the stubs of Django.
if TYPE_CHECKING:
    _Field = models.Field[Any, Any]
else:
    _Field = models.Field

# The conditions of the indexes.
IS_TAGGED = Q(tags__isnull=False)
HAS_TERMS = Q(search_terms__isnull=False)


class Tags(_Field):
    """A ``text[]`` column. An empty list is stored as NULL, because an empty array takes 13 bytes of each row."""

    description = "Tags"

    def db_type(self, connection: Any) -> str:
        return "text[]"

    def get_prep_value(self, value: Any) -> Any:
        return list(value) if value else None

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        # A row that was written by hand may contain NULL or nested lists.
        return [] if value is None else [one if isinstance(one, str) else str(one) for one in value]

    def to_python(self, value: Any) -> Any:
        return list(value) if isinstance(value, list | tuple) else value


class IntegerList(_Field):
    """An ``integer[]`` column."""

    description = "List of integers"

    def db_type(self, connection: Any) -> str:
        return "integer[]"


class HasAll(Func):
    """Whether the first list of tags contains all of the second."""

    template = "(%(expressions)s)"
    arg_joiner = " OPERATOR(pg_catalog.@>) "
    output_field = BooleanField()


def has_tags(tags: Sequence[str]) -> Q:
    """Return the condition that a job has all of these tags."""
    return IS_TAGGED & Q(HasAll("tags", Value(list(tags), Tags())))


class HasAny(HasAll):
    """Whether the first list contains one of the second."""

    arg_joiner = " OPERATOR(pg_catalog.&&) "


def has_a_term(terms: Sequence[str]) -> Q:
    """Return the condition that a job has one of these terms, as ``queue/words/masks.py`` spells them."""
    possible = [term for term in terms if isinstance(term, str) and clean_text(term, len(term)) == term]
    return HAS_TERMS & Q(HasAny("search_terms", Value(possible, Tags())))


class TagIndex(models.Index):
    """A GIN index of tags or terms, without a pending list: a search does not read one, and no enqueue flushes one."""

    suffix = "gin"

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        statement = super().create_sql(model, schema_editor, using=" USING gin", **kwargs)
        statement.parts["extra"] = " WITH (fastupdate = off)"  # type: ignore[assignment]  # any text will do
        return statement


# The statuses of jobs and the outcomes of runs as the admin shows them, in the language of the user.


STATUSES: list[tuple[str, Any]] = [
    (Status.WAITING.value, _("Waiting")),
    (Status.PENDING.value, _("Pending")),
    (Status.RUNNING.value, _("Running")),
    (Status.RETRYING.value, _("Retrying")),
    (Status.COMPLETED.value, _("Completed")),
    (Status.DEAD_LETTERED.value, _("Dead lettered")),
    (Status.CANCELLED.value, _("Cancelled")),
]

OUTCOMES: list[tuple[str, Any]] = [
    (OutcomeName.SUCCEEDED.value, _("Succeeded")),
    (OutcomeName.FAILED.value, _("Failed")),
    (OutcomeName.TIMED_OUT.value, _("Timed out")),
    (OutcomeName.STALLED.value, _("Stalled")),
    (OutcomeName.WORKER_LOST.value, _("Worker lost")),
    (OutcomeName.SNOOZED.value, _("Snoozed")),
    (OutcomeName.WAITED.value, _("Waited")),
    (OutcomeName.RELEASED.value, _("Released")),
    (OutcomeName.CANCELLED.value, _("Cancelled")),
    (OutcomeName.DISCARDED.value, _("Discarded")),
]


# A loose index scan of the jobs: one probe of an index for each distinct value, whatever the number of jobs.


def loose_scan(name: str, columns: str, *, where: str, order: str, following: tuple[str, ...], most: str = "") -> str:
    """Return a recursive CTE whose rows are the distinct values in the order of an index, numbered by ``place``.

    Each of ``following`` is a condition that finds the next row; the first match is used. An OR of two conditions would
    not use the index.
    """

    def probe(condition: str = "") -> str:
        found = f"SELECT {columns} FROM pulse_django_job_hot WHERE {where}{condition}"  # noqa: S608 - made of constants
        return f"({found} ORDER BY {order} LIMIT 1)"

    steps = " UNION ALL ".join(probe(f" AND {one}") for one in following) + " LIMIT 1" * (len(following) > 1)
    bound = f"WHERE {name}.place < {most}" if most else ""
    return f"""
WITH RECURSIVE {name} AS (
    SELECT first.*, 1 AS place FROM {probe()} AS first
    UNION ALL
    SELECT following.*, {name}.place + 1 FROM {name} CROSS JOIN LATERAL ({steps}) AS following {bound}
)"""  # noqa: S608 - made of constants
