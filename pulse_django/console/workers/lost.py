"""Lost workers in the admin: what is said of one, and how it is acknowledged."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.shards import about_one_row, alias_to_write, shards_of
from pulse_django.models import Worker


class LostWorkers:
    """A mixin for the admin of workers: acknowledge a lost one on its page, or several in the list."""

    admin_site: Any
    get_object: Any
    has_view_permission: Any
    log_change: Any
    message_user: Any
    actions: Any = ("acknowledge",)

    def get_urls(self) -> list[URLPattern]:
        act = self.admin_site.admin_view(self.act_view)
        urls: list[URLPattern] = super().get_urls()  # type: ignore[misc]  # of the ModelAdmin beside it
        return [path("<path:object_id>/act/acknowledge/", act, name="pulse_django_worker_act"), *urls]

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        return bool(self.has_view_permission(request) and request.user.has_perm("pulse_django.change_worker"))

    def loss(self, request: HttpRequest, worker: Any) -> dict[str, Any] | None:
        """Return what the page says of a loss. None: the worker was not lost."""
        if worker.lost_at is None:
            return None
        may_act = worker.is_lost and self.has_acknowledge_permission(request)
        url = reverse(f"{self.admin_site.name}:pulse_django_worker_act", args=[quote(worker.pk)])
        return {"worker": worker, "url": url if may_act else ""}

    @about_one_row
    def act_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Acknowledge one lost worker."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_acknowledge_permission(request):
            raise PermissionDenied
        worker = self.get_object(request, object_id)
        if worker is None:
            raise Http404
        if self._acknowledge(request, worker):
            self.message_user(request, gettext("Acknowledged."), messages.SUCCESS)
        else:
            said = gettext("It is not lost, or another user has acknowledged it. Nothing was changed.")
            self.message_user(request, said, messages.WARNING)
        return HttpResponseRedirect(
            reverse(f"{self.admin_site.name}:pulse_django_worker_change", args=[quote(worker.pk)])
        )

    @admin.action(description=_("Acknowledge selected lost workers"), permissions=["acknowledge"])
    def acknowledge(self, request: HttpRequest, chosen: Any) -> None:
        workers = (self.get_object(request, one) for one in request.POST.getlist(ACTION_CHECKBOX_NAME))
        rows = chosen if request.POST.get("select_across") == "1" else [one for one in workers if one is not None]
        count = sum(self._acknowledge(request, worker) for worker in rows)
        said = ngettext("%(count)d worker was acknowledged.", "%(count)d workers were acknowledged.", count)
        self.message_user(request, said % {"count": count}, messages.SUCCESS if count else messages.WARNING)

    def _acknowledge(self, request: HttpRequest, worker: Worker) -> bool:
        """Do it in every shard in which that start of it is lost."""
        everywhere = shards_of(request, Worker)
        aliases = everywhere.aliases if everywhere.are_several else [alias_to_write(worker)]
        by = request.user.get_username()
        done = everywhere.among(aliases).ask(
            lambda alias: Worker.objects.db_manager(alias).acknowledge(worker.name, worker.boot_id, by=by)
        )
        everywhere.tell(request)
        if any(done.values()):
            self.log_change(request, worker, gettext("Acknowledged that it is lost"))
        return any(done.values())
