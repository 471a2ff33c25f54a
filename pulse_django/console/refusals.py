"""What PostgreSQL refuses the role of the site: a page that says so, on every address of the console."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import Error
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.translation import gettext

from pulse_django.store.database_errors import is_refused
from pulse_django.words.display import inert
from pulse_django.words.payloads import error_in_one_line


def refused_in_words(model_admin: Any, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **options)
        except Error as error:
            if not is_refused(error):
                raise
            return _page(model_admin, request, inert(error_in_one_line(error)))

    return respond


def _page(model_admin: Any, request: HttpRequest, error: str) -> HttpResponseBase:
    request.current_app = model_admin.admin_site.name  # {% url %} reads it
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "title": gettext("The database refused this"),
        "error": error,
    }
    return TemplateResponse(request, "admin/pulse_django/refused.html", context, status=403)
