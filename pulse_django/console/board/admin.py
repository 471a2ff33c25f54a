"""The board: one page that answers "is it healthy?"."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from pulse_django.console.live import live
from pulse_django.console.readonly import ReadOnly

from .facts import gather, version_of_all

EVERY = 10  # seconds between two loads of the page where no script renews it


class BoardAdmin(ReadOnly, admin.ModelAdmin):
    def get_urls(self) -> list[URLPattern]:
        """It is one page: what the proxy stands for has pages of its own."""
        return [path("", self.admin_site.admin_view(self.changelist_view), name="pulse_django_board_changelist")]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return live(request, version_of_all(request), lambda: self._board(request, extra_context))

    def _board(self, request: HttpRequest, extra_context: dict[str, Any] | None) -> HttpResponse:
        board = gather(request, self.admin_site.name)
        request.current_app = self.admin_site.name  # {% url %} reads it
        context = {
            **self.admin_site.each_context(request),
            "title": _("Board"),
            "opts": self.opts,
            "board": board,
            "every": None if "still" in request.GET else EVERY,
            "sees_jobs": request.user.has_perm("pulse_django.view_job"),
            "sees_queues": request.user.has_perm("pulse_django.view_queue"),
            "sees_workers": request.user.has_perm("pulse_django.view_worker"),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/pulse_django/board/change_list.html", context)
