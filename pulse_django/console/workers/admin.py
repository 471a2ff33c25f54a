"""Workers in the admin: the list, and for each worker its running jobs and its lost runs."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from pulse_django import conf
from pulse_django.console.board.facts import quantiles_in_words
from pulse_django.console.live import live, version_of
from pulse_django.console.pages import ReadOnly, ShardList
from pulse_django.console.statuses import column_of, here, instant_shown
from pulse_django.models import Attempt, Job, Worker
from pulse_django.operations.acts import errors_in_words
from pulse_django.queue.database.querysets import held_by_start
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.database.workers import is_asked, is_shown
from pulse_django.queue.words.counters import Histogram
from pulse_django.queue.words.display import in_words, share_of
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.shards.page import alias_to_write, shard_of

from .processes import processes_of, stuck_of

MOST_RUNNING = 200
MOST_LOST = 50
LARGEST_ID = 2**63 - 1


class AskForm(forms.Form):
    job = forms.IntegerField(min_value=1, max_value=LARGEST_ID)


INSTANTS = (column_of("started_at", _("Started")), column_of("last_beat_at", _("last heartbeat")))


class WorkerAdmin(ReadOnly):
    actions = ("acknowledge",)
    unlisted = ("versions", "tasks", "vitals", "stack")
    list_display = ("name", "state", "host", "pid", "running", "slots", "stuck", "last_beat", "queues_served")
    list_filter = ("host",)
    allowed_lookups = ("host", "host__isnull", "name")
    ordering = ("-last_beat_at",)
    show_full_result_count = False
    change_form_template = "admin/pulse_django/worker/change_form.html"
    fieldsets = (
        (None, {"fields": ("name", "boot_id", "host", "pid", "state", *INSTANTS, "ended")}),
        (
            _("Capacity"),
            {"fields": ("slots", "running", "stuck", "queues_served", "tasks_known", "versions")},
        ),
        (_("Heartbeats"), {"fields": ("beats", "delays")}),
    )

    def get_urls(self) -> list[URLPattern]:
        return [
            self.path("<path:object_id>/act/stack/", self.ask_stack_view, "act_stack"),
            self.path("<path:object_id>/act/acknowledge/", self.act_view, "act"),
            *super().get_urls(),
        ]

    @admin.display(description=_("In flight"), ordering="in_flight")
    def running(self, worker: Worker) -> int:
        return worker.in_flight

    @admin.display(description=_("Stuck slots"), ordering="stuck_slots")
    def stuck(self, worker: Worker) -> int:
        return worker.stuck_slots

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        rows: QuerySet[Worker] = super().get_queryset(request).annotate(now=StatementTimestamp())
        return rows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ShardList]:
        return ShardList

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("state", "running", "stuck", *INSTANTS, "ended", "queues_served", "tasks_known", "beats", "delays")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        alias = shard_of(request, reads=True)

        def page() -> HttpResponse:
            worker = self.get_object(request, unquote(object_id))
            context = {} if worker is None else self._context_of(request, worker, alias)
            return super(WorkerAdmin, self).change_view(request, object_id, form_url, (extra_context or {}) | context)

        return live(request, version_of(alias), page)

    def _context_of(self, request: HttpRequest, worker: Worker, alias: str) -> dict[str, Any]:
        """Return the parts of the page that are not fields."""
        return {
            "held": held_by(worker, alias),
            "lost": lost_with(worker, alias),
            "sees_jobs": request.user.has_perm("pulse_django.pulse_view_jobs"),
            "loss": self._loss(request, worker),
            "stacks": self._stacks(request, worker, alias),
            "processes": processes_of(worker.vitals),
            "stuck": stuck_of(worker.vitals),
        }

    # Lost workers: acknowledge one on its page, or several in the list.

    def has_acknowledge_permission(self, request: HttpRequest) -> bool:
        return self.may(request, "pulse_change_workers")

    def _loss(self, request: HttpRequest, worker: Worker) -> dict[str, Any] | None:
        """Return the facts about the loss of a worker, or None if it was not lost."""
        if worker.lost_at is None:
            return None
        may_act = worker.is_lost and self.has_acknowledge_permission(request)
        return {"worker": worker, "url": self.url("worker_act", worker.pk) if may_act else ""}

    @method_decorator(require_POST)
    def act_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Acknowledge one lost worker."""
        worker = self._worker(request, object_id)
        if self._acknowledge(request, worker):
            self.message_user(request, gettext("Acknowledged."), messages.SUCCESS)
        else:
            said = gettext("It is not lost, or another user has acknowledged it. Nothing was changed.")
            self.message_user(request, said, messages.WARNING)
        return self.redirect("worker_change", worker.pk)

    @admin.action(description=_("Acknowledge selected lost workers"), permissions=["acknowledge"])
    def acknowledge(self, request: HttpRequest, chosen: Any) -> None:
        workers = (self.get_object(request, one) for one in request.POST.getlist(ACTION_CHECKBOX_NAME))
        rows = chosen if request.POST.get("select_across") == "1" else [one for one in workers if one is not None]
        count = sum(self._acknowledge(request, worker) for worker in rows)
        said = ngettext("%(count)d worker was acknowledged.", "%(count)d workers were acknowledged.", count)
        self.message_user(request, said % {"count": count}, messages.SUCCESS if count else messages.WARNING)

    def _acknowledge(self, request: HttpRequest, worker: Worker) -> bool:
        workers, by = Worker.objects.db_manager(alias_to_write(worker)), request.user.get_username()
        if is_done := workers.acknowledge(worker.name, worker.boot_id, by=by):
            self.log_change(request, worker, gettext("Acknowledged that it is lost"))
        return is_done

    # Stacks of running handlers: requested on the page of a worker, and shown there when the worker has answered. The
    # permission to acknowledge lost workers is enough, because a stack has code and no values.

    def _stacks(self, request: HttpRequest, worker: Worker, alias: str) -> dict[str, Any]:
        """Return the latest answers, and the address for requests."""
        if not self.has_acknowledge_permission(request):
            return {}
        rows: Any = Worker.objects.using(alias).filter(pk=worker.pk)
        row, answers = rows.annotate(is_asked=is_asked(), is_shown=is_shown()).first(), []
        if row is not None and row.is_asked and row.stack_wanted:
            answers.append({"job_id": row.stack_wanted, "at": None})  # it has not answered yet
        if row is not None and row.is_shown and row.stack_of:
            answers.append({"job_id": row.stack_of, "at": row.stack_at, "text": row.stack})
        ask_url = self.url("worker_act_stack", worker.pk) if worker.stopped_at is None else ""
        return {"ask_url": ask_url, "answers": answers}

    @method_decorator(require_POST)
    def ask_stack_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Request the stack of the handler of a job."""
        worker, form = self._worker(request, object_id), AskForm(request.POST)
        if not form.is_valid():
            self.message_user(request, errors_in_words(form), messages.ERROR)
        elif Worker.objects.db_manager(alias_to_write(worker)).ask_stack(
            worker.name, worker.boot_id, job_id := form.cleaned_data["job"]
        ):
            self.log_change(request, worker, gettext("Requested the stack of job %(job)d") % {"job": job_id})
            said = gettext("The worker answers with its next heartbeats. The stack appears here within seconds.")
            self.message_user(request, said, messages.SUCCESS)
        else:
            self.message_user(request, gettext("The worker has stopped. No stack was requested."), messages.WARNING)
        return self.redirect("worker_change", worker.pk)

    def _worker(self, request: HttpRequest, object_id: str) -> Worker:
        """Return the worker, if this user may acknowledge it or request stacks."""
        if not self.has_acknowledge_permission(request):
            raise PermissionDenied
        worker: Worker | None = self.get_object(request, object_id)
        if worker is None:
            raise Http404
        return worker

    @admin.display(description=_("state"))
    def state(self, worker: Any) -> str:
        if worker.is_lost:
            return format_html('<strong class="pulse-error">{}</strong>', gettext("lost"))
        if worker.stopped_at is not None:
            return gettext("stopped") if worker.lost_at is None else gettext("lost, and acknowledged")
        silence = conf.current().worker_silence
        return gettext("alive") if worker.now - worker.last_beat_at <= silence else gettext("silent")

    @admin.display(description=_("stopped"))
    def ended(self, worker: Any) -> str:
        if worker.lost_at is not None or worker.stopped_at is None:
            return "–"
        return instant_shown(here(worker.stopped_at))

    @admin.display(description=_("last heartbeat"))
    def last_beat(self, worker: Any) -> str:
        ago = gettext("%s ago") % in_words((worker.now - worker.last_beat_at).total_seconds())
        return instant_shown(here(worker.last_beat_at), ago)

    @admin.display(description=_("queues"))
    def queues_served(self, worker: Worker) -> str:
        return _listed(worker.queues) or gettext("all")

    @admin.display(description=_("tasks"))
    def tasks_known(self, worker: Worker) -> str:
        return _listed(worker.tasks) or gettext("unknown")

    @admin.display(description=_("heartbeats"))
    def beats(self, worker: Worker) -> str:
        context = {"beats": _vital(worker, "beats", 0), "failures": _vital(worker, "beat_failures", 0)}
        return gettext("%(beats)s successful, %(failures)s failed") % context

    @admin.display(description=_("heartbeat delay"))
    def delays(self, worker: Worker) -> str:
        try:
            return quantiles_in_words(Histogram.merged([_vital(worker, "beat_delays", {})]))
        except (AttributeError, TypeError, ValueError, OverflowError):
            return "–"  # written by another release in another format


# The vitals of a worker are in the format of its release. The page must open with any format.


def _listed(said: Any) -> str:
    return ", ".join(map(str, said)) if isinstance(said, list) else ""


def _vital(worker: Worker, name: str, default: Any) -> Any:
    return worker.vitals.get(name, default) if isinstance(worker.vitals, dict) else default


def held_by(worker: Any, alias: str) -> list[dict[str, Any]]:
    """Return the running jobs of a worker, from the index of running jobs."""
    held = held_by_start("locked_by", worker.name, worker.boot_id)
    jobs: Any = Job.objects.using(alias).running().filter(held).order_by("started_at", "pk")
    shown = jobs.only("id", "task", "queue", "attempts", "started_at", "lease_until", "progress")
    return [
        {
            "job": job,
            "since": in_words((worker.now - job.started_at).total_seconds()),
            "lease_left": in_words((job.lease_until - worker.now).total_seconds()),
            "share_done": None if (share := share_of(job.progress)) is None else f"{share:.4f}",
        }
        for job in shown[:MOST_RUNNING]
    ]


def lost_with(worker: Worker, alias: str) -> list[Attempt]:
    """Return the runs that a worker lost."""
    held = held_by_start("worker", worker.name, worker.boot_id)
    runs = Attempt.objects.using(alias).filter(held, outcome=OutcomeName.WORKER_LOST.value)
    unread = (f"job__{name}" for name in ("args", "kwargs", "progress", "result", "meta", "on_dead"))
    return list(runs.select_related("job").defer(*unread).order_by("-id")[:MOST_LOST])
