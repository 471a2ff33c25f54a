"""The page that changes the arguments of a waiting job, and the list of its earlier arguments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import TextField
from django.db.models.functions import Cast, Length
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from pulse_django.console.jobs.arguments_shown import shows_all
from pulse_django.console.jobs.story import MOST_SAVED, spelt
from pulse_django.console.pages import ConsoleAdmin
from pulse_django.encryption import values as encryption
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Amendment, Job
from pulse_django.operations.acts import MAX_REASON, MOST_ATTEMPTS
from pulse_django.queue.database.sql_functions import UNREADABLE
from pulse_django.queue.words.masks import HIDDEN, is_encrypted
from pulse_django.queue.words.own_tasks import OWN_TASKS
from pulse_django.queue.words.states import CLAIMABLE, Status
from pulse_django.run.registry import registry

from . import amending
from .amend import AmendRefusal, read_for_amending

_REFUSED: Mapping[AmendRefusal, Any] = {
    AmendRefusal.RUNNING: _("A worker has claimed the job in the meantime. Nothing was changed."),
    AmendRefusal.ENDED: _("The job has ended in the meantime. Nothing was changed."),
    AmendRefusal.GONE: _("The job was deleted in the meantime. Nothing was changed."),
    AmendRefusal.CHANGED: _("The job has changed in the meantime. Nothing was changed."),
    AmendRefusal.KEY_TAKEN: _("Job %(key_holder)s has the unique key of these arguments. Nothing was changed."),
}


class JsonText(forms.JSONField):
    """A JSON value of one kind. An empty one is a value, too."""

    widget = forms.Textarea(attrs={"rows": 8, "cols": 80, "spellcheck": "false"})

    def __init__(self, kind: type, **options: Any) -> None:
        self._kind = kind
        super().__init__(required=False, **options)

    def to_python(self, value: Any) -> Any:
        try:
            found = super().to_python(value)
            json.dumps(found, ensure_ascii=False).encode()  # a lone surrogate has no bytes
        except (RecursionError, ValueError):  # also a number of too many digits
            found = None
        if not isinstance(found, self._kind):
            wanted = _("Enter a JSON list.") if self._kind is list else _("Enter a JSON object.")
            raise forms.ValidationError(wanted)
        return found

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return the text as the user typed it."""
        return data

    def prepare_value(self, value: Any) -> Any:
        return spelt(value) if isinstance(value, list | dict) else value


class AmendForm(forms.Form):
    # The state of the job that the page showed.
    attempts = forms.IntegerField(min_value=0, max_value=MOST_ATTEMPTS, widget=forms.HiddenInput)
    seen = forms.CharField(max_length=64, widget=forms.HiddenInput)
    args = JsonText(list, label=_("positional arguments"))
    kwargs = JsonText(dict, label=_("arguments"))
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON, required=False)


