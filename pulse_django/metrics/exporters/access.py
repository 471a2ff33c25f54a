"""Access to the state of the fleet outside of the admin: the permission ``pulse_view_board``, or a token."""

from __future__ import annotations

import secrets

from django.http import HttpRequest, HttpResponse

from pulse_django import conf

PERMISSION = "pulse_django.pulse_view_board"
PLAIN = "text/plain; charset=utf-8"


def refused(request: HttpRequest) -> HttpResponse | None:
    """Return an error response if the request has no access, or None."""
    said = request.headers.get("Authorization", "")
    if _is_the_token(said):
        return None
    user = getattr(request, "user", None)  # missing without Django's AuthenticationMiddleware
    known = user if user is not None and user.is_authenticated else None
    if known is not None and known.has_perm(PERMISSION):
        return None
    if said or known is not None:
        return HttpResponse("Permission denied.\n", status=403, content_type=PLAIN)
    headers = {"WWW-Authenticate": "Bearer"}
    return HttpResponse("Authentication required.\n", status=401, content_type=PLAIN, headers=headers)


def _is_the_token(said: str) -> bool:
    scheme, _, given = said.partition(" ")
    token = conf.current().metrics_token
    # WSGI decodes headers as Latin-1.
    right = secrets.compare_digest(given.strip().encode("latin-1", "replace"), token.encode())
    return right and token != "" and scheme.lower() == "bearer"
