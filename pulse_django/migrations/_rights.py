"""Who owns what a migration adds, and who may use it: as it stands with the tables that are there.

Without these rights a worker or a watchdog with a role of its own could not go on after the migration.
"""

from __future__ import annotations

# The tables may belong to another role than the one that migrates.
_SAME_OWNER = """
DO $$
DECLARE
    owner text := (SELECT relowner::regrole::text FROM pg_class WHERE oid = 'pulse_django_job_hot'::regclass::oid);
BEGIN
    {changes}
END
$$
"""
_CHANGE = "EXECUTE pg_catalog.format('ALTER {what} OWNER TO %1$s', owner);"

_GRANT = """
DO $$
DECLARE
    allowed record;
BEGIN
    FOR allowed IN
        SELECT DISTINCT acl.grantee
        FROM {source}
        WHERE {condition} AND acl.privilege_type = '{privilege}' AND acl.grantee <> c.relowner
    LOOP
        EXECUTE pg_catalog.format(
            'GRANT {granted} TO %s',
            CASE allowed.grantee WHEN 0 THEN 'PUBLIC' ELSE allowed.grantee::regrole::text END
        );
    END LOOP;
END
$$
"""
_OF_TABLE = "pg_class AS c, pg_catalog.aclexplode(c.relacl) AS acl"
_OF_COLUMN = """pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid
        CROSS JOIN LATERAL pg_catalog.aclexplode(a.attacl) AS acl"""


def same_owner(*what: str) -> str:
    """Return the SQL that gives these, such as ``TABLE name``, to the owner of the table of jobs."""
    return _SAME_OWNER.format(changes="\n    ".join(_CHANGE.format(what=one) for one in what))


def grant_like(privilege: str, table: str, granted: str) -> str:
    """Return the SQL that grants ``granted`` to all who have a privilege on a table."""
    condition = f"c.oid = '{table}'::regclass::oid"
    return _GRANT.format(source=_OF_TABLE, condition=condition, privilege=privilege, granted=granted)


def grant_like_column(privilege: str, table: str, column: str, granted: str) -> str:
    """Return the SQL that grants ``granted`` to all who have a privilege on one column of a table."""
    condition = f"c.oid = '{table}'::regclass::oid AND a.attname = '{column}'"
    return _GRANT.format(source=_OF_COLUMN, condition=condition, privilege=privilege, granted=granted)
