"""The functions of PostgreSQL that Pulse calls by name: its two ways of saying "now", and facts about a value.

The database owns the clock. Write ``ClockTimestamp``: under ``now()`` a claim late in a transaction is born expired,
and under ``statement_timestamp()`` a statement that waited for a row lock writes an instant that has passed. Compare
with ``StatementTimestamp``: it is stable, so an index can use it; with the volatile ``clock_timestamp()`` an idle poll
reads every row that is not due yet. Being earlier, it errs on the safe side.
"""

from django.db.models import CharField, DateTimeField, Func, IntegerField, TextField


class ClockTimestamp(Func):
    """The instant at which this very row is written."""

    function = "clock_timestamp"
    arity = 0
    output_field = DateTimeField()


class StatementTimestamp(Func):
    """The instant at which the statement arrived."""

    function = "statement_timestamp"
    arity = 0
    output_field = DateTimeField()


class StoredSize(Func):
    """The bytes of a value as it is stored, compressed. Unlike ``TextSize`` it does not unpack the value."""

    function = "pg_catalog.pg_column_size"
    arity = 1
    output_field = IntegerField()


class Cardinality(Func):
    """How many elements an array has."""

    function = "pg_catalog.cardinality"
    arity = 1
    output_field = IntegerField()


class PlaceOfNull(Func):
    """Where an array of texts has its first NULL, or NULL. An array of arrays is an error."""

    template = "pg_catalog.array_position(%(expressions)s, NULL::text)"
    arity = 1
    output_field = IntegerField()


class TextSize(Func):
    """The bytes of a JSON value or an array as the text that a worker reads. It unpacks the value."""

    template = "pg_catalog.octet_length((%(expressions)s)::text)"
    arity = 1
    output_field = IntegerField()


class JsonType(Func):
    """``array``, ``object``, ``string`` ... of a jsonb value."""

    function = "pg_catalog.jsonb_typeof"
    arity = 1
    output_field = CharField()


# What differs from one error to the next of its kind. PostgreSQL takes the longest of these that fits. None has a
# percent sign, which is special in a statement with parameters.
_VALUES = (
    r"[a-z][a-z0-9+.-]*://[^\s'\"<>]+",  # addresses of pages
    r"[^\s'\"<>()\[\]{}=,:;]+@[^\s'\"<>()\[\]{}=,:;]+",  # and of people
    r"(?<!\w)'[^']*'(?!\w)",  # what is quoted: there is nothing in "can't"
    r"\"[^\"]*\"",
    r"(?<![^\s'\"(=:,\[])(~|[.][.]?)?/[^\s'\"()<>,;:]+",  # paths
    r"\m[a-z]:[\\/][^\s'\"<>]+",
    r"\m[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\M",  # UUIDs, also if they begin with letters alone
    r"-?\m(0x[0-9a-f]+|[0-9a-f]*[0-9][0-9a-f]*)([.,:-]+[0-9a-f]+)*\M",  # numbers, ids, instants, addresses of hosts
    r"[0-9]+([.,][0-9]+)*",
)
_IS_VALUE = "|".join(_VALUES).replace("'", "''")
# Where it was raised: at the end of the text, as ``ErrorReport.last_error`` has it.
_FRAME = r"\[[^][\s]+:[^][\s]+\]$"


class Fingerprint(Func):
    """What an error has in common with others of its kind: where it was raised, and its text without values.

    A changed letter in the template makes it another index (docs/adr/0074).
    """

    template = (
        "(pg_catalog.left(COALESCE("
        f"pg_catalog.\"substring\"(pg_catalog.right(%(expressions)s, 100) COLLATE \"C\", '{_FRAME}') || ' ', '') ||"
        " pg_catalog.regexp_replace(pg_catalog.left("
        f"pg_catalog.regexp_replace(%(expressions)s COLLATE \"C\", ' ?{_FRAME}', ''), 300),"
        f" '{_IS_VALUE}', '#', 'gi'), 200) COLLATE \"C\")"
    )
    arity = 1
    output_field = TextField()


class InUtc(Func):
    """An instant as a key of an index that no other index has: where it is asked for in this order, no other is read.

    It is IMMUTABLE, which an instant that is spelled in the session's time zone is not.
    """

    template = "(%(expressions)s AT TIME ZONE 'UTC')"
    arity = 1
    output_field = DateTimeField()


class LimiterOf(Func):
    """The limiter's name in a lane key, which is empty for a share. A changed letter makes it another index."""

    template = "(pg_catalog.split_part((%(expressions)s)::text, ':', 1) COLLATE \"C\")"
    arity = 1
    output_field = TextField()
