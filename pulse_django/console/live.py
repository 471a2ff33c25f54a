"""Pages that refresh themselves. If nothing has changed, the answer is 304 and costs one short statement."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.translation import get_language

from pulse_django.queue.database.tables import changes_in


def version_of(*aliases: str) -> str:
    """Return the version of a page about these databases, or "" if it is unknown."""
    found = {alias: changes_in(alias) for alias in aliases}
    return " ".join(f"{alias} {changes}" for alias, changes in found.items()) if all(found.values()) else ""


def live(request: HttpRequest, version: str, page: Callable[[], HttpResponse]) -> HttpResponse:
    """Return the page, or 304 if the browser has this version."""
    if not version or request.method != "GET":
        return page()
    # A page depends on the user, the address, the language and the version.
    facts = (request.user.pk, request.get_full_path(), get_language(), version)
    tag = f'"{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}"'
    if request.headers.get("If-None-Match", "").removeprefix("W/") == tag:
        return HttpResponseNotModified(headers={"ETag": tag})
    response = page()
    response["ETag"] = tag
    return response