class AmendPage(ConsoleAdmin):
    """Of ``JobAdmin``."""

    def amend_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        job: Job | None = self.get_object(request, unquote(object_id))
        if job is None:
            raise Http404
        if not self._may_amend(request, job):
            raise PermissionDenied
        if (why := _why_not_now(job)) is not None:
            self.tell(request, job, "", why)
            return self.redirect("job_change", job.pk)
        data, seen = request.POST if request.method == "POST" else None, _digest(job.args, job.kwargs)
        initial = {"attempts": job.attempts, "seen": seen, "args": job.args, "kwargs": job.kwargs}
        form, changes = AmendForm(data, initial=initial), []
        if data is not None and form.is_valid():
            if "preview" not in data and self._amend(request, job, form):
                return self.redirect("job_change", job.pk)
            if "preview" in data:
                before = {"args": spelt(job.args), "kwargs": spelt(job.kwargs)}
                changes = [
                    {"label": form[name].label, "old": old, "new": spelt(form.cleaned_data[name])}
                    for name, old in before.items()
                ]
        shown = {"original": job, "form": form, "title": _("Amend arguments"), "preview": changes}
        return self.page(request, "job/amend", shown)

    def _amend(self, request: HttpRequest, job: Job, form: AmendForm) -> bool:
        """Return whether the form is finished. Otherwise it has errors and is shown again."""
        given = form.cleaned_data
        alias = str(job._state.db)
        found = read_for_amending(Job.objects.db_manager(alias), job.pk)
        if found is not None and given["seen"] != _digest(json.loads(found.args), json.loads(found.kwargs)):
            self.tell(request, job, "", _REFUSED[AmendRefusal.CHANGED])
            return True
        try:
            answer = amending.amend(
                alias,
                job.pk,
                args=given["args"],
                kwargs=given["kwargs"],
                attempt=given["attempts"],
                by=request.user.get_username(),
                reason=given["reason"],
                instead_of=found,
            )
        except InvalidJob as error:
            form.add_error(None, str(error))
            return False
        refused = str(_REFUSED[answer.refused]) if answer.refused is not None else ""
        if answer.key_holder:
            refused %= {"key_holder": answer.key_holder}
        self.tell(request, job, "" if refused else str(_("Amended the arguments")), refused, reason=given["reason"])
        return True

    def _may_amend(self, request: HttpRequest, job: Job) -> bool:
        return (
            self.may(request, "pulse_amend_jobs", job)
            and request.user.has_perm("pulse_django.pulse_view_arguments")
            and (shows_all(job) or registry.get(job.task) is None)  # which the page says
        )

    def amend_url(self, request: HttpRequest, job: Job) -> str:
        """Return the URL of the form; empty if the job or the user does not allow it."""
        if not self._may_amend(request, job) or _why_not_now(job) is not None:
            return ""
        return self.url("job_amend", job.pk)


def _why_not_now(job: Job) -> Any:
    if job.status not in (Status.WAITING, *CLAIMABLE):
        return _("Only a waiting job can be amended.")
    if job.task in OWN_TASKS:
        return _("Jobs of Pulse's own tasks cannot be amended.")
    if registry.get(job.task) is None:
        return _("This process does not have the task, so it cannot check arguments.")
    return None


def _digest(args: Any, kwargs: Any) -> str:
    return hashlib.sha256(json.dumps([args, kwargs], sort_keys=True).encode()).hexdigest()


def amendments_of(job: Job, *, with_arguments: bool) -> list[dict[str, Any]]:
    """Return the changes of the arguments of a job, the latest first, without masked values.

    Arguments are read only for users who may see them, and only if they are short enough for the page.
    """
    rows = (
        Amendment.objects.using(job._state.db)
        .filter(job_id=job.pk)
        .defer("args", "kwargs")
        .annotate(size=_length_of("args") + _length_of("kwargs"))
        .order_by("-id")
    )
    arguments = _arguments_of(job, list(rows)) if with_arguments else {}
    return [{"at": row.at, "by": row.by, "reason": row.reason, "arguments": arguments.get(row.pk, "")} for row in rows]


def _length_of(field: str) -> Length:
    return Length(Cast(field, TextField()), function="pg_catalog.length")


def _arguments_of(job: Job, rows: list[Any]) -> dict[int, str]:
    """Return the old arguments by amendment."""
    short = [row.pk for row in rows if row.size <= MOST_SAVED and not is_encrypted(row.sensitive)]
    full = Amendment.objects.using(job._state.db).filter(pk__in=short)
    left_out = {
        row.pk: HIDDEN if is_encrypted(row.sensitive) else _("too long: %d characters") % row.size for row in rows
    }
    return left_out | {row.pk: _spelt_arguments(job, row) for row in full}


def _spelt_arguments(job: Job, row: Amendment) -> str:
    if UNREADABLE in (row.args, row.kwargs):
        return UNREADABLE
    seen = encryption.shown(job.task, row.args, row.kwargs, row.sensitive)
    if seen is None:
        return encryption.MASK
    lines = [spelt(value) for value in seen[0]] + [f"{name} = {spelt(value)}" for name, value in seen[1].items()]
    return "\n".join(lines)[:MOST_SAVED]
