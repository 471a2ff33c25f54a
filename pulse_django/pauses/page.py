"""Paused tasks on the page of all limits: the list, and the actions to pause and resume one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from pulse_django.exceptions import InvalidJob
from pulse_django.health.known_names import UnknownName, unknown_queue, unknown_task
from pulse_django.models import Pause
from pulse_django.operations.acts import MAX_REASON, errors_in_words
from pulse_django.queue.words.bounds import MAX_QUEUE_NAME, MAX_TASK_NAME
from pulse_django.queue.words.job_options import QUEUE_NAME, TASK_NAME
from pulse_django.run.registry import registry
from pulse_django.shards.page import shard_of

from .facts import MOST_COUNTED, paused_tasks, waiting_jobs
from .pausing import names_of, pause_task, resume_task

KNOWN = "pulse-known-tasks"  # the suggestions of the browser
MOST_KNOWN = 1_000
LASTING = [
    (600, gettext_lazy("10 minutes")),
    (3_600, gettext_lazy("1 hour")),
    (21_600, gettext_lazy("6 hours")),
    (86_400, gettext_lazy("1 day")),
]
UNTIL_RESUMED = (0, gettext_lazy("until resumed"))


class TaskForm(forms.Form):
    task = forms.CharField(label=gettext_lazy("task"), max_length=MAX_TASK_NAME, strip=False)
    queue = forms.CharField(
        label=gettext_lazy("in this queue alone"), max_length=MAX_QUEUE_NAME, strip=False, required=False
    )

    def clean_task(self) -> str:
        name: str = self.cleaned_data["task"]
        try:
            TASK_NAME.check("task", name)
        except InvalidJob as error:
            raise forms.ValidationError(str(error)) from error
        return name

    def clean_queue(self) -> str:
        name: str = self.cleaned_data["queue"]
        try:
            if name:
                QUEUE_NAME.check("queue", name)
        except InvalidJob as error:
            raise forms.ValidationError(str(error)) from error
        return name

    @property
    def task_and_queue(self) -> tuple[str, str | None]:
        return self.cleaned_data["task"], self.cleaned_data["queue"] or None

    @property
    def named(self) -> str:
        task, queue = self.task_and_queue
        return task if queue is None else _("%(task)s in queue %(queue)s") % {"task": task, "queue": queue}


class PauseTaskForm(TaskForm):
    reason = forms.CharField(label=gettext_lazy("reason"), max_length=MAX_REASON)
    duration = forms.TypedChoiceField(label=gettext_lazy("for"), coerce=int, choices=[*LASTING, UNTIL_RESUMED])
    force = forms.BooleanField(label=gettext_lazy("even if no one knows it yet"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["task"].widget.attrs["list"] = KNOWN

    @property
    def pause_for(self) -> timedelta | None:
        return timedelta(seconds=self.cleaned_data["duration"]) if self.cleaned_data["duration"] else None


class PausedTasks:
    """The paused tasks on the page of limits."""

    admin_site: Any
    _may_act: Callable[[HttpRequest], bool]
    log_change: Callable[..., Any]
    message_user: Callable[..., None]

    def shown_tasks(self, request: HttpRequest) -> dict[str, Any]:
        """Return the context of the page, with a form for users who may pause."""
        shown: dict[str, Any] = {"paused_tasks": paused_tasks(shard_of(request))}
        if self._may_act(request):
            registry.discover()
            shown |= {"pause_task": PauseTaskForm(prefix="task"), "known_tasks": list(registry)[:MOST_KNOWN]}
        return shown

    def urls_of_tasks(self) -> list[URLPattern]:
        views = {"pause": self.pause_task_view, "resume": self.resume_task_view}
        return [
            path(f"tasks/{name}/", self.admin_site.admin_view(view), name=f"pulse_django_limiter_{name}_task")
            for name, view in views.items()
        ]

    def pause_task_view(self, request: HttpRequest) -> HttpResponse:
        """Pause a task."""
        return self._act_on_task(request, PauseTaskForm, self._pause_task)

    def resume_task_view(self, request: HttpRequest) -> HttpResponse:
        """Resume a task."""
        return self._act_on_task(request, TaskForm, self._resume_task)

    def _act_on_task(
        self, request: HttpRequest, kind: type[TaskForm], act: Callable[[HttpRequest, Any], str]
    ) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self._may_act(request):
            raise PermissionDenied
        form = kind(request.POST, prefix="task")
        if not form.is_valid():
            self.message_user(request, errors_in_words(form), messages.ERROR)
        elif unknown := self._unknown(request, form):
            self.message_user(request, unknown, messages.ERROR)
        elif message := act(request, form):
            task, queue = form.task_and_queue
            self.log_change(request, Pause(pk=form.named, task=task, queue=queue or ""), message)
            self.message_user(request, message, messages.SUCCESS)
        else:
            self.message_user(request, _("Nothing was changed."), messages.WARNING)
        return HttpResponseRedirect(reverse(f"{self.admin_site.name}:pulse_django_limiter_changelist"))

    @staticmethod
    def _unknown(request: HttpRequest, form: Any) -> str:
        """Refuse an unknown name: a pause with a typo would stop nothing."""
        if form.cleaned_data.get("force", True):
            return ""
        task, queue = form.task_and_queue

        def ask(question: Callable[[str], set[str]]) -> Iterable[set[str]]:
            return [question(shard_of(request))]

        found = unknown_task(task, ask) or (unknown_queue(queue, ask) if queue else None)
        return "" if found is None else in_words(found)

    def _pause_task(self, request: HttpRequest, form: Any) -> str:
        (task, queue), reason, by = form.task_and_queue, form.cleaned_data["reason"], request.user.get_username()
        alias = shard_of(request)
        if not pause_task(task, queue=queue, duration=form.pause_for, reason=reason, by=by, using=alias):
            return ""
        jobs = waiting_jobs(alias, names_of(task), queue)
        said = _("Task %(task)s paused: %(reason)s") % {"task": form.named, "reason": reason}
        return f"{said} {stops(min(jobs, MOST_COUNTED), is_more=jobs > MOST_COUNTED)}"

    def _resume_task(self, request: HttpRequest, form: Any) -> str:
        task, queue = form.task_and_queue
        is_done = resume_task(task, queue=queue, using=shard_of(request))
        return _("Task %(task)s resumed") % {"task": form.named} if is_done else ""


def in_words(unknown: UnknownName) -> str:
    """Return the question about an unknown name, in the user's language."""
    texts = {
        "task": _("No task is called %(name)s."),
        "queue": _("No queue is called %(name)s."),
    }
    said = texts[unknown.kind] % {"name": unknown.name}
    if unknown.nearest is not None:
        said += " " + _("Did you mean %(name)s?") % {"name": unknown.nearest}
    return said + " " + _("Nothing was paused.")


def stops(jobs: int, *, is_more: bool) -> str:
    """Add to a message how many jobs the pause stops."""
    said = ngettext("It stops %(jobs)s waiting job.", "It stops %(jobs)s waiting jobs.", jobs)
    return said % {"jobs": f"{jobs}+" if is_more else jobs}
