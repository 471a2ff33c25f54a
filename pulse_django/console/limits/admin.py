"""Limits in the admin: what uses each, and the actions to change, close and open one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulse_django.console.board.sparkline import draw
from pulse_django.console.jobs.actions import errors_in_words
from pulse_django.console.readonly import ReadOnly
from pulse_django.console.shards import SHARD, NotFoundBecauseAway, Shards, about_one_row, shards_of, unchanged_in
from pulse_django.fleet import history
from pulse_django.fleet.limits import MOST_LISTED, LimitFacts, limits, paused_keys
from pulse_django.models import Limiter
from pulse_django.words.display import in_words
from pulse_django.words.limiting import in_words as numbers_in_words

from .actions import ACTS, Act, Wanted
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
        everywhere = shards_of(request, Limiter)
        found = everywhere.ask(limits)
        context = {
            "title": _("Limits"),
            "limits": [self._listed(one, alias, everywhere) for alias, one in in_order(found)],
            "is_cut": any(len(some) >= MOST_LISTED for some in found.values()),
            "has_shards": everywhere.are_several,
        }
        shares = everywhere.ask(lambda alias: paused_keys(alias, "")).items()
        context |= {"paused_shares": [(alias, one) for alias, some in shares for one in some]}
        context |= self.shown_tasks(request, everywhere)
        everywhere.tell(request)
        return self._page(request, "change_list", context | (extra_context or {}))

    def _listed(self, one: LimitFacts, alias: str, everywhere: Shards) -> dict[str, Any]:
        return shown(one) | {"shard": alias, "query": _query(alias, everywhere)}

    @about_one_row
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one limit in one shard, with its actions for those who may change it. They hold in all shards."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        everywhere = shards_of(request, Limiter)
        by_shard = self._limit(everywhere, object_id)
        alias = request.GET.get(SHARD, "")
        alias = alias if alias in by_shard else next(iter(by_shard))
        one = by_shard[alias]
        paused = paused_keys(alias, one.name)
        use = draw(history.read(alias).line(history.running_of(one.name)), highest=one.numbers.get("running"))
        context: dict[str, Any] = {"title": one.name, "limit": shown(one), "paused_keys": paused, "use": use}
        if everywhere.are_several:
            context |= {"shard": alias, "others": [other for other in by_shard if other != alias]}
        if self._may_act(request):
            context |= {
                "change": ChangeForm(), "close": CloseForm(prefix="close"), "pause": PauseForm(prefix="pause")
            }  # fmt: skip
        everywhere.tell(request)
        return self._page(request, "one", context | (extra_context or {}))

    @about_one_row
    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Change, reset, close or open a limit, or pause or resume one of its keys, in each shard that has it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self._may_act(request):
            raise PermissionDenied
        act = ACTS.get(name)
        if act is None:
            raise Http404
        everywhere = shards_of(request, Limiter)
        by_shard = self._limit(everywhere, object_id)
        limit = next(iter(by_shard.values()))
        form = act.form(request.POST)
        if form is not None and not form.is_valid():
            self.message_user(request, errors_in_words(form), messages.ERROR)
        else:
            wanted = Wanted(form=form, by=request.user.get_username(), lane=request.POST.get("lane_key", ""))
            done = everywhere.among(by_shard).ask(lambda alias: act.do(alias, by_shard[alias], wanted))
            everywhere.tell(request)
            self._tell_done(request, act, limit, done)
        return HttpResponseRedirect(
            reverse(f"{self.admin_site.name}:pulse_django_limiter_change", args=[quote(limit.name)])
        )

    def _tell_done(self, request: HttpRequest, act: Act, limit: LimitFacts, done: Mapping[str, str]) -> None:
        alias = next((alias for alias, said in done.items() if said), None)
        if alias is not None:
            said = done[alias] + unchanged_in([one for one, what in done.items() if not what])
            self.log_change(request, Limiter(name=limit.name), said)
            self.message_user(request, said, messages.SUCCESS)
        elif act.refused and done:
            self.message_user(request, act.refused, messages.WARNING)

    def _limit(self, everywhere: Shards, object_id: str) -> dict[str, LimitFacts]:
        """Return what each shard that has the limit tells of it."""
        name = unquote(object_id)
        found = everywhere.ask(lambda alias: limits(alias, name))
        by_shard = {alias: some[0] for alias, some in found.items() if some}
        if not by_shard and everywhere.away:
            raise NotFoundBecauseAway(everywhere.missing())
        if not by_shard:
            raise Http404
        return by_shard

    def _may_act(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm("pulse_django.change_limiter")

    def _page(self, request: HttpRequest, template: str, shown: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name  # {% url %} reads it
        context = {**self.admin_site.each_context(request), "opts": self.opts, **shown}
        return TemplateResponse(request, f"admin/pulse_django/limiter/{template}.html", context)


def in_order(found: Mapping[str, Sequence[LimitFacts]]) -> list[tuple[str, LimitFacts]]:
    """Return the limits of all shards by name."""
    every = [(alias, one) for alias, some in found.items() for one in some]
    return sorted(every, key=lambda pair: pair[1].name) if len(found) > 1 else every


def _query(alias: str, everywhere: Shards) -> str:
    return f"?{urlencode({SHARD: alias})}" if everywhere.are_several else ""
