"""Check that the role of this process has the rights on the tables, before each statement is refused."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from pulse_django.queue.words.documentation import page

from .read_only import rows

# What each worker and each watchdog needs, whatever the project uses. A right on one column is enough.
_READ, _ADD, _CHANGE, _DELETE = "SELECT", "INSERT", "UPDATE", "DELETE"
_OF_JOBS = {
    "attempt": (_READ, _ADD, _CHANGE),
    "job": (_READ,),
    "job_hot": (_READ, _CHANGE, _DELETE),
    "token": ("USAGE",),
}
_OF_WORKERS = {**_OF_JOBS, "worker": (_ADD, _CHANGE), "declaration": (_READ,)}
_OF_WATCHDOGS = {**_OF_JOBS, "attempt": (_READ, _ADD, _CHANGE, _DELETE), "duty": (_READ, _ADD, _CHANGE)}

_MISSING = """
SELECT CURRENT_USER, needed.name, needed.privilege
FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])) AS needed (name, privilege)
WHERE NOT CASE needed.privilege::text
    WHEN 'USAGE' THEN pg_catalog.has_sequence_privilege(needed.name, needed.privilege)
    WHEN 'DELETE' THEN pg_catalog.has_table_privilege(needed.name, needed.privilege)
    ELSE pg_catalog.has_any_column_privilege(needed.name, needed.privilege)
END
LIMIT 1
"""


def require_rights(alias: str, *, works: bool, watches: bool) -> None:
    """Raise ImproperlyConfigured with the first right that a worker or its watchdog, or a watchdog alone, lacks."""
    for kind, needed in (("worker", _OF_WORKERS if works else {}), ("watchdog", _OF_WATCHDOGS if watches else {})):
        pairs = [(f"pulse_django_{name}", right) for name, rights in needed.items() for right in rights]
        for role, name, right in rows(alias, _MISSING, [[name for name, _ in pairs], [right for _, right in pairs]]):
            other = ", or start the worker with --no-watchdog" if kind == "watchdog" and works else ""
            raise ImproperlyConfigured(
                f"The database role {role!r} lacks the right {right} on {name} in database {alias!r}. Grant it the "
                f"rights of a {kind}{other}: see “Rights in the database” on {page('explanation/security.md')}"
            )
