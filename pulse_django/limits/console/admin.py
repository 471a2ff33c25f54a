"""Limits in the admin: the use of each, and the actions to change, pause and resume one."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import quote, unquote
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulse_django.console.board.sparkline import draw
from pulse_django.console.pages import ActsOnRows, ReadOnly, RowAct
from pulse_django.limits.facts import MOST_LISTED, LimitFacts, limits
from pulse_django.limits.rules import in_words as numbers_in_words
from pulse_django.metrics import history
from pulse_django.models import Limiter
from pulse_django.pauses.facts import paused_keys
from pulse_django.pauses.page import PausedTasks
from pulse_django.queue.words.display import in_words
from pulse_django.shards.page import shard_of

from .actions import ACTS

STATES = {
    "open": gettext_lazy("open"),
    "full": gettext_lazy("full"),
    "paused": gettext_lazy("paused"),
    "probing": gettext_lazy("one job runs at a time"),
}


def shown(one: LimitFacts) -> dict[str, Any]:
    """Return the data of a limit for the templates."""
    return {
        "facts": one,
        "state": STATES[one.state],
        "most": one.numbers.get("max_running"),
        "of_code": numbers_in_words(one.of_code) if one.is_declared else "",
        "waiting": f"{one.waiting}+" if one.is_more else str(one.waiting),
        "waiting_for": "" if one.waiting_for is None else in_words(one.waiting_for),
        "path": quote(one.name),
    }


class LimiterAdmin(PausedTasks, ActsOnRows, ReadOnly):
    acts = ACTS

    def get_urls(self) -> list[URLPattern]:
        own = self.path("<path:object_id>/act/<slug:name>/", self.act_view, "act")
        return [*self.urls_of_tasks(), own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        alias = shard_of(request)
        found = limits(alias)
        context = {
            "title": _("Limits"),
            "limits": [shown(one) for one in found],
            "is_cut": len(found) >= MOST_LISTED,
            "paused_shares": paused_keys(alias, ""),
        }
        return self.page(request, "limiter/change_list", context | self.shown_tasks(request) | (extra_context or {}))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one limit, with its actions if the user may change it."""
        alias, one = shard_of(request), self.row_of(request, object_id)
        use = draw(history.read(alias).line(history.running_of(one.name)), highest=one.numbers.get("max_running"))
        forms = {offered["act"].name: offered["form"] for offered in self.offered(request, one)}
        context = {"title": one.name, "limit": shown(one), "paused_keys": paused_keys(alias, one.name), "use": use}
        return self.page(request, "limiter/one", {**context, "forms": forms, **(extra_context or {})})

    def row_of(self, request: HttpRequest, object_id: str) -> LimitFacts:
        found = limits(shard_of(request), unquote(object_id))
        if not found:
            raise Http404
        return found[0]

    def logged(self, row: LimitFacts) -> Limiter:
        return Limiter(name=row.name)

    def may_act(self, request: HttpRequest, act: RowAct, row: LimitFacts) -> bool:
        return self._may_act(request)

    def _may_act(self, request: HttpRequest) -> bool:
        return self.may(request, "pulse_change_limits")
