"""The condition of the schema: all database objects of the models exist and are valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.models import CheckConstraint, Index, Model, UniqueConstraint

from pulse_django.queue.database import rules as job_rules
from pulse_django.queue.database.tables import COLUMNS, indexed_table, models_with_tables
from pulse_django.queue.database.transactions import read_message

from .catalogue import Condition, Limits, Repair, RepairRefused, Sentence, Severity, Subject

# Rebuilding a CHECK needs the strongest lock of the table for a moment. Waiting longer for it would block all claims.
LOCK_TIMEOUT = "2s"
SEQUENCE = "pulse_django_token"

_NAMED = """
SELECT i.relname, x.indisvalid
FROM pg_index AS x
JOIN pg_class AS i ON i.oid = x.indexrelid
JOIN pg_class AS c ON c.oid = x.indrelid
WHERE c.relname = ANY (%s) AND pg_catalog.pg_table_is_visible(c.oid)
UNION ALL
SELECT con.conname, con.convalidated
FROM pg_constraint AS con
JOIN pg_class AS c ON c.oid = con.conrelid
WHERE c.relname = ANY (%s) AND con.contype = 'c' AND pg_catalog.pg_table_is_visible(c.oid)
UNION ALL
SELECT rule.conname, con.convalidated AND rule.convalidated
FROM pg_constraint AS con
JOIN pg_type AS domain ON domain.typname = con.conname AND domain.typnamespace = con.connamespace
JOIN pg_constraint AS rule ON rule.contypid = domain.oid
WHERE con.conrelid = pg_catalog.to_regclass(%s)::oid AND con.conname = %s
UNION ALL
SELECT relname, true FROM pg_class WHERE relkind = 'S' AND relname = %s AND pg_catalog.pg_table_is_visible(oid)
"""

# Unique indexes of one column, or of a column and the era of a job: primary keys, and indexes of unique=True, whose
# names Django generates.
_UNIQUE = """
SELECT c.relname, a.attname
FROM pg_index AS x
JOIN pg_class AS c ON c.oid = x.indrelid
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = x.indkey[0]
WHERE c.relname = ANY (%s) AND x.indisunique AND x.indisvalid AND (x.indnkeyatts = 1 OR x.indisprimary)
    AND x.indpred IS NULL AND pg_catalog.pg_table_is_visible(c.oid)
