"""Limits in the admin: what uses each, and the actions to change, close and open one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulse_django.console.board.sparkline import draw
from pulse_django.console.jobs.actions import errors_in_words
from pulse_django.console.readonly import ReadOnly
from pulse_django.fleet import history
from pulse_django.fleet.limits import MOST_LISTED, LimitFacts, limits, paused_keys
from pulse_django.models import Limiter, PausedKey
from pulse_django.words.display import in_words
from pulse_django.words.lane_keys import key_of, lane_key, limiter_of, text_of_key
from pulse_django.words.limiting import in_words as numbers_in_words

from .forms import ChangeForm, CloseForm, PauseForm
from .paused_tasks import PausedTasks

STATES = {
    "open": gettext_lazy("open"),
    "full": gettext_lazy("full"),
    "closed": gettext_lazy("closed"),
    "probing": gettext_lazy("one job runs at a time"),
}


def shown(one: LimitFacts) -> dict[str, Any]:
    """Return what the templates need of a limit."""
    return {
        "facts": one,
        "state": STATES[one.state],
        "most": one.numbers.get("running"),
        "of_code": numbers_in_words(one.of_code) if one.is_declared else "",
        "waiting": f"{one.waiting}+" if one.is_more else str(one.waiting),
        "waiting_for": "" if one.waiting_for is None else in_words(one.waiting_for),
        "path": quote(one.name),
    }


class LimiterAdmin(PausedTasks, ReadOnly, admin.ModelAdmin):
    def get_urls(self) -> list[URLPattern]:
        act = self.admin_site.admin_view(self.act_view)
        own = [path("<path:object_id>/act/<slug:name>/", act, name="pulse_django_limiter_act")]
        return [*self.urls_of_tasks(), *own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = limits(self._alias)
        context = {"title": _("Limits"), "limits": [shown(one) for one in found], "is_cut": len(found) >= MOST_LISTED}
        context |= {"paused_shares": paused_keys(self._alias, "")} | self.shown_tasks(request)
        return self._page(request, "change_list", context | (extra_context or {}))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one limit, with its actions for those who may change it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        one = self._limit(object_id)
        paused = paused_keys(self._alias, one.name)
        use = draw(history.read(self._alias).line(history.running_of(one.name)), highest=one.numbers.get("running"))
        context: dict[str, Any] = {"title": one.name, "limit": shown(one), "paused_keys": paused, "use": use}
        if self._may_act(request):
            context |= {
                "change": ChangeForm(), "close": CloseForm(prefix="close"), "pause": PauseForm(prefix="pause")
            }  # fmt: skip
        return self._page(request, "one", context | (extra_context or {}))

    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Change, reset, close or open a limit."""
        acts: dict[str, Callable[[HttpRequest, LimitFacts], str]] = {
            "change": self._change,
            "reset": self._reset,
            "close": self._close,
            "open": self._open,
            "pause": self._pause,
            "resume": self._resume,
        }
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self._may_act(request):
            raise PermissionDenied
        if name not in acts:
            raise Http404
        one = self._limit(object_id)
        if message := acts[name](request, one):
            self.log_change(request, Limiter.objects.using(self._alias).get(pk=one.name), message)
            self.message_user(request, message, messages.SUCCESS)
        return HttpResponseRedirect(
            reverse(f"{self.admin_site.name}:pulse_django_limiter_change", args=[quote(one.name)])
        )

    def _change(self, request: HttpRequest, one: LimitFacts) -> str:
        form = ChangeForm(request.POST)
        if not form.is_valid():
            self.message_user(request, errors_in_words(form), messages.ERROR)
            return ""
        numbers, reason = form.cleaned_data["numbers"], form.cleaned_data["reason"]
        self._limiters.override(one.name, numbers, for_=form.for_, by=request.user.get_username(), reason=reason)
        return _("Changed to %(numbers)s: %(reason)s") % {"numbers": numbers_in_words(numbers), "reason": reason}

    def _reset(self, request: HttpRequest, one: LimitFacts) -> str:
        if one.override is None:
            return ""
        self._limiters.override(one.name, None, by=request.user.get_username())
        return _("Back to the numbers of the code")

    def _close(self, request: HttpRequest, one: LimitFacts) -> str:
        form = CloseForm(request.POST, prefix="close")
        if not form.is_valid():
            self.message_user(request, errors_in_words(form), messages.ERROR)
            return ""
        reason = form.cleaned_data["reason"]
        if not self._limiters.close(one.name, for_=form.for_, reason=reason):
            self.message_user(request, _("It is closed for longer already. Nothing was changed."), messages.WARNING)
            return ""
        return _("Closed for %(time)s: %(reason)s") % {"time": in_words(form.for_.total_seconds()), "reason": reason}

    def _open(self, request: HttpRequest, one: LimitFacts) -> str:
        return _("Opened") if self._limiters.reopen(one.name) else ""

    def _pause(self, request: HttpRequest, one: LimitFacts) -> str:
        form = PauseForm(request.POST, prefix="pause")
        if not form.is_valid():
            self.message_user(request, errors_in_words(form), messages.ERROR)
            return ""
        key, reason = form.cleaned_data["key"], form.cleaned_data["reason"]
        paused = PausedKey.objects.db_manager(self._alias)
        lane = lane_key(one.name, text_of_key(key))
        if not paused.pause(lane, for_=form.for_, reason=reason, by=request.user.get_username()):
            self.message_user(request, _("It is paused for longer already. Nothing was changed."), messages.WARNING)
            return ""
        return _("Key %(key)s paused: %(reason)s") % {"key": key, "reason": reason}

    def _resume(self, request: HttpRequest, one: LimitFacts) -> str:
        lane = request.POST.get("lane_key", "")
        if limiter_of(lane) != one.name or not PausedKey.objects.db_manager(self._alias).resume(lane):
            return ""
        return _("Key %(key)s resumed") % {"key": key_of(lane)}

    def _limit(self, object_id: str) -> LimitFacts:
        found = limits(self._alias, unquote(object_id))
        if not found:
            raise Http404
        return found[0]

    def _may_act(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm("pulse_django.change_limiter")

    def _page(self, request: HttpRequest, template: str, shown: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name  # {% url %} reads it
        context = {**self.admin_site.each_context(request), "opts": self.opts, **shown}
        return TemplateResponse(request, f"admin/pulse_django/limiter/{template}.html", context)

    @property
    def _limiters(self) -> Any:
        return Limiter.objects.db_manager(self._alias)

    @property
    def _alias(self) -> str:
        return router.db_for_write(Limiter)
