"""Create functions and operators in a schema of the search path, and tell which statements call them.

PostgreSQL takes the candidate whose types fit best from the whole search path; pg_catalog comes first for ties only.
So a planted function is called wherever its types fit a call better than those of the catalogue's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

SCHEMA = "shadows"
# Of our columns, our parameters and the catalogue's columns that we ask for.
TYPES = (
    "smallint", "integer", "bigint", "real", "double precision", "numeric", "text", "varchar", "name", '"char"',
    "boolean", "timestamptz", "timestamp", "interval", "json", "jsonb", "oid", "regclass", "xid", "text[]", "varchar[]",
    "bigint[]", "integer[]", "smallint[]",
)  # fmt: skip
# Which IN, CASE, NULLIF, BETWEEN, LIKE and IS DISTINCT FROM look up by name.
IMPLIED = {"=", "<>", "<", ">", "<=", ">=", "~~", "~~*", "!~~", "!~~*"}

_BODY = "$body$ BEGIN RAISE EXCEPTION $$a shadow was called$$; END $body$"

_PLANT_OPERATORS = """
DO $plant$
DECLARE
    op text; l text; r text; gives text; fn text; types text[] := {types};
BEGIN
    FOREACH op IN ARRAY {operators}::text[] LOOP
        FOREACH l IN ARRAY types LOOP
            FOREACH r IN ARRAY types LOOP
                CONTINUE WHEN to_regoperator(format('pg_catalog.%s(%s,%s)', op, l, r)) IS NOT NULL;
                BEGIN
                    EXECUTE format('SELECT pg_typeof(NULL::%s OPERATOR(pg_catalog.%s) NULL::%s)', l, op, r) INTO gives;
                EXCEPTION WHEN OTHERS THEN
                    gives := CASE WHEN op ~ '^[=<>~!]+[*]?$' THEN 'boolean' WHEN op = '->>' THEN 'text' ELSE l END;
                END;
                fn := format('%I.%I', {schema}, format('%s of %s and %s', gives, l, r));
                IF to_regprocedure(format('%s(%s,%s)', fn, l, r)) IS NULL THEN
                    EXECUTE format(
                        'CREATE FUNCTION %s(%s, %s) RETURNS %s LANGUAGE plpgsql AS {body}', fn, l, r, gives
                    );
                END IF;
                EXECUTE format(
                    'CREATE OPERATOR %I.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = %s)', {schema}, op, l, r, fn
                );
            END LOOP;
        END LOOP;
    END LOOP;
END
$plant$
"""

# Of one and of two arguments in every combination, of more with each in turn another than the catalogue's. Those that
# take no argument are planted with one that has a default.
_SIGNATURES = """
WITH own AS (
    SELECT proname, pronargs, string_to_array(proargtypes::text, ' ')::oid[]::regtype[]::text[] AS args,
        CASE WHEN format_type(prorettype, NULL) ~ '^(any|record|internal|void|trigger)' THEN 'text'
            ELSE format_type(prorettype, NULL) END AS gives
    FROM pg_proc
    WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (%(names)s)
),
type (one) AS (SELECT unnest(%(types)s::regtype[])::text),
wanted AS (
    SELECT proname, gives, 'date DEFAULT NULL' AS args FROM own WHERE pronargs = 0
    UNION
    SELECT proname, gives, one FROM own, type WHERE pronargs = 1 OR proname ~ '^concat'
    UNION
    SELECT proname, gives, concat_ws(',', type.one, other.one)
    FROM own, type, type AS other
    WHERE pronargs = 2 OR proname ~ '^concat'
    UNION
    SELECT proname, gives, array_to_string(args[:place - 1] || one || args[place + 1:], ',')
    FROM own, type, generate_series(1, pronargs) AS place
    WHERE pronargs > 2 AND args::text !~ 'any|internal|cstring|void'
)
SELECT DISTINCT ON (proname, args) proname, args, gives FROM wanted ORDER BY proname, args, gives
"""

_CALLED = """
SELECT CASE refclassid
    WHEN 'pg_operator'::regclass THEN refobjid::regoperator::text
    ELSE refobjid::regprocedure::text
