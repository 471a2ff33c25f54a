"""The shard of a page of the console: the one in its URL, ``?shard=jobs_1``, or else the first.

A page queries only this database. Its links, forms and redirects keep the shard, and a switch at its top leads to the
other shards. The page of a row uses the shard with the row. With one shard, this module does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any
from urllib.parse import quote

from django.contrib.admin.utils import unquote
from django.core.exceptions import ValidationError
from django.db import Error, router
from django.db.models import AutoField, Model
from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.urls import reverse
from django.utils.html import escape
from django.utils.translation import gettext

from pulse_django.exceptions import InvalidJob, JobIsMoving
from pulse_django.models import Job
from pulse_django.queue.database.read_only import is_lost
from pulse_django.queue.database.tables import explained
from pulse_django.queue.words.display import inert
from pulse_django.safe_logging import SafeLogger

from .placement import alias_of_id, has_several_shards, locate, shards

logger = SafeLogger("pulse_django.console")

SHARD = "shard"  # in the URL
PLACES = ("older", "newer", "before", "after", "page", "p")  # in the URL of a list: other shards have other rows
_FORM = re.compile(r'<form(?=[^>]*\smethod="post")(?![^>]*\saction=)')  # the form is posted to the URL of its page
_LINK = re.compile(r'(\s(?:href|action|formaction)=")([^"#]*)')
_HAS_SHARD = re.compile(rf"[?&;]{SHARD}=")


def shard_of(request: HttpRequest, *, reads: bool = False) -> str:
    """Return the database of a page. ``reads``: a single database may have a replica."""
    if not has_several_shards():
        return router.db_for_read(Job) if reads else router.db_for_write(Job)
    found: str = vars(request).get("_pulse_shard") or next(iter(shards()))
    return found


def show_shard(request: HttpRequest, alias: str) -> None:
    """Use this shard for the rest of a request, and for its redirect."""
    vars(request)["_pulse_shard"] = alias


def request_for(alias: str) -> HttpRequest:
    """Return a request for this shard, for reads outside of a page."""
    request = HttpRequest()
    show_shard(request, alias)
    return request


def alias_to_write(row: Model) -> str:
    """Return the database in which to change a row. With one shard, it may have been read from a replica."""
    if has_several_shards() and row._state.db is not None:
        return row._state.db
    alias: str = router.db_for_write(type(row))
    return alias


def in_shard(said: Any, alias: str) -> Any:
    """Add the shard to a log entry if there are several, because each may have the same names."""
    return f"{said} ({alias})" if has_several_shards() and isinstance(said, str) else said


def cannot_be_read(alias: str, error: Error) -> str:
    said = gettext("Shard %(shard)s could not be read: %(error)s")
    return said % {"shard": alias, "error": inert(explained(error, alias))}


def in_one_shard(model_admin: Any, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Wrap an admin view, so that it uses one shard and shows an error page if that shard does not respond."""

    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
        if not has_several_shards():
            return view(request, *args, **options)
        named = request.GET.get(SHARD)
        if named is not None and named not in shards():
            raise Http404(gettext("There is no such shard."))
        show_shard(request, named or next(iter(shards())))
        try:
            if "object_id" in options:
                before = shard_of(request)
                alias = _shard_of_row(request, model_admin.model, options["object_id"], named)
                show_shard(request, alias or before)
                if alias not in (None, before) and request.method in ("GET", "HEAD"):
                    return HttpResponseRedirect(_address_in(request, alias))
            response = view(request, *args, **options)
        except (Error, JobIsMoving) as error:
            response = _page_of_what_is_away(model_admin, request, error)
        return _carried_on(model_admin, request, response)

    return respond


def _shard_of_row(request: HttpRequest, model: type[Model], object_id: str, named: str | None) -> Any:
    """Return the shard of the row of a page. None: its id does not contain it."""
    rows = model._default_manager
    try:
        if not isinstance(model._meta.pk, AutoField):  # the key is a name, and each shard may have such a row
            key = unquote(object_id)
            return named or next((alias for alias in shards() if rows.using(alias).filter(pk=key).exists()), None)
        row_id = model._meta.pk.to_python(unquote(object_id))
        if named is not None and rows.using(named).filter(pk=row_id).exists():
            return named
        show_shard(request, alias_of_id(row_id))  # this shard is queried first, and may be down
        return locate(row_id).alias if model is Job else shard_of(request)
    except (ValidationError, ValueError, InvalidJob):
        return None


def _address_in(request: HttpRequest, alias: str, but: Collection[str] = PLACES) -> str:
    """Return the URL of this page for another shard, without some parameters."""
    query = request.GET.copy()
    for name in but:
        query.pop(name, None)
    query[SHARD] = alias
    return f"{request.path}?{query.urlencode()}"


def _page_of_what_is_away(model_admin: Any, request: HttpRequest, error: Exception) -> HttpResponseBase:
    said = inert(str(error))
    if not isinstance(error, JobIsMoving):
        alias = shard_of(request)
        if not isinstance(error, Error) or not is_lost(alias):
            raise error
        said = cannot_be_read(alias, error)
        logger.warning("%s", said)
    shown = {"title": gettext("This page could not be read"), "said": said, "may_be_done": request.method == "POST"}
    response: HttpResponseBase = model_admin.page(request, "away", shown, status=503)
    return response


def _carried_on(model_admin: Any, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Show the switch, and add the shard to links to the console."""
    shown, opts = shard_of(request), model_admin.opts
    console = reverse(f"{model_admin.admin_site.name}:app_list", args=[opts.app_label])

    def carried(url: str, separator: str = "&amp;") -> str:
        if url == console or not url.startswith((console, "?")) or _HAS_SHARD.search(url):
            return url
        joint = "?" if "?" not in url else "" if url.endswith("?") else separator
        return f"{url}{joint}{SHARD}={quote(shown, safe='')}"

    def carry(rendered: Any) -> None:
        page = rendered.content.decode(rendered.charset)
        page = _FORM.sub(f'<form action="{escape(_address_in(request, shown, but=()))}"', page)
        page = _LINK.sub(lambda found: found[1] + carried(found[2]), page)
        rendered.content = page.encode(rendered.charset)

    if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
        # A row is in one shard, and a posted page has no URL of its own, so the switch leads to the lists.
        is_of_row = "object_id" in getattr(request.resolver_match, "kwargs", {}) or request.method == "POST"
        lists = model_admin.url(f"{opts.model_name}_changelist")
        response.context_data = {
            **(response.context_data or {}),
            "shown_page": response.resolve_template(response.template_name),
            "shown_shard": shown,
            "other_shards": {
                alias: f"{lists}?{SHARD}={quote(alias, safe='')}" if is_of_row else _address_in(request, alias)
                for alias in shards()
            },
        }
        response.template_name = "admin/pulse_django/in_shard.html"
        response.add_post_render_callback(carry)
    elif "Location" in response.headers:
        address, hash_sign, fragment = response["Location"].partition("#")
        response["Location"] = carried(address, "&") + hash_sign + fragment
    return response
