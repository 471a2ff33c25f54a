"""Django admin: what runs, what died and why. Rows are written by the verbs alone, so nothing here is editable."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from .console import acts
from .console.paging import NewestFirst
from .console.story import share_of, told_of
from .functions import StatementTimestamp
from .models import Job, Queue, Worker
from .ops.terminal import in_words

SECRETS = ("args", "kwargs", "result")  # for those who may see them


class ReadOnly:
    """Mixed into admins and inlines of tables that people only look at."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Job)
class JobAdmin(ReadOnly, admin.ModelAdmin):
    list_display = ("id", "task", "queue", "status", "attempt", "error_in_short", "progress_bar", "age", "lease_left")
    list_filter = ("status",)
    sortable_by = ()  # by id alone: any other order would read and sort the whole table
    actions = ("retry_dead_letters",)
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they would count the table, once for each status
    change_form_template = "admin/pulse_django/job/change_form.html"
    change_list_template = "admin/pulse_django/job/change_list.html"
    fieldsets = (
        (_("What it is"), {"fields": ("task", "queue", "priority", "args", "kwargs", "idempotency_key", "result")}),
        (
            _("How it may run"),
            {"fields": ("max_attempts", "max_losses", "free_losses", "lease_ttl", "timeout", "stall_after")},
        ),
        (
            _("Where it stands"),
            {
                "fields": (
                    "status", "attempts", "refunds", "losses", "locked_by", "token", "lease_until", "deadline",
                    "progress", "progress_at", "cancel_requested_at", "cancel_reason",
                )
            },
        ),
        (_("When"), {"fields": ("created_at", "next_run_at", "started_at", "finished_at")}),
    )  # fmt: skip

    def get_urls(self) -> list[URLPattern]:
        act = self.admin_site.admin_view(self.act_view)
        return [path("<path:object_id>/act/<slug:name>/", act, name="pulse_django_job_act"), *super().get_urls()]

    def get_fieldsets(self, request: HttpRequest, obj: Job | None = None) -> Any:
        if request.user.has_perm("pulse_django.view_arguments"):
            return self.fieldsets
        return [
            (title, options | {"fields": [name for name in options["fields"] if name not in SECRETS]})
            for title, options in self.fieldsets
        ]

    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Do one thing to one job."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        act, job = acts.named(name), self.get_object(request, unquote(object_id))
        if act is None or job is None:
            raise Http404
        if not self._may(request, act, job):
            raise PermissionDenied
        form = act.form_for(job, request.POST)
        if not form.is_valid():
            said = "; ".join(f"{field}: {' '.join(map(str, errors))}" for field, errors in form.errors.items())
            self.message_user(request, f"{act.label}: {said}", messages.ERROR)
        elif act.do(job.pk, form.cleaned_data):
            details = ", ".join(f"{field} {value}" for field, value in form.cleaned_data.items())
            message = f"{act.done}: {details}" if details else str(act.done)
            self.log_change(request, job, message)
            self.message_user(request, message, messages.SUCCESS)
        else:
            self.message_user(request, _("The job had moved on: nothing was changed."), messages.WARNING)
        return HttpResponseRedirect(reverse(f"{self.admin_site.name}:pulse_django_job_change", args=[job.pk]))

    def _may(self, request: HttpRequest, act: acts.Act, job: Job) -> bool:
        return self.has_view_permission(request, job) and request.user.has_perm(f"pulse_django.{act.permission}")

    def _offered(self, request: HttpRequest, job: Job) -> list[dict[str, Any]]:
        """Return the buttons that fit the job and the user."""
        return [
            {
                "act": act,
                "form": act.form_for(job),
                "url": reverse(f"{self.admin_site.name}:pulse_django_job_act", args=[job.pk, act.name]),
            }
            for act in acts.fitting(job)
            if self._may(request, act, job)
        ]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return NewestFirst

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        # A list of jobs shows no arguments and results, and each may be a megabyte; the page of one job reads its own.
        rows: QuerySet[Job] = super().get_queryset(request).annotate(now=StatementTimestamp())
        return rows.defer("args", "kwargs", "result")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        job = self.get_object(request, unquote(object_id))
        told: dict[str, Any] = {}
        if job is not None and self.has_view_permission(request, job):
            told = told_of(job) | {"acts": self._offered(request, job)}
        return super().change_view(request, object_id, form_url, (extra_context or {}) | told)

    @admin.display(description=_("attempt"))
    def attempt(self, job: Job) -> str:
        counted = job.attempts - job.refunds
        return gettext("%(counted)d of %(most)d") % {"counted": counted, "most": job.max_attempts}

    @admin.display(description=_("age"))
    def age(self, job: Job) -> str:
        return in_words((job.now - job.created_at).total_seconds())  # type: ignore[attr-defined]  # annotated

    @admin.display(description=_("lease left"), empty_value="")
    def lease_left(self, job: Job) -> str | None:
        if job.lease_until is None:
            return None
        return in_words((job.lease_until - job.now).total_seconds())  # type: ignore[attr-defined]  # annotated

    @admin.display(description=_("progress"), empty_value="")
    def progress_bar(self, job: Job) -> str | None:
        share = share_of(job.progress)
        if share is None:
            return None
        return format_html('<progress max="1" value="{}" aria-label="{}"></progress>', f"{share:.4f}", f"{share:.0%}")

    @admin.display(description=_("last error"))
    def error_in_short(self, job: Job) -> str:
        return " ".join(job.last_error[:200].split())[:100]

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("pulse_django.retry_job")

    @admin.action(description=_("Retry the selected dead letters"), permissions=["retry"])
    def retry_dead_letters(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        answer = Job.objects.retry(list(queryset.values_list("pk", flat=True)))
        revived, moved_on = len(answer.revived), len(answer.moved_on)
        if answer.revived:
            done = self.model.objects.only("pk", "task").filter(pk__in=answer.revived)
            who: Any = request.user.pk  # whoever has a permission is somebody
            LogEntry.objects.log_actions(who, done, CHANGE, change_message=gettext("Retried"))
        message = ngettext("%d job revived.", "%d jobs revived.", revived) % revived
        if moved_on:
            message += " " + ngettext("%d was not dead.", "%d were not dead.", moved_on) % moved_on
        self.message_user(request, message, messages.WARNING if moved_on else messages.SUCCESS)


@admin.register(Queue)
class QueueAdmin(ReadOnly, admin.ModelAdmin):
    list_display = ("name", "paused_at", "paused_until", "pause_reason")


@admin.register(Worker)
class WorkerAdmin(ReadOnly, admin.ModelAdmin):
    list_display = ("name", "host", "pid", "slots", "in_flight", "last_beat_at", "stopped_at")