END
FROM pg_depend
LEFT JOIN pg_operator AS o ON refclassid = 'pg_operator'::regclass AND o.oid = refobjid
LEFT JOIN pg_proc AS p ON refclassid = 'pg_proc'::regclass AND p.oid = refobjid
WHERE deptype = 'n' AND %s::regnamespace IN (o.oprnamespace, p.pronamespace) AND {objects}
ORDER BY 1
"""


@contextmanager
def planted(connection: psycopg.Connection, statements: Iterable[str]) -> Iterator[None]:
    """Plant a shadow of everything that these statements call, behind all schemas of the search path."""
    text = "\n".join(map(bare, statements))
    connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
    try:
        connection.execute(
            sql.SQL(_PLANT_OPERATORS).format(
                types=list(TYPES), body=sql.SQL(_BODY), operators=sorted(operators_in(text) | IMPLIED), schema=SCHEMA
            )
        )
        _plant_functions(connection, names_in(text))
        connection.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO PUBLIC")
        yield
    finally:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(SCHEMA)))


def _plant_functions(connection: psycopg.Connection, names: set[str]) -> None:
    signatures = connection.execute(_SIGNATURES, {"names": sorted(names), "types": list(TYPES)}).fetchall()
    connection.execute(
        ";".join(
            f'CREATE FUNCTION {SCHEMA}."{name}"({args}) RETURNS {gives} LANGUAGE plpgsql AS {_BODY}'
            for name, args, gives in signatures
        )
    )


def called_by(connection: psycopg.Connection, statement: str) -> list[str]:
    """Return which shadows a statement calls, also where it would not come to run them.

    PostgreSQL keeps a record of whatever the body of an SQL function refers to."""
    with connection.transaction(force_rollback=True):
        body = f"BEGIN ATOMIC {statement}; SELECT 1; END"
        connection.execute(f"CREATE FUNCTION {SCHEMA}.probe() RETURNS integer LANGUAGE sql {body}".encode())
        connection.execute("SET LOCAL search_path = pg_catalog")  # the next statement is no part of the test
        objects = f"classid = 'pg_proc'::regclass AND objid = '{SCHEMA}.probe'::regproc"
        return [name for (name,) in connection.execute(_CALLED.format(objects=objects), [SCHEMA])]


def called_by_tables(connection: psycopg.Connection) -> list[str]:
    """Return which shadows are part of a constraint, a default or an index."""
    objects = "classid = ANY ('{pg_constraint,pg_attrdef,pg_class,pg_rewrite,pg_trigger}'::regclass[])"
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL search_path = pg_catalog")
        return [name for (name,) in connection.execute(_CALLED.format(objects=objects), [SCHEMA])]


# ------------------------------------------------------------------------------------------------- what stands in SQL

_NOT_CODE = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r"(?:\bpg_catalog\.|(?<![\w.\"]))([a-z_][a-z_0-9]*)\s*\(", re.IGNORECASE)
_CALL = re.compile(r"(?<![\w.\"])([a-z_][a-z_0-9]*)\s*(?=\()(?!\(\s*(?:\*\s*)?\))", re.IGNORECASE)
_OPERATOR = re.compile(r"[-+*/<>=~!@#%^&|`?]+")
# What may stand in front of a parenthesis and calls nothing that is looked up by its name.
SYNTAX = frozenset(
    """
    all and any array as between by case cast coalesce conflict distinct else except exists extract filter from greatest
    having ilike in intersect is join key lateral least like limit materialized not nullif offset on or over returning
    row rows select set some then union using values when where with within
    """.split()  # noqa: SIM905 - words
)
# Django writes these. Their arguments are of the catalogue's own types, where a tie is the catalogue's; those that are
# not would be found by their shadows.
OURS = {"pulse_django_make_day", "pulse_django_drop_day"}  # with casts: nothing fits better
OF_DJANGO = {"MIN", "MAX", "UPPER", "LEFT"}
_NAMES_COLUMNS = re.compile(r"\b(?:AS|INTO|WITH|RECURSIVE)\s+$", re.IGNORECASE)
_IS_CTE = re.compile(r"\w+\s*\([^()]*\)\s+AS\s+(?:(?:NOT\s+)?MATERIALIZED\s*)?\(", re.IGNORECASE)


def bare(statement: str) -> str:
    """Return a statement without its texts and comments."""
    return _NOT_CODE.sub("''", statement)


def names_in(text: str) -> set[str]:
    return {name.lower() for name in _NAME.findall(text)} - SYNTAX


def operators_in(text: str) -> set[str]:
    return {found for found in _OPERATOR.findall(text.replace("(*)", "()")) if found not in ("%", "*.")}


def calls_to_qualify(statement: str) -> list[str]:
    """Return the calls that another schema of the search path may answer.

    A call without arguments, and ``count(*)``, fits the catalogue's own exactly: ties are the catalogue's.
    """
    text = bare(statement).replace("OPERATOR(pg_catalog.", "")
    return sorted(
        {
            found[1]
            for found in _CALL.finditer(text)
            if found[1].lower() not in SYNTAX
            and found[1] not in OF_DJANGO | OURS
            and not _NAMES_COLUMNS.search(text, 0, found.start())
            and not _IS_CTE.match(text, found.start())
        }
    )
