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


class TextSize(Func):
    """The bytes of a JSON value as the text that a worker reads. It unpacks the value."""

    template = "pg_catalog.octet_length((%(expressions)s)::text)"
    arity = 1
    output_field = IntegerField()


class JsonType(Func):
    """``array``, ``object``, ``string`` ... of a jsonb value."""

    function = "pg_catalog.jsonb_typeof"
    arity = 1
    output_field = CharField()


class Fingerprint(Func):
    """What an error has in common with others of its kind: its text without numbers, ids and addresses.

    A changed letter in the template makes it another index (docs/adr/0024).
    """

    template = (
        "(pg_catalog.left(pg_catalog.regexp_replace(pg_catalog.left(%(expressions)s, 400),"
        " '\\m(0x)?[0-9a-f]*[0-9][0-9a-f]*(-[0-9a-f]+)*\\M|[0-9]+', '#', 'gi'), 200) COLLATE \"C\")"
    )
    arity = 1
    output_field = TextField()


class LimiterOf(Func):
    """The limiter's name in a lane key, which is empty for a share. A changed letter makes it another index."""

    template = "(pg_catalog.split_part((%(expressions)s)::text, ':', 1) COLLATE \"C\")"
    arity = 1
    output_field = TextField()
