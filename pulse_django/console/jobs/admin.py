"""The page of a job, and its buttons. Only the verbs write jobs, so no field is editable."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from pulse_django.amendments.page import AmendPage, amendments_of
from pulse_django.console.live import live, version_of
from pulse_django.console.statuses import column_of, here, instant_shown
from pulse_django.encryption.values import MASK
from pulse_django.models import Job
from pulse_django.operations.acts import ACTS, errors_in_words
from pulse_django.queue.words.options import COLUMNS
from pulse_django.queue.words.own_tasks import OWN_TASKS
from pulse_django.queue.words.states import Status
from pulse_django.run.notify import watch_progress
from pulse_django.shards.page import alias_to_write, shard_of
from pulse_django.workflows.console.relations import relations_of
from pulse_django.workflows.console.rewinding import RewindPage

from .arguments_shown import arguments_shown, result_in_text, shows_all
from .explaining import explanation_of
from .exporting import ExportPage
from .job_list import JobList, JobWords
from .page_window import TAG
from .story import spelt, story_of

SECRETS = ("arguments", "returned", "uniqueness")  # only for users who may see them
OPTIONS = tuple(column for column in COLUMNS if column != "idempotency_key")  # shown with the job
INSTANTS = tuple(
    column_of(name)
    for name in (
        *("lease_until", "deadline", "progress_at", "cancel_requested_at"),  # in the section "State"
        *("created_at", "next_run_at", "expires_at", "started_at", "finished_at"),
    )
)
MOST_SHOWN = 20_000  # characters of one value


class JobAdmin(AmendPage, RewindPage, ExportPage, JobList):
    change_form_template = "admin/pulse_django/job/change_form.html"
    fieldsets = (
        (
            _("Job"),
            {
                "fields": (
                    "task", "queue", "priority", "arguments", "idempotency_key", "uniqueness", "labels", "facts",
                    "returned",
                )
            },
        ),
        (
            _("Options"),
            {"classes": ("collapse",), "fields": OPTIONS},
        ),
        (
            _("State"),
            {
                "classes": ("collapse",),
                "fields": (
                    "status", "attempts", "refunds", "losses", "locked_by", "token", *INSTANTS[:4], "cancel_reason",
                )
            },
        ),
        (_("When"), {"fields": INSTANTS[4:]}),
    )  # fmt: skip

    readonly_fields = ("labels", "facts", *SECRETS, *INSTANTS)
    form = JobWords

    def get_urls(self) -> list[URLPattern]:
        return [
            self.path("export/<slug:name>/", self.export_view, "export"),
            self.mass_path("mass/<slug:name>/"),
            self.path("<path:object_id>/act/<slug:name>/", self.act_view, "act"),
            self.path("<path:object_id>/amend/", self.amend_view, "amend"),
            self.path("<path:object_id>/rewind/", self.rewind_view, "rewind"),
            self.path("<path:object_id>/event/", self.event_view, "event"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        links: dict[str, Any] = {"mass_links": self.mass_links(request), "export_links": self.export_links(request)}
        return super().changelist_view(request, links | (extra_context or {}))

    def get_fieldsets(self, request: HttpRequest, obj: Job | None = None) -> Any:
        if request.user.has_perm("pulse_django.pulse_view_arguments"):
            return self.fieldsets
        return [
            (title, options | {"fields": [name for name in options["fields"] if name not in SECRETS]})
            for title, options in self.fieldsets
        ]

    @admin.display(description=_("arguments"))
    def arguments(self, job: Job) -> str:
        seen = arguments_shown(job)
        if not isinstance(seen, tuple):
            return str(seen)
        args, kwargs = seen
        lines = [spelt(value) for value in args]
        lines += [f"{name} = {spelt(value)}" for name, value in kwargs.items()]
        return format_html("<pre>{}</pre>", _cut("\n".join(lines))) if lines else gettext("none")

    @admin.display(description=_("Unique"))
    def uniqueness(self, job: Job) -> str:
        if job.unique_key is not None and job.finished_at is None and not (job.unique_until_start and job.attempts):
            until = gettext("until it starts") if job.unique_until_start else gettext("until it ends")
            return f"{job.unique_key if shows_all(job) else MASK} ({until})"
        if job.window_key is None:  # type: ignore[attr-defined]  # annotated
            return "–"
        before, _instant, after = gettext("no other one before %(instant)s").partition("%(instant)s")
        until_then = instant_shown(here(job.window_until))  # type: ignore[attr-defined]
        key = job.window_key if shows_all(job) else MASK  # type: ignore[attr-defined]
        return format_html("{} ({}{}{})", key, before, until_then, after)

    @admin.display(description=_("Tags"))
    def labels(self, job: Job) -> str:
        if not job.tags:
            return "–"
        jobs = self.url("job_changelist")
        links = ((f"{jobs}?{urlencode({TAG: tag})}", tag) for tag in job.tags)
        return format_html_join(" ", '<a href="{}">{}</a>', links)

    @admin.display(description=_("Meta"))
    def facts(self, job: Job) -> str:
        return "–" if job.meta is None else format_html("<pre>{}</pre>", _cut(spelt(job.meta)))

    @admin.display(description=_("result"))
    def returned(self, job: Job) -> str:
        text = result_in_text(job, job.result, MOST_SHOWN)
        return format_html("<pre>{}</pre>", text) if text else "–"

    @method_decorator(require_POST)
    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Perform one act on one job."""
        act, job = ACTS.get(name), self.get_object(request, unquote(object_id))
        if act is None or not act.label or job is None:
            raise Http404
        if not self.may(request, act.permission, job):
            raise PermissionDenied
        form, answer = act.form(request.POST, job=job, prefix=act.name), None
        if form.is_valid():
            answer = act.do(alias_to_write(job), [job.pk], form.cleaned_data)
        elif "attempts" not in form.errors:
            self.message_user(request, f"{act.label}: {errors_in_words(form)}", messages.ERROR)
            return self.redirect("job_change", job.pk)
        is_done = answer is not None and any(map(answer.__getitem__, act.changes))
        refused = [why for name, why in act.refusals.items() if answer is not None and answer[name]]
        otherwise = next(iter(refused), _("The job has changed in the meantime. Nothing was changed."))
        self.tell(request, job, form.done_in_words(act.done) if is_done else "", otherwise)
        return self.redirect("job_change", job.pk)

    def _offered(self, request: HttpRequest, job: Job) -> list[dict[str, Any]]:
        """Return the acts that the status of the job and the permissions of the user allow."""
        return [
            {"act": act, "form": act.form(job=job, prefix=act.name), "url": self.url("job_act", job.pk, act.name)}
            for act in ACTS.values()
            if act.label and job.status in act.statuses and self.may(request, act.permission, job)
            if not (act.name == "retry" and job.task in OWN_TASKS)
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        def page() -> HttpResponse:
            job = self.get_object(request, unquote(object_id))
            if job is not None and job.status == Status.RUNNING:
                watch_progress(alias_to_write(job), job.pk)
            context = {} if job is None else self._context_of(request, job)
            return super(JobAdmin, self).change_view(request, object_id, form_url, (extra_context or {}) | context)

        return live(request, version_of(shard_of(request)), page)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Read a job once for each GET request. An act reads it again, because it may have changed."""
        if request.method not in ("GET", "HEAD"):
            return super().get_object(request, object_id, from_field)
        found = vars(request).setdefault("_pulse_jobs", {})
        if object_id not in found:
            found[object_id] = super().get_object(request, object_id, from_field)
        return found[object_id]

    def _context_of(self, request: HttpRequest, job: Job) -> dict[str, Any]:
        """Return the parts of the page that are not fields."""
        sees_arguments = request.user.has_perm("pulse_django.pulse_view_arguments")
        amendments = amendments_of(job, with_arguments=sees_arguments)
        context: dict[str, Any] = {
            "story": story_of(job, amended=[(one["at"], one["by"]) for one in amendments]),
            "acts": self._offered(request, job),
            "amend_url": self.amend_url(request, job),
            "amendments": amendments,
            "sees_arguments": sees_arguments,
        }
        context |= explanation_of(job, shows_key=sees_arguments and shows_all(job))
        context |= relations_of(request, job, self.admin_site.name)
        context |= self.rewind_urls(request, job)
        if not sees_arguments:
            context["story"]["checkpoint"] = ""
        return context


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}\n… {len(text)} characters in all"
