"""Base classes of the admins of the console: permissions, error pages, and the acts on the page of a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import Error, router, transaction
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse, TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.translation import get_language, gettext
from django.views.decorators.http import require_POST

from pulse_django.exceptions import InvalidJob, PulseError
from pulse_django.models import Job
from pulse_django.operations.acts import Act, Given, errors_in_words
from pulse_django.queue.database.database_errors import is_refused
from pulse_django.queue.words.display import UNSEEN, escaped, inert
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.shards.page import SHARD, in_one_shard, in_shard, shard_of
from pulse_django.shards.placement import has_several_shards

# The names of models in permissions, such as ``pulse_view_jobs``. Django's own names, such as ``view_job``, would be
# ambiguous in a project that has its own model Job.
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
    """An admin of the console. Users without a permission for its rows see none of its pages."""

    # The lookups that the address of its list may contain, besides the names of filters.
    allowed_lookups: Collection[str] = ()

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow only these lookups. Others could find out values that the user may not see."""
        filters = {getattr(one, "parameter_name", None) for one in self.list_filter}
        # PostgreSQL text cannot contain NUL. Filters handle it on their own.
        return lookup in filters or (lookup in self.allowed_lookups and "\0" not in value)

    unlisted: ClassVar[tuple[str, ...]] = ()  # long columns that the list does not show, so it does not read them

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
        if "object_id" not in getattr(request.resolver_match, "kwargs", ()):
            rows = rows.defer(*self.unlisted)
        return rows.using(shard_of(request)) if has_several_shards() else rows

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        text = in_shard(message, shard_of(request)) if has_several_shards() else message
        return super().log_change(request, obj, text)

    @property
    def urls(self) -> list[URLPattern]:
        return [
            URLPattern(one.pattern, _answered(self, one.callback), one.default_args, one.name)
            if isinstance(one, URLPattern)
            else one  # included by a project
            for one in super().urls
        ]

    def path(self, route: str, view: Callable[..., HttpResponseBase], name: str) -> URLPattern:
        """Return an additional address of this admin."""
        return path(route, self.admin_site.admin_view(view), name=f"pulse_django_{self.opts.model_name}_{name}")

    def url(self, page: str, *args: Any) -> str:
        """Return the address of a page of the console, such as ``job_change``."""
        return reverse(f"{self.admin_site.name}:pulse_django_{page}", args=args)

    def redirect(self, page: str, *args: Any) -> HttpResponse:
        return HttpResponseRedirect(self.url(page, *args))

    def page(self, request: HttpRequest, name: str, shown: Mapping[str, Any], **options: Any) -> HttpResponse:
        """Return a page. ``name`` is the name of its template."""
        request.current_app = self.admin_site.name  # {% url %} reads it
        context = {**self.admin_site.each_context(request), "opts": self.opts, **shown}
        return TemplateResponse(request, f"admin/pulse_django/{name}.html", context, **options)

    def may(self, request: HttpRequest, permission: str, row: Any = None) -> bool:
        return self.has_view_permission(request, row) and request.user.has_perm(f"pulse_django.{permission}")

    def tell(self, request: HttpRequest, row: Any, done: str, otherwise: Any, *, reason: str = "") -> None:
        """Report ``done`` in a message and in the log. If it is empty, show ``otherwise``."""
        if done:
            self.log_change(request, row, f"{done}: {reason}" if reason else done)
            self.message_user(request, done, messages.SUCCESS)
        elif otherwise:
            self.message_user(request, otherwise, messages.WARNING)

    def act_at_once(
        self, request: HttpRequest, act: Act, jobs: Iterable[Job], given: Given, said: str, chosen: int | None = None
    ) -> None:
        """Act on these jobs, log each that was changed, and report the results, for all ``chosen`` ones."""
        alias, found = shard_of(request), {job.pk: job for job in jobs}
        user: Any = request.user.pk  # a user with a permission is not anonymous
        chosen = len(found) if chosen is None else chosen
        # In the transaction, if it can be: a change that is rolled back is not logged.
        is_logged_there = not act.commits_by_itself and alias == router.db_for_write(LogEntry)

        def log(changed: Sequence[Job]) -> None:
            if changed:
                flag = DELETION if act.name == "delete" else CHANGE
                LogEntry.objects.log_actions(user, changed, flag, change_message=in_shard(said, alias))

        with nullcontext() if act.commits_by_itself else transaction.atomic(using=alias):
            answer = act.do(alias, list(found), given) if found else {}
            changed = [found[job_id] for name in act.changes for job_id in answer.get(name, ())]
            if is_logged_there:
                log(changed)
        if not is_logged_there:
            log(changed)
        level = messages.SUCCESS if len(changed) == chosen else messages.WARNING
        self.message_user(request, act.in_words(act.counts(answer, chosen)), level)


