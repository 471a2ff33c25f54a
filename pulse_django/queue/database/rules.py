"""The rules of a job as constraints of a domain: PostgreSQL parses these once a session (docs/adr/0088).

PostgreSQL parses the text of a CHECK for each statement that writes a row. So the table has one short CHECK, which
casts the columns that these rules use to the domain. The rules keep their names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models import CheckConstraint
from django.db.models.sql import Query

TABLE = "pulse_django_job_hot"
NAME = "pulse_django_job_rules"  # of the domain, and of the CHECK with the cast
_ROW = "pulse_django_job_ruled"  # the base type of the domain

# This rule stays a CHECK of the table. It is about the stored size, and the cast would unpack values that are stored
# outside of their row.
KEPT = "pulse_job_payload_is_bounded"

# These columns reach the rules only until the first claim, because they do not change any more: the cast unpacks values
# that are stored outside of their row, and each claim, heartbeat and retry would pay for it.
UNTIL_CLAIMED = frozenset({"on_dead"})

# Columns that are never NULL and have a fixed width come first: PostgreSQL finds these without reading the others.
_COLUMNS = """
SELECT pg_catalog.quote_ident(attname), pg_catalog.format_type(atttypid, atttypmod)
FROM pg_attribute
WHERE attrelid = %s::regclass::oid AND attname = ANY (%s::name[])
ORDER BY attnotnull DESC, attlen > 0 DESC, attname = 'status'::name DESC, attnum
"""
# Domain and type are in the schema of the table, whatever the search path is.
_SCHEMA = """
SELECT pg_catalog.quote_ident(nspname)
FROM pg_namespace
WHERE oid = (SELECT relnamespace FROM pg_class WHERE oid = %s::regclass::oid)
"""
# Each statement is sent alone, because Citus passes only single ones on. The CHECK needs a boolean, so it compares a
# column that is always positive.
_DROP = (
    f"ALTER TABLE {TABLE} DROP CONSTRAINT IF EXISTS {NAME}",
    f"DROP DOMAIN IF EXISTS {{schema}}.{NAME}",
    f"DROP TYPE IF EXISTS {{schema}}.{_ROW}",
)
_CREATE = (
    f"CREATE TYPE {{schema}}.{_ROW} AS ({{columns}})",
    f"CREATE DOMAIN {{schema}}.{NAME} AS {{schema}}.{_ROW} {{rules}}",
    f"ALTER TABLE {TABLE} ADD CONSTRAINT {NAME} CHECK ((ROW({{names}})::{{schema}}.{NAME}).id > 0) NOT VALID",
)


class Rule(NamedTuple):
    condition: str  # of the domain: VALUE is the row
    columns: frozenset[str]


def put_rules(cursor: Any, rules: dict[str, Rule]) -> None:
    """Recreate the domain. Existing rows are not checked."""
    used = frozenset({"id"}).union(*(rule.columns for rule in rules.values()))
    cursor.execute(_COLUMNS, [TABLE, sorted(used)])
    columns = dict(cursor.fetchall())
    parts = {
        "schema": drop_rules(cursor),
        "columns": ", ".join(f"{name} {kind}" for name, kind in columns.items()),
        "names": ", ".join(
            f"CASE WHEN attempts = 0 THEN {name} END" if name in UNTIL_CLAIMED else name for name in columns
        ),
        "rules": " ".join(f"CONSTRAINT {name} CHECK ({rule.condition})" for name, rule in rules.items()),
    }
    for statement in _CREATE:
        cursor.execute(statement.format(**parts))


def drop_rules(cursor: Any) -> str:
    """Drop the domain. Return its schema."""
    cursor.execute(_SCHEMA, [TABLE])
    schema: str = cursor.fetchone()[0]
    for statement in _DROP:
        cursor.execute(statement.format(schema=schema))
    return schema


def rules_of(model: Any, editor: Any) -> dict[str, Rule]:
    """Return the constraints of the job model that belong to the domain, by name."""
    checks = [one for one in model._meta.constraints if isinstance(one, CheckConstraint)]
    return {check.name: _rule(model, check.condition, editor) for check in checks if check.name != KEPT}


def _rule(model: Any, condition: Any, editor: Any) -> Rule:
    columns = set()

    def of_value(column: str) -> str:
        columns.add(column)
        return f"(VALUE).{editor.quote_name(column)}"

    query = Query(model=model, alias_cols=False)
    compiler = query.get_compiler(connection=editor.connection)
    compiler.quote_name = compiler.quote_name_unless_alias = of_value  # Django 6.1, and those before
    sql, values = query.build_where(condition).as_sql(compiler, editor.connection)
    return Rule(sql % tuple(editor.quote_value(value) for value in values), frozenset(columns))
