"""What the admins of the console share: who gets in, what an address answers, and the acts on the page of a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import Error
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse, TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.translation import get_language, gettext
from django.views.decorators.http import require_POST

from pulse_django.exceptions import InvalidJob, PulseError
from pulse_django.operations.acts import errors_in_words
from pulse_django.queue.database.database_errors import is_refused
from pulse_django.queue.words.display import UNSEEN, escaped, inert
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.shards.page import SHARD, in_one_shard, in_shard, shard_of
from pulse_django.shards.placement import has_several_shards

# What the permissions call the rows of a model: ``pulse_view_jobs``. Django's own names, such as ``view_job``, would be
# those of a project's model Job as well, and to look one of them up by its name would find two.
PERMITTED = {
    "board": "board",
    "deadletter": "jobs",
    "job": "jobs",
    "limiter": "limits",
    "queue": "queues",
    "schedule": "schedules",
    "storedbatch": "workflows",
    "taskoverview": "jobs",
    "worker": "workers",
}


def _is_permitted(request: HttpRequest, verb: str, model: str) -> bool:
    return request.user.has_perm(f"pulse_django.pulse_{verb}_{PERMITTED[model]}")


class ConsoleAdmin(admin.ModelAdmin):
    """An admin of the console. Who may do nothing with its rows gets in nowhere."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        has_perm, rows = request.user.has_perm, PERMITTED[str(self.opts.model_name)]
        return has_perm(f"pulse_django.pulse_view_{rows}") or has_perm(f"pulse_django.pulse_change_{rows}")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_permitted(request, "add", str(self.opts.model_name))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_permitted(request, "change", str(self.opts.model_name))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_permitted(request, "delete", str(self.opts.model_name))

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows.using(shard_of(request)) if has_several_shards() else rows

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        text = in_shard(message, shard_of(request)) if has_several_shards() else message
        return super().log_change(request, obj, text)

    @property
    def urls(self) -> list[URLPattern]:
        return [
            URLPattern(one.pattern, _answered(self, one.callback), one.default_args, one.name)
            if isinstance(one, URLPattern)
            else one  # what a project includes is its own
            for one in super().urls
        ]

    def path(self, route: str, view: Callable[..., HttpResponseBase], name: str) -> URLPattern:
        """Return an address beside those of Django."""
        return path(route, self.admin_site.admin_view(view), name=f"pulse_django_{self.opts.model_name}_{name}")

    def url(self, page: str, *args: Any) -> str:
        """Return the address of a page of the console, such as ``job_change``."""
        return reverse(f"{self.admin_site.name}:pulse_django_{page}", args=args)

    def redirect(self, page: str, *args: Any) -> HttpResponse:
        return HttpResponseRedirect(self.url(page, *args))

    def page(self, request: HttpRequest, name: str, shown: Mapping[str, Any], **options: Any) -> HttpResponse:
        """Return a page. ``name`` is that of its template."""
        request.current_app = self.admin_site.name  # {% url %} reads it
        context = {**self.admin_site.each_context(request), "opts": self.opts, **shown}
        return TemplateResponse(request, f"admin/pulse_django/{name}.html", context, **options)

    def may(self, request: HttpRequest, permission: str, row: Any = None) -> bool:
        return self.has_view_permission(request, row) and request.user.has_perm(f"pulse_django.{permission}")

    def tell(self, request: HttpRequest, row: Any, done: str, otherwise: Any, *, reason: str = "") -> None:
        """Say in a message and in the log what was done to a row. Empty: say why nothing was."""
        if done:
            self.log_change(request, row, f"{done}: {reason}" if reason else done)
            self.message_user(request, done, messages.SUCCESS)
        elif otherwise:
            self.message_user(request, otherwise, messages.WARNING)


class ReadOnly(ConsoleAdmin):
    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ShardList(ChangeList):
    """A list of the admin whose address may name a shard, which is no filter."""

    def get_filters(self, request: HttpRequest) -> Any:
        self.filter_params.pop(SHARD, None)
        return super().get_filters(request)


def url_for(request: HttpRequest, site: str, model: str, page: str, *args: Any) -> str:
    """Return the address of a page. Empty: this user may not see it, or this site of the project does not show it."""
    if not _is_permitted(request, "view", model):
        return ""
    try:
        return reverse(f"{site}:pulse_django_{page}", args=args)
    except NoReverseMatch:
        return ""


# Acts on the page of a row: each is a form, and leaves an entry in the log of the admin.