class ReadOnly(ConsoleAdmin):
    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ShardList(ChangeList):
    """A list of the admin whose address may have a shard, which is not a filter."""

    def get_filters(self, request: HttpRequest) -> Any:
        self.filter_params.pop(SHARD, None)
        try:
            return super().get_filters(request)
        except DisallowedModelAdminLookup as error:
            raise IncorrectLookupParameters from error


def url_for(request: HttpRequest, site: str, model: str, page: str, *args: Any) -> str:
    """Return the address of a page, or "" if this user may not see it or this admin site does not have it."""
    if not _is_permitted(request, "view", model):
        return ""
    try:
        return reverse(f"{site}:pulse_django_{page}", args=args)
    except NoReverseMatch:
        return ""


# Acts on the page of a row. Each is a form, and writes an entry into the log of the admin.


class RowForm(forms.Form):
    """The form of an act on a row."""

    def __init__(self, row: Any, data: Any = None, **options: Any) -> None:
        super().__init__(data, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAct:
    name: str
    label: Any = ""
    says: Any = ""
    permission: str = ""
    fits: Callable[[Any], bool] = lambda row: True
    # Called with the alias, the row, the data of the form and the user. Returns the text for the message and the log.
    do: Callable[[str, Any, Mapping[str, Any], str], str]
    form: type[RowForm] = RowForm
    refused: Any = ""  # the message if nothing was done


class ActsOnRows(ConsoleAdmin):
    """An admin whose rows have acts."""

    acts: Sequence[RowAct]
    otherwise: Any = ""  # the message if nothing was done

    def row_of(self, request: HttpRequest, object_id: str) -> Any:
        """Return the facts of a row, for the acts, or raise ``Http404``."""
        raise NotImplementedError

    def logged(self, row: Any) -> Model:
        """Return the model instance of a row, for the log and the address."""
        raise NotImplementedError

    def may_act(self, request: HttpRequest, act: RowAct, row: Any) -> bool:
        return self.may(request, act.permission)

    @method_decorator(require_POST)
    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Perform one act on one row."""
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
        """Return the acts that the state of the row and the permissions of the user allow."""
        page, key = f"{self.opts.model_name}_act", quote(self.logged(row).pk)
        return [
            {"act": act, "form": act.form(row, prefix=act.name), "url": self.url(page, key, act.name)}
            for act in self.acts
            if act.fits(row) and self.may_act(request, act, row)
        ]


# The wrapper of all views.


def _answered(model_admin: ConsoleAdmin, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Wrap a view: check permissions, choose the shard, and show a page if PostgreSQL refuses a statement."""

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
        if "\0" in options.get("object_id", ""):  # PostgreSQL text cannot contain it
            raise Http404
        if not model_admin.admin_site.has_permission(request):  # the view redirects to the login page
            return view(request, *args, **options)
        if not any(model_admin.get_model_perms(request).values()):
            raise PermissionDenied
        response = in_one_shard(model_admin, in_words)(request, *args, **options)
        if isinstance(response, HttpResponse) and response.get("Content-Type", "").startswith("text/html"):
            if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
                response.add_post_render_callback(_escape_unseen)
            else:
                _escape_unseen(response)
        return response

    return respond


# Invisible characters are spelled out on each page of the console.
#
# Names, arguments and errors come from rows. Templates show them in about a hundred places, including Django's own
# templates. A character that changes the direction of text could show ``exe.jpg`` for ``gpj.exe`` in any of them. So
# the whole page is searched after it is rendered and before it is sent.


# Values that a form sends back must not change: there, a character is replaced by its character reference, which is
# visible in the source and equal for the browser.
_SENT_BACK = r'<textarea\b[^>]*>.*?</textarea>|\svalue="[^"]*"'
_FOUND = re.compile(f"{_SENT_BACK}|{UNSEEN.pattern}", re.DOTALL)
# Words of these languages, and so Django's translations, contain joiners and marks of direction. They are kept.
_WITH_MARKS = frozenset({"ar", "bn", "ckb", "fa", "he", "hi", "km", "kn", "ml", "mr", "ug", "ur"})
_MARKS = frozenset("\u200b\u200c\u200d\u200e\u200f")
_JOINERS, _LATIN = "\u200c\u200d", "\u024f"
_NOT_REFERABLE = re.compile("[\x80-\x9f]")  # HTML maps references to these to other characters


def all_visible(page: str, language: str = "") -> str:
    """Return the HTML with each invisible character of its texts spelled out, as ``\\u202e``."""
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
    """Return whether it joins or separates two letters or emoji. Such a character does not change the direction."""
    before, after = found.string[found.start() - 1 : found.start()], found.string[found.end() : found.end() + 1]
    return found[0] in _JOINERS and before > _LATIN and after > _LATIN


def _referred(found: re.Match[str]) -> str:
    return found[0] if _NOT_REFERABLE.match(found[0]) else f"&#x{ord(found[0]):x};"


def _escape_unseen(response: HttpResponse) -> None:
    page = response.content.decode(response.charset)
    if (seen := all_visible(page, get_language() or "")) is not page:
        response.content = seen.encode(response.charset)
