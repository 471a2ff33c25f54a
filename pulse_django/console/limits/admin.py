"""Limits in the admin: what uses each, and the actions to change, close and open one."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulse_django.console.board.sparkline import draw
from pulse_django.console.readonly import ReadOnly
from pulse_django.console.shards import shard_of
from pulse_django.fleet import history
from pulse_django.fleet.limits import MOST_LISTED, LimitFacts, limits
from pulse_django.fleet.pauses import paused_keys
from pulse_django.models import Limiter
from pulse_django.operations.acts import errors_in_words
from pulse_django.words.display import in_words
from pulse_django.words.limiting import in_words as numbers_in_words

from .actions import ACTS, Wanted
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
        alias = shard_of(request)
        found = limits(alias)
        context = {
            "title": _("Limits"),
            "limits": [shown(one) for one in found],
            "is_cut": len(found) >= MOST_LISTED,
            "paused_shares": paused_keys(alias, ""),
        }
        return self._page(request, "change_list", context | self.shown_tasks(request) | (extra_context or {}))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one limit, with its actions for those who may change it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        alias, one = shard_of(request), self._limit(request, object_id)
        paused = paused_keys(alias, one.name)
        use = draw(history.read(alias).line(history.running_of(one.name)), highest=one.numbers.get("running"))
        context: dict[str, Any] = {"title": one.name, "limit": shown(one), "paused_keys": paused, "use": use}
        if self._may_act(request):
            context |= {
                "change": ChangeForm(), "close": CloseForm(prefix="close"), "pause": PauseForm(prefix="pause")
            }  # fmt: skip
        return self._page(request, "one", context | (extra_context or {}))

    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Change, reset, close or open a limit, or pause or resume one of its keys."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self._may_act(request):
            raise PermissionDenied
        act = ACTS.get(name)
        if act is None:
            raise Http404
        limit = self._limit(request, object_id)
        form = act.form(request.POST)
        if form is not None and not form.is_valid():
            self.message_user(request, errors_in_words(form), messages.ERROR)
        else:
            wanted = Wanted(form=form, by=request.user.get_username(), lane=request.POST.get("lane_key", ""))
            if said := act.do(shard_of(request), limit, wanted):
                self.log_change(request, Limiter(name=limit.name), said)
                self.message_user(request, said, messages.SUCCESS)
            elif act.refused:
                self.message_user(request, act.refused, messages.WARNING)
        return HttpResponseRedirect(
            reverse(f"{self.admin_site.name}:pulse_django_limiter_change", args=[quote(limit.name)])
        )

    def _limit(self, request: HttpRequest, object_id: str) -> LimitFacts:
        found = limits(shard_of(request), unquote(object_id))
        if not found:
            raise Http404
        return found[0]

    def _may_act(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm("pulse_django.change_limiter")

    def _page(self, request: HttpRequest, template: str, shown: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name  # {% url %} reads it
        context = {**self.admin_site.each_context(request), "opts": self.opts, **shown}
        return TemplateResponse(request, f"admin/pulse_django/limiter/{template}.html", context)
