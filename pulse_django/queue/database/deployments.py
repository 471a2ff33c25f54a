"""Which deployment a database belongs to: workers of another one do not act on it, as on a copy of production.

``PULSE["DEPLOYMENT"]`` is the name of this one. That of the database is in a row beside those of declarations, so it is
copied with the jobs.
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
    """The database belongs to another deployment. For a loop that is the same as one that it may not log in to."""

    sqlstate = "28000"


def owner_of(alias: str) -> str | None:
    """Return the name of the deployment that a database belongs to. None: nobody has written one."""
    return next((name for (name,) in run_joined(alias, _OWNER, [])), None)


def require_deployment(alias: str, *, is_worker: bool = False) -> None:
    """Raise WrongDeployment for a database of another deployment. A worker writes the name where there is none."""
    if not (name := conf.current().deployment):
        return
    if is_worker:
        run_joined(alias, _NAME_FIRST, [name])
    if (owner := owner_of(alias)) not in (None, name):
        raise WrongDeployment(
            f"Database {alias!r} belongs to deployment {owner!r}, and this one is {name!r} (PULSE['DEPLOYMENT']). "
            f"If it is a copy, let this deployment adopt it: python manage.py pulse_check --adopt"
        )


def adopt(alias: str) -> None:
    """Let a database belong to this deployment from now on."""
    run_joined(alias, _ADOPT, [conf.current().deployment])