"""

Named = Index | CheckConstraint | UniqueConstraint


def _named(model: type[Model]) -> Iterator[Named]:
    yield from model._meta.indexes
    for constraint in model._meta.constraints:
        if isinstance(constraint, CheckConstraint | UniqueConstraint):
            yield constraint


def _look(alias: str, limits: Limits) -> Iterable[Subject]:
    tables = [model._meta.db_table for model in models_with_tables()]
    indexed = [indexed_table(model) for model in models_with_tables()]
    questions: list[tuple[str, list[Any]]] = [
        (COLUMNS, [tables]),
        (_UNIQUE, [tables]),
        (_NAMED, [indexed, indexed, job_rules.TABLE, job_rules.NAME, SEQUENCE]),
    ]
    columns, unique, named = map(set, read_message(alias, questions))
    valid_by_name = {name: is_valid for name, is_valid in named}  # noqa: C416 - rows of two
    if SEQUENCE not in valid_by_name:
        yield Subject(SEQUENCE, "the sequence is missing: run migrate")
    for model in models_with_tables():
        table = model._meta.db_table
        for field in model._meta.concrete_fields:
            if (table, field.column) not in columns:
                yield Subject(f"{table}.{field.column}", "the column is missing: run migrate")
            elif field.unique and (table, field.column) not in unique:
                yield Subject(f"{table}.{field.column}", "it has no unique index: add a UNIQUE constraint")
        for one in _named(model):
            kind = "index" if isinstance(one, Index) else "constraint"
            if one.name not in valid_by_name:
                yield Subject(one.name, Sentence(f"the {kind} of %(table)s is missing", {"table": table}))
            elif not valid_by_name[one.name]:
                yield Subject(one.name, Sentence(f"the {kind} of %(table)s is not valid", {"table": table}))


def _rebuild(alias: str, names: Sequence[str]) -> int:
    """Build missing indexes and constraints. Columns and the sequence need ``migrate``.

    If one of them cannot be built, because rows violate it or the table is locked, the others are still built.
    """
    wanted = {one.name: (model, one) for model in models_with_tables() for one in _named(model)}
    rules = [name for name in names if name in wanted and _is_rule(*wanted[name])]
    built, refused = 0, []
    for name in names:
        if name not in wanted or name in rules[1:]:  # they are built together
            continue
        try:
            _build(alias, *wanted[name])
            built += len(rules) if name in rules else 1
        except DatabaseError as error:
            refused.append(f"{name}: {' '.join(str(error).split())}")
    if refused and not built:
        raise RepairRefused("; ".join(refused))
    return built


def _is_rule(model: type[Model], one: Named) -> bool:
    is_check = isinstance(one, CheckConstraint) and indexed_table(model) == job_rules.TABLE
    return is_check and one.name != job_rules.KEPT


def _build(alias: str, model: type[Model], one: Named) -> None:
    connection = connections[alias]
    quoted, table = connection.ops.quote_name(one.name), connection.ops.quote_name(indexed_table(model))
    with connection.schema_editor(atomic=False) as editor:
        if isinstance(one, CheckConstraint):
            if _is_rule(model, one):
                quoted = connection.ops.quote_name(job_rules.NAME)
                _alter(alias, lambda cursor: job_rules.put_rules(cursor, job_rules.rules_of(model, editor)))
            elif not _is_there(alias, model, one.name):
                # New rows must be checked even if existing rows violate the constraint.
                added = f"{_sql_of(model, one.create_sql(model, editor))} NOT VALID"
                _alter(alias, lambda cursor: cursor.execute(added))
            editor.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {quoted}", None)
            return
        # An interrupted build leaves an invalid index.
        editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {quoted}", None)
        if isinstance(one, Index):
            create = one.create_sql(model, editor, concurrently=True)
            editor.execute(_sql_of(model, create), None)
        elif one.condition is not None:  # a constraint cannot be partial, but an index can
            partial = _sql_of(model, one.create_sql(model, editor))
            editor.execute(partial.replace("CREATE UNIQUE INDEX", "CREATE UNIQUE INDEX CONCURRENTLY", 1), None)
        else:
            fields = {field.name: str(field.column) for field in model._meta.concrete_fields}
            columns = ", ".join(connection.ops.quote_name(fields[name]) for name in one.fields)
            editor.execute(f"CREATE UNIQUE INDEX CONCURRENTLY {quoted} ON {table} ({columns})", None)
            using = f"ALTER TABLE {table} ADD CONSTRAINT {quoted} UNIQUE USING INDEX {quoted}"
            _alter(alias, lambda cursor: cursor.execute(using))


def _alter(alias: str, change: Callable[[Any], object]) -> None:
    """Change a table under its strongest lock, or fail soon, because later statements wait for the lock."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        change(cursor)


def _is_there(alias: str, model: type[Model], name: str) -> bool:
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_constraint WHERE conname = %s AND conrelid = %s::regclass::oid)",
            [name, indexed_table(model)],
        )
        return bool(cursor.fetchone()[0])


def _sql_of(model: type[Model], statement: object) -> str:
    """Return a statement of Django for the table that has the indexes and constraints of the model."""
    return str(statement).replace(f'"{model._meta.db_table}"', f'"{indexed_table(model)}"')


CONDITIONS = (
    Condition(
        name="schema-incomplete",
        severity=Severity.BROKEN,
        says="Every column, index, constraint and sequence of the models exists and is valid.",
        means="A migration was interrupted, or an object was dropped: queries scan tables, or invalid states become "
        "possible.",
        to_do="Run migrate. The repair creates objects that migrate considers applied.",
        look=_look,
        repair=Repair(
            says="Build missing indexes concurrently; add and validate missing constraints. One at a time.",
            act=_rebuild,
        ),
    ),
)