class RowForm(forms.Form):
    """What an act asks about a row."""

    def __init__(self, row: Any, data: Any = None, **options: Any) -> None:
        super().__init__(data, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAct:
    name: str
    label: Any = ""
    says: Any = ""
    permission: str = ""
    fits: Callable[[Any], bool] = lambda row: True
    # With the alias, the row, what was given and the user. Returns what was done, for the message and the log.
    do: Callable[[str, Any, Mapping[str, Any], str], str]
    form: type[RowForm] = RowForm
    refused: Any = ""  # what is said instead where it was not done


class ActsOnRows(ConsoleAdmin):
    """An admin whose rows have acts."""

    acts: Sequence[RowAct]
    otherwise: Any = ""  # what is said where nothing was done

    def row_of(self, request: HttpRequest, object_id: str) -> Any:
        """Return the facts that the acts are about, or raise ``Http404``."""
        raise NotImplementedError

    def logged(self, row: Any) -> Model:
        """Return the row of the table, as the log and the address name it."""
        raise NotImplementedError

    def may_act(self, request: HttpRequest, act: RowAct, row: Any) -> bool:
        return self.may(request, act.permission)

    @method_decorator(require_POST)
    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Do one thing to one row."""
        act = next((one for one in self.acts if one.name == name), None)
        if act is None:
            raise Http404
        row = self.row_of(request, object_id)
        if not self.may_act(request, act, row):
            raise PermissionDenied
        form, label, logged = act.form(row, request.POST, prefix=name), act.label and f"{act.label}: ", self.logged(row)
        try:
            if (fits := act.fits(row)) and not form.is_valid():
                raise InvalidJob(errors_in_words(form))
            done = act.do(shard_of(request), row, form.cleaned_data, request.user.get_username()) if fits else ""
        except PulseError as error:
            self.message_user(request, f"{label}{error}", messages.ERROR)
        else:
            self.tell(request, logged, done, act.refused or self.otherwise)
        return self.redirect(f"{self.opts.model_name}_change", quote(logged.pk))

    def offered(self, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
        """Return the buttons that fit the row and the user."""
        page, key = f"{self.opts.model_name}_act", quote(self.logged(row).pk)
        return [
            {"act": act, "form": act.form(row, prefix=act.name), "url": self.url(page, key, act.name)}
            for act in self.acts
            if act.fits(row) and self.may_act(request, act, row)
        ]


# What each address answers.


def _answered(model_admin: ConsoleAdmin, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Let a view be for those who may see the rows, about one shard, and say what PostgreSQL refuses the site."""

    @wraps(view)
    def in_words(request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **options)
        except Error as error:
            if not is_refused(error):
                raise
            shown = {"title": gettext("The database refused this"), "error": inert(error_in_one_line(error))}
            return model_admin.page(request, "refused", shown, status=403)

    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
        if "\0" in options.get("object_id", ""):  # PostgreSQL takes it in no text
            raise Http404
        if not model_admin.admin_site.has_permission(request):  # the view lets them log in
            return view(request, *args, **options)
        if not any(model_admin.get_model_perms(request).values()):
            raise PermissionDenied
        response = in_one_shard(model_admin, in_words)(request, *args, **options)
        if isinstance(response, HttpResponse) and response.get("Content-Type", "").startswith("text/html"):
            if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
                response.add_post_render_callback(_look_through)
            else:
                _look_through(response)
        return response

    return respond


# Invisible characters, spelt out on each page of the console.
#
# Names, arguments and errors come from rows and stand in some hundred places of the templates, of Django's own ones
# too. A character that turns the text around could show ``exe.jpg`` for ``gpj.exe`` in any of them. So the page as a
# whole is searched after it is rendered and before it is sent.


# What a form sends back has to stay what it is: there a character becomes a reference to itself, which is as safe to
# read in the source and the same to the browser.
_SENT_BACK = r'<textarea\b[^>]*>.*?</textarea>|\svalue="[^"]*"'
_FOUND = re.compile(f"{_SENT_BACK}|{UNSEEN.pattern}", re.DOTALL)
# Words of these languages, and so Django's translations, hold joiners and marks of direction. They stay there.
_WITH_MARKS = frozenset({"ar", "bn", "ckb", "fa", "he", "hi", "km", "kn", "ml", "mr", "ug", "ur"})
_MARKS = frozenset("\u200b\u200c\u200d\u200e\u200f")
_JOINERS, _LATIN = "\u200c\u200d", "\u024f"
_NOT_REFERABLE = re.compile("[\x80-\x9f]")  # a reference to one of these is another character, by the rules of HTML


def all_visible(page: str, language: str = "") -> str:
    """Return the HTML with each unseen character of its texts spelt out, as ``\\u202e``."""
    if UNSEEN.search(page) is None:
        return page
    kept = _MARKS if language.partition("-")[0] in _WITH_MARKS else frozenset()

    def shown(found: re.Match[str]) -> str:
        text = found[0]
        if len(text) > 1:
            return UNSEEN.sub(_referred, text)
        return text if text in kept or _joins(found) else escaped(text)

    return _FOUND.sub(shown, page)


def _joins(found: re.Match[str]) -> bool:
    """Whether it joins or parts two letters or pictures, as in many scripts and in emoji. It turns no text around."""
    before, after = found.string[found.start() - 1 : found.start()], found.string[found.end() : found.end() + 1]
    return found[0] in _JOINERS and before > _LATIN and after > _LATIN


def _referred(found: re.Match[str]) -> str:
    return found[0] if _NOT_REFERABLE.match(found[0]) else f"&#x{ord(found[0]):x};"


def _look_through(response: HttpResponse) -> None:
    page = response.content.decode(response.charset)
    if (seen := all_visible(page, get_language() or "")) is not page:
        response.content = seen.encode(response.charset)
