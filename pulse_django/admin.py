"""Django admin: what runs, what died and why. Rows are written by the verbs alone, so nothing here is editable."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from .models import Attempt, Job, Queue, Worker


class ReadOnly:
    """Mixed into admins and inlines of tables that people only look at."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class AttemptInline(ReadOnly, admin.TabularInline):
    model = Attempt
    fields = ("number", "outcome", "started_at", "finished_at", "worker", "error_class", "message", "late_outcome")
    ordering = ("number",)
    extra = 0


@admin.register(Job)
class JobAdmin(ReadOnly, admin.ModelAdmin):
    list_display = ("id", "task", "queue", "status", "attempt", "next_run_at", "locked_by", "last_error_in_short")
    list_filter = ("status",)
    ordering = ("-id",)
    inlines = (AttemptInline,)
    actions = ("retry_dead_letters",)
    # Counting millions of rows for a line of text is what makes queue admins slow.
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        # A list of jobs shows no payloads, and each may be a megabyte; the page of one job reads its own.
        return super().get_queryset(request).defer("args", "kwargs", "result", "progress")

    @admin.display(description=_("attempt"))
    def attempt(self, job: Job) -> str:
        return f"{job.attempts - job.refunds} / {job.max_attempts}"

    @admin.display(description=_("last error"))
    def last_error_in_short(self, job: Job) -> str:
        return job.last_error[:100]

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
