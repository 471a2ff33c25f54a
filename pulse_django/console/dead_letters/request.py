"""What a request to the pages of dead letters asks for: which group, which of its letters, from where on."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import Http404, HttpRequest
from django.utils.translation import gettext_lazy as _

from pulse_django.console.search_terms import number_in

from . import groups

MOST_PAGES = groups.MOST_GROUPS * 2 // groups.GROUPS_ON_A_PAGE
MOST_SELECTED = 500


def fingerprint_in(request: HttpRequest) -> str:
    """Read it from the address: a field of a form would have its line breaks rewritten by the browser."""
    fingerprint = request.GET.get("error")
    if fingerprint is None or "\x00" in fingerprint or len(fingerprint) > groups.MOST_CHARACTERS:
        raise Http404(_("No dead letters have this error."))
    return fingerprint


def page_in(request: HttpRequest) -> int:
    number = number_in(request.GET.get("page", ""))
    return number if number is not None and number < MOST_PAGES else 0


def place_in(request: HttpRequest) -> groups.Place:
    """Where to go on; nonsense begins at the latest."""
    return groups.Place.named(request.GET.get("older", "")) or groups.LATEST


def other_selection(request: HttpRequest) -> dict[str, str]:
    """Return the address of the same page of a group with all selected, or with none if all are."""
    page = {name: str(request.GET[name]) for name in ("older",) if name in request.GET}
    return page if "select" in request.GET else page | {"select": "all"}


def until_in(request: HttpRequest) -> groups.Place | None:
    """The newest dead letter that the page showed, or that its question was about."""
    return groups.Place.named(request.POST.get("until", ""))


def means_all(request: HttpRequest) -> bool:
    return request.POST.get("scope") == "all"


def means_canary(request: HttpRequest) -> bool:
    return request.POST.get("scope") == "canary"


def ids_in(request: HttpRequest) -> Sequence[int]:
    numbers = (number_in(text) for text in request.POST.getlist("id")[:MOST_SELECTED])
    return list(dict.fromkeys(number for number in numbers if number is not None))
