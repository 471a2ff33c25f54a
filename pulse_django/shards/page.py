"""Which shard a page of the console is about: the one in its address, ``?shard=jobs_1``, or else the first.

A page asks this database alone. Its links, forms and redirects carry the shard on, and a switch at its top leads to
the others. The page of one row is that of the shard in which the row is. With one shard nothing of this happens.
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

SHARD = "shard"  # in the address
PLACES = ("older", "newer", "before", "after", "page", "p")  # in the address of a list: other shards have other rows
_FORM = re.compile(r'<form(?=[^>]*\smethod="post")(?![^>]*\saction=)')  # it is posted to the address of its page
_LINK = re.compile(r'(\s(?:href|action|formaction)=")([^"#]*)')
_HAS_SHARD = re.compile(rf"[?&;]{SHARD}=")


def shard_of(request: HttpRequest, *, reads: bool = False) -> str:
    """Return the database that a page is about. ``reads``: a single database may have a replica for it."""
    if not has_several_shards():
        return router.db_for_read(Job) if reads else router.db_for_write(Job)
    found: str = vars(request).get("_pulse_shard") or next(iter(shards()))
    return found


def show_shard(request: HttpRequest, alias: str) -> None:
    """Let the rest of a request, and its redirect, be about this shard."""
    vars(request)["_pulse_shard"] = alias


def request_for(alias: str) -> HttpRequest:
    """Return a request of a page about this shard, for what is read without one."""
    request = HttpRequest()
    show_shard(request, alias)
    return request


def alias_to_write(row: Model) -> str:
    """Return where a row is to be changed. With one shard it may have been read from a replica."""
    if has_several_shards() and row._state.db is not None:
        return row._state.db
    alias: str = router.db_for_write(type(row))
    return alias


def in_shard(said: Any, alias: str) -> Any:
    """Add the shard to an entry of the log, if there are several: a name may be in each."""
    return f"{said} ({alias})" if has_several_shards() and isinstance(said, str) else said


def cannot_be_read(alias: str, error: Error) -> str:
    said = gettext("Shard %(shard)s could not be read: %(error)s")
    return said % {"shard": alias, "error": inert(explained(error, alias))}


def in_one_shard(model_admin: Any, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Let a view of the admin be about one shard, and say so if that shard does not respond."""

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
    """Return the shard of the row that a page is about. None: its id does not say it."""
    rows = model._default_manager
    try:
        if not isinstance(model._meta.pk, AutoField):  # a name, and each shard may have such a row
            key = unquote(object_id)
            return named or next((alias for alias in shards() if rows.using(alias).filter(pk=key).exists()), None)
        row_id = model._meta.pk.to_python(unquote(object_id))
        if named is not None and rows.using(named).filter(pk=row_id).exists():
            return named
        show_shard(request, alias_of_id(row_id))  # which is asked first, and may be away
        return locate(row_id).alias if model is Job else shard_of(request)
    except (ValidationError, ValueError, InvalidJob):
        return None


def _address_in(request: HttpRequest, alias: str, but: Collection[str] = PLACES) -> str:
    """Return the address of this page in another shard, but for some parameters."""
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
    """Show the switch, and let the links to the console lead to the same shard."""
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
        # What a row is about is in one shard, and a posted page cannot be asked for: the switch leads to the lists.
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
