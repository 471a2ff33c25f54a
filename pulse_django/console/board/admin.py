"""The board: one page that shows whether the fleet is healthy."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext_lazy as _

from pulse_django.console.live import live
from pulse_django.console.pages import ReadOnly

from .facts import gather, version_of_all

EVERY = 10  # seconds between reloads in browsers without JavaScript


class BoardAdmin(ReadOnly):
    def get_urls(self) -> list[URLPattern]:
        """Return only the address of the board: it has no pages of rows."""
        return [self.path("", self.changelist_view, "changelist")]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return live(request, version_of_all(request), lambda: self._board(request, extra_context or {}))

    def _board(self, request: HttpRequest, extra: dict[str, Any]) -> HttpResponse:
        sees = {
            f"sees_{one}s": request.user.has_perm(f"pulse_django.pulse_view_{one}s")
            for one in ("job", "queue", "worker")
        }
        every, board = None if "still" in request.GET else EVERY, gather(request, self.admin_site.name)
        shown = {"title": _("Board"), "board": board, "every": every, **sees, **extra}
        return self.page(request, "board/change_list", shown)
