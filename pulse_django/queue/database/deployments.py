"""Check which deployment a database belongs to: workers of another deployment must not run the jobs of a copy.

``PULSE["DEPLOYMENT"]`` is the name of this deployment. The name of the database's deployment is a row in the table of
declarations, so a copy of the database contains it.
"""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from pulse_django import conf

from .transactions import run_joined

_OWNER = "SELECT fingerprint FROM pulse_django_declaration WHERE scope::text = 'deployment:'"
_NAME = """
INSERT INTO pulse_django_declaration AS declaration (scope, worker, booted_at, fingerprint)
VALUES ('deployment:', '', clock_timestamp(), %s) ON CONFLICT (scope) DO {conflict} RETURNING scope
"""
_NAME_FIRST = _NAME.format(conflict="NOTHING")
_ADOPT = _NAME.format(conflict="UPDATE SET fingerprint = excluded.fingerprint, booted_at = excluded.booted_at")


class WrongDeployment(ImproperlyConfigured):
    """The database belongs to another deployment. Loops treat it as a database that they may not log in to."""

    sqlstate = "28000"


def owner_of(alias: str) -> str | None:
    """Return the name of the deployment that a database belongs to. None: it has no name."""
    return next((name for (name,) in run_joined(alias, _OWNER, [])), None)


def require_deployment(alias: str, *, is_worker: bool = False) -> None:
    """Raise WrongDeployment for a database of another deployment. If it has no name, a worker writes its own."""
    if not (name := conf.current().deployment):
        return
    if is_worker:
        run_joined(alias, _NAME_FIRST, [name])
    if (owner := owner_of(alias)) not in (None, name):
        raise WrongDeployment(
            f"Database {alias!r} belongs to deployment {owner!r}, not to {name!r} (PULSE['DEPLOYMENT']). "
            f"If it is a copy, let this deployment adopt it: python manage.py pulse_check --adopt"
        )


def adopt(alias: str) -> None:
    """Make a database belong to this deployment."""
    run_joined(alias, _ADOPT, [conf.current().deployment])
