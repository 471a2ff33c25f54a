"""Django admin: what runs, what died and why. Rows are written by the verbs alone, so nothing here is editable."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from .console.paging import NewestFirst
from .console.story import share_of, told_of
from .functions import StatementTimestamp
from .models import Job, Queue, Worker
from .ops.terminal import in_words


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
    list_display = ("id", "task", "queue", "status", "attempt", "progress_bar", "age", "lease_left", "error_in_short")
    list_filter = ("status",)
    sortable_by = ()  # by id alone: any other order would read and sort the whole table
    actions = ("retry_dead_letters",)
    show_full_result_count = False
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
        told = told_of(job) if job is not None and self.has_view_permission(request, job) else {}
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
        return request.user.has_perm("pulse_django.change_job")

    @admin.action(description=_("Retry the selected dead letters"), permissions=["retry"])
    def retry_dead_letters(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        answer = Job.objects.retry(list(queryset.values_list("pk", flat=True)))
        revived, moved_on = len(answer.revived), len(answer.moved_on)
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
