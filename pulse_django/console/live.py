"""Pages that renew themselves: an answer of 304 costs one short statement, if nothing has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.translation import get_language

from pulse_django.queue.database.tables import changes_in


def version_of(*aliases: str) -> str:
    """Return the version of a page about these databases. Empty: it cannot be told."""
    found = {alias: changes_in(alias) for alias in aliases}
    return " ".join(f"{alias} {changes}" for alias, changes in found.items()) if all(found.values()) else ""


def live(request: HttpRequest, version: str, page: Callable[[], HttpResponse]) -> HttpResponse:
    """Return the page, or that the one with this version is still right."""
    if not version or request.method != "GET":
        return page()
    # What is the same for one user, address and language alone.
    facts = (request.user.pk, request.get_full_path(), get_language(), version)
    tag = f'"{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}"'
    if request.headers.get("If-None-Match", "").removeprefix("W/") == tag:
        return HttpResponseNotModified(headers={"ETag": tag})
    response = page()
    response["ETag"] = tag
    return response
