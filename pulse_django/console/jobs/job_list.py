"""The list of jobs: newest first, and fast for any number of jobs."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.db.models import Case, F, OuterRef, Q, QuerySet, Subquery, When
from django.http import HttpRequest
from django.utils import translation
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.pages import ReadOnly
from pulse_django.console.search_terms import id_in
from pulse_django.console.statuses import WITH_ERROR, due_shown, here, instant_shown, status_shown
from pulse_django.models import Job, Window
from pulse_django.operations.acts import ACTS
from pulse_django.queue.database.sql_functions import Fingerprint, StatementTimestamp
from pulse_django.queue.words.display import in_words, inert, most_shown, share_of
from pulse_django.queue.words.options import OPTIONS
from pulse_django.queue.words.states import Status

from .arguments_shown import UNKNOWN, arguments_shown
from .filters import AgeFilter, BatchFilter, ErrorFilter, QueueFilter, StatusFilter, TagFilter, TaskFilter, WorkerFilter
from .paging import NewestFirst
from .searching import may_search_arguments, searching_of
from .story import spelt

_WINDOW = Window.objects.filter(job_id=OuterRef("pk")).order_by("task", "key")
# Additional data of the page of a job, read in the same query.
_OF_A_PAGE = {
    "fingerprint": Case(When(status=Status.DEAD_LETTERED, then=Fingerprint("last_error"))),
    "window_key": Subquery(_WINDOW.values("key")[:1]),
    "window_until": Subquery(_WINDOW.values("until")[:1]),
}
LONGEST_SHOWN = 2_000  # bytes; longer arguments are not read for the list
MOST_OF_ARGUMENTS, MOST_OF_WORKER = 60, 40  # characters


class JobList(ReadOnly):
    # On a screen of 1366 pixels, with Django's navigation and the filter, the first four need no scrolling.
    list_display = (
        *("id", "standing", "task", "error_in_short", "arguments_in_short", "queue", "attempt", "age", "duration"),
        *("held_by", "lease_left", "progress_bar"),
    )
    list_filter = (
        StatusFilter, QueueFilter, TaskFilter, ErrorFilter, WorkerFilter, TagFilter, BatchFilter, AgeFilter,
    )  # fmt: skip
    search_fields = ("task", "last_error")
    search_help_text = _(
        'Search by words of the task or the last error, by #id, tag:name, parent:id, error:"text" or task:name, by a '
        "declared argument such as order_id:4711, or by a number alone: it is an id or an argument."
    )
    sortable_by = ()  # only by id: any other order would read and sort the whole table
    actions = ("retry_dead_letters",)
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # facets would count the whole table once for each status
    change_list_template = "admin/pulse_django/job/change_list.html"

    def get_list_display(self, request: HttpRequest) -> Any:
        return [name for name in self.list_display if name != "arguments_in_short" or may_search_arguments(request)]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return NewestFirst

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        # Each value may have a megabyte, so the list reads no results and only short arguments. The page of one job
        # reads all values.
        rows: QuerySet[Job] = super().get_queryset(request).annotate(now=StatementTimestamp()).defer("search_terms")
        sees_arguments = may_search_arguments(request)
        if "object_id" in getattr(request.resolver_match, "kwargs", ()):
            rows = rows.annotate(**_OF_A_PAGE)
            if sees_arguments:
                return rows
        rows = rows.defer("search_terms", "args", "kwargs", "result", "meta", "on_dead", "cancel_reason")
        if not sees_arguments:
            return rows
        is_short = Q(payload_bytes__lte=LONGEST_SHOWN)
        return rows.annotate(
            short_args=Case(When(is_short, then=F("args"))), short_kwargs=Case(When(is_short, then=F("kwargs")))
        )

    def get_search_fields(self, request: HttpRequest) -> Any:
        # An autocomplete field would search and count the whole table.
        is_completing = getattr(request.resolver_match, "url_name", None) == "autocomplete"
        return () if is_completing else super().get_search_fields(request)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        return (searching_of(request, search_term).narrowed(queryset) if search_term else queryset), False

    @admin.display(description=_("status"))
    def standing(self, job: Job) -> str:
        due = due_shown(job, job.now)  # type: ignore[attr-defined]  # annotated
        return format_html("{}, {}", status_shown(job.status), due) if due else status_shown(job.status)

    @admin.display(description=_("attempt"))
    def attempt(self, job: Job) -> str:
        counted = job.attempts - job.refunds
        return gettext("%(counted)s of %(most)s") % {"counted": counted, "most": most_shown(job.max_attempts)}

    @admin.display(description=_("age"))
    def age(self, job: Job) -> str:
        age = (job.now - job.created_at).total_seconds()  # type: ignore[attr-defined]  # annotated
        return instant_shown(here(job.created_at), in_words(age))

    @admin.display(description=_("arguments"), empty_value="")
    def arguments_in_short(self, job: Job) -> str:
        job.args, job.kwargs = job.short_args, job.short_kwargs  # type: ignore[attr-defined]  # annotated
        if job.args is None:
            return gettext("too long")
        seen = arguments_shown(job)
        if not isinstance(seen, tuple):
            return "–" if seen is UNKNOWN else str(seen)
        args, kwargs = seen
        said = ", ".join([*(spelt(one) for one in args), *(f"{name}={spelt(one)}" for name, one in kwargs.items())])
        return inert(" ".join(said.split()), MOST_OF_ARGUMENTS)

    @admin.display(description=_("duration"), empty_value="")
    def duration(self, job: Job) -> str | None:
        """Return the duration of the latest run, so far if it is running."""
        if job.started_at is None or (job.finished_at is None and job.locked_by is None):
            return None
        end = job.finished_at or job.now  # type: ignore[attr-defined]  # annotated
        return in_words((end - job.started_at).total_seconds())

    @admin.display(description=_("worker"), empty_value="")
    def held_by(self, job: Job) -> str | None:
        holder = job.locked_by or job.completed_by
        return None if holder is None else inert(holder.partition(":")[0], MOST_OF_WORKER)

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
        said = " ".join(job.last_error[:200].split())[:100]
        if not said or job.status in WITH_ERROR:
            return said
        return format_html('<span class="quiet">{}</span>', gettext("earlier: %(error)s") % {"error": said})

    def response_action(self, request: HttpRequest, *args: Any, **options: Any) -> Any:
        """Act only on the selected rows, not on all jobs of the list: there may be millions."""
        post = request.POST.copy()
        post["select_across"] = "0"
        selected = (id_in(text) for text in post.getlist(ACTION_CHECKBOX_NAME))  # Django fails for other values
        post.setlist(ACTION_CHECKBOX_NAME, [str(number) for number in selected if number])
        request.POST = post  # type: ignore[assignment]  # it has a setter
        return super().response_action(request, *args, **options)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("pulse_django.pulse_retry_jobs")

    @admin.action(description=_("Retry the selected dead letters"), permissions=["retry"])
    def retry_dead_letters(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        # Count all selected jobs: the filter no longer matches jobs that changed since the page was opened.
        act, chosen = ACTS["retry"], len(set(request.POST.getlist(ACTION_CHECKBOX_NAME)))
        self.act_at_once(request, act, queryset.only("pk", "task"), {}, str(act.done), chosen)


# The labels and help texts of the fields of a job.


# Their texts are marked for translation in their declarations.
ON_THE_PAGE = [option for option in OPTIONS.values() if option.label]

LABELS: dict[str, Any] = {
    "task": _("Task"),
    **{option.column: translation.gettext_lazy(option.label) for option in ON_THE_PAGE},
    "status": _("Status"),
    "attempts": _("Attempts so far"),
    "refunds": _("Refunds"),
    "losses": _("Lost workers"),
    "locked_by": _("Holder"),
    "token": _("Fencing token"),
    "lease_until": _("Lease until"),
    "deadline": _("Deadline of the run"),
    "progress_at": _("Last progress"),
    "cancel_requested_at": _("Stop requested at"),
    "cancel_reason": _("Reason for stop request"),
    "created_at": _("Enqueued"),
    "next_run_at": _("Due"),
    "started_at": _("Latest run started"),
    "finished_at": _("Ended"),
}

HELP: dict[str, Any] = {
    **{option.column: translation.gettext_lazy(option.help) for option in ON_THE_PAGE},
    "attempts": _("Number of claims, including refunded ones. It never decreases."),
    "refunds": _("Attempts that do not count: put back, returned by a stopping worker, or granted by a retry."),
    "token": _("Other systems may reject writes with a smaller token."),
    "lease_until": _(
        "According to the server's clock. Each heartbeat extends it. When it expires, a watchdog ends the run."
    ),
    "next_run_at": _("The job does not run before this time. For an ended job, the time its last run was due."),
}


class JobWords(forms.ModelForm):
    """A form without fields, for the labels and help texts of the admin. Changing them needs no migration."""

    class Meta:
        model = Job
        fields: tuple[str, ...] = ()
        labels = LABELS
        help_texts = HELP
