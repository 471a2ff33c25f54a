"""Queues in the admin: the state of each, and the actions to pause and resume one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from pulse_django import conf
from pulse_django.console.board.facts import queue_row
from pulse_django.console.charts import charts_of
from pulse_django.console.jobs.actions import MAX_REASON, QueueName, errors_in_words
from pulse_django.console.limits.paused_tasks import stops
from pulse_django.console.periods import instant_of
from pulse_django.console.readonly import ReadOnly
from pulse_django.console.shards import FoundInItsShard, Shards, about_one_row, shards_of
from pulse_django.console.tasks.admin import WINDOW_NAMES, window_of
from pulse_django.execution.notify import wake_workers
from pulse_django.execution.placement import has_several_shards, shards
from pulse_django.fleet import history, snapshot
from pulse_django.fleet.shards import joined_history, joined_queues
from pulse_django.fleet.snapshot import QueueFacts
from pulse_django.fleet.traffic import joined_courses, read_course
from pulse_django.models import Queue, Worker
from pulse_django.store.queues import Pause
from pulse_django.store.sql_functions import StatementTimestamp
from pulse_django.words.counters import TrafficKind
from pulse_django.words.limits import MAX_QUEUE_NAME

MOST_LISTED = 200  # more are opened by name
SHOWN = "admin/pulse_django/queue/one.html"


class NameForm(forms.Form):
    name = forms.CharField(max_length=MAX_QUEUE_NAME, strip=False, widget=forms.HiddenInput)


class OperateForm(NameForm):
    seen = forms.CharField(required=False, widget=forms.HiddenInput)  # the pauses that the page showed

    def clean_seen(self) -> dict[str, Pause]:
        """Return them by shard; empty: the form does not say, and may have been shown any."""
        return read_seen(self.cleaned_data["seen"], router.db_for_write(Queue))


class PauseForm(OperateForm):
    name = QueueName(widget=forms.HiddenInput)
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)
    lasting = forms.TypedChoiceField(
        label=_("for"),
        coerce=int,
        choices=[
            (600, _("10 minutes")),
            (3_600, _("1 hour")),
            (21_600, _("6 hours")),
            (86_400, _("1 day")),
            (0, _("until resumed")),
        ],
    )


class ResumeForm(OperateForm):
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON, required=False)


class QueueAdmin(FoundInItsShard, ReadOnly, admin.ModelAdmin):
    """A queue is where jobs wait: it needs no row, so its pages go by name."""

    def get_urls(self) -> list[URLPattern]:
        views = {"one": self.one_view, "pause": self.pause_view, "resume": self.resume_view}
        own = [
            path(f"{name}/", self.admin_site.admin_view(view), name=f"pulse_django_queue_{name}")
            for name, view in views.items()
        ]
        return [*own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        everywhere = shards_of(request, Queue)
        found = everywhere.ask(lambda alias: snapshot.queues(alias, named=True))
        past = joined_history(list(everywhere.ask(history.read).values()))
        facts = sorted(joined_queues(found), key=lambda queue: queue.name)
        everywhere.tell(request)
        shown = {
            "title": _("Queues"),
            "queues": [queue_row(one, past) for one in facts[:MOST_LISTED]],
            "more_queues": max(0, len(facts) - MOST_LISTED),
        }
        return self._page(request, "admin/pulse_django/queue/change_list.html", shown | (extra_context or {}))

    @about_one_row
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Links of the admin's log lead here."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        queue = self.get_object(request, object_id)
        return HttpResponseRedirect(self._url_of(queue.name) if queue else self._url("changelist"))

    def one_view(self, request: HttpRequest) -> HttpResponse:
        """Show one queue, whether it holds anything or not."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = NameForm(request.GET)
        if not form.is_valid():
            return HttpResponseRedirect(self._url("changelist"))
        name, everywhere = form.cleaned_data["name"], shards_of(request, Queue)
        past = joined_history(list(everywhere.ask(history.read).values()))
        # Before the facts that are shown: if it is paused in between, the button does nothing instead of too much.
        rows = everywhere.ask(lambda alias: Queue.objects.using(alias).filter(name=name).first())
        found = everywhere.ask(lambda alias: _facts_of(alias, name))
        facts = joined_queues({alias: [one] for alias, one in found.items()} or {"": [QueueFacts(name=name)]})[0]
        served = serving(name, everywhere)
        everywhere.tell(request)
        window = window_of(request)
        courses = everywhere.ask(lambda alias: read_course(alias, TrafficKind.QUEUE, name, window))
        shown: dict[str, Any] = {
            "title": name,
            "queue": queue_row(facts, past),
            "serving": served,
            "served_nowhere_in": served.missing_in if everywhere.are_several else (),
            "charts": charts_of(joined_courses(list(courses.values()), window)),
            "window": window,
            "windows": WINDOW_NAMES.items(),
            "row": next((row for row in rows.values() if row is not None), None),
        }
        if self._may_operate(request):
            pauses = {alias: _pause_of(rows[alias], one) for alias, one in found.items()}
            initial = {"name": name, "seen": spelt_seen(pauses)}
            shown["acts"] = [
                {"form": kind(initial=initial, auto_id=f"{name}_%s"), "url": self._url(name), "label": label}
                for name, kind, label, is_offered in (
                    ("resume", ResumeForm, _("Resume"), facts.is_paused),
                    ("pause", PauseForm, _("Pause"), not facts.is_paused or Pause(None) in pauses.values()),
                )
                if is_offered
            ]
        return self._page(request, SHOWN, shown)

    def pause_view(self, request: HttpRequest) -> HttpResponse:
        """Let no worker claim from it any more."""
        return self._operate(request, PauseForm)

    def resume_view(self, request: HttpRequest) -> HttpResponse:
        """Let workers claim from it again."""
        return self._operate(request, ResumeForm)

    def _operate(self, request: HttpRequest, kind: type[OperateForm]) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self._may_operate(request):
            raise PermissionDenied
        form = kind(request.POST)
        if not form.is_valid():
            self.message_user(request, errors_in_words(form), messages.ERROR)
            name = "" if "name" in form.errors else form.cleaned_data["name"]
            return HttpResponseRedirect(self._url_of(name) if name else self._url("changelist"))
        act = self._pause if kind is PauseForm else self._resume
        name, everywhere = form.cleaned_data["name"], shards_of(request, Queue)
        done, message = act(everywhere, form.cleaned_data)
        changed = [alias for alias, is_done in done.items() if is_done]
        if changed:
            # From where it was written: a replica may not have it yet.
            read = everywhere.only(changed[0]).ask(lambda alias: Queue.objects.using(alias).get(name=name))
            self.log_change(request, read.get(changed[0], Queue(name=name)), message)
            if kind is PauseForm:
                facts = everywhere.among(changed).ask(lambda alias: [_facts_of(alias, name)])
                [stopped] = joined_queues(facts) or [QueueFacts(name=name)]
                message += f". {stops(stopped.due + stopped.later, is_more=stopped.is_more)}"
            self.message_user(request, message, messages.SUCCESS)
        everywhere.tell(request)
        refused = [alias for alias, is_done in done.items() if not is_done]
        if not done and not everywhere.away:  # the form does not say what it was shown
            refused = list(everywhere.aliases)
        self._tell_refused(request, refused, is_done=bool(changed))
        self._tell_unseen(request, everywhere, form.cleaned_data["seen"])
        return HttpResponseRedirect(self._url_of(name))

    def _tell_refused(self, request: HttpRequest, refused: list[str], *, is_done: bool) -> None:
        """Say what another user has done since the page was shown."""
        if refused and not is_done:
            said = _("Another user has paused or resumed the queue in the meantime. Nothing was changed.")
            self.message_user(request, said, messages.WARNING)
        for alias in refused if is_done else ():
            said = _("Another user has paused or resumed the queue in the meantime in shard %(shard)s.")
            self.message_user(request, said % {"shard": alias}, messages.WARNING)

    def _tell_unseen(self, request: HttpRequest, everywhere: Shards, seen: dict[str, Pause]) -> None:
        """Name the shards that did not respond when the page was shown: nothing was done in them."""
        for alias in everywhere.aliases if seen and everywhere.are_several else ():
            if alias not in seen:
                said = _("Shard %(shard)s was missing on the page that was shown. Nothing was changed there.")
                self.message_user(request, said % {"shard": alias}, messages.WARNING)

    def _pause(self, everywhere: Shards, wanted: dict[str, Any]) -> tuple[dict[str, bool], str]:
        """Pause it in the shards that the page showed. Return in which it was done, and what to say."""
        lasting = timedelta(seconds=wanted["lasting"]) if wanted["lasting"] else None

        def pause(alias: str) -> bool:
            queues = Queue.objects.db_manager(alias)
            return queues.pause(wanted["name"], reason=wanted["reason"], lasting=lasting, seen=wanted["seen"][alias])

        end = dict(PauseForm.base_fields["lasting"].choices)[wanted["lasting"]]  # type: ignore[attr-defined]
        done = everywhere.among(wanted["seen"]).ask(pause)
        return done, str(_("Paused (%(end)s): %(reason)s") % {"end": end, "reason": wanted["reason"]})

    def _resume(self, everywhere: Shards, wanted: dict[str, Any]) -> tuple[dict[str, bool], str]:
        """The same, in those shards in which it was paused."""

        def resume(alias: str) -> bool:
            is_done = Queue.objects.db_manager(alias).resume(wanted["name"], seen=wanted["seen"][alias])
            if is_done:
                wake_workers(alias, [wanted["name"]])
            return is_done

        paused = [alias for alias, pause in wanted["seen"].items() if pause.paused_at is not None]
        said = _("Resumed: %s") % wanted["reason"] if wanted["reason"] else _("Resumed")
        return everywhere.among(paused).ask(resume), str(said)

    def _may_operate(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm("pulse_django.operate_queue")

    def _page(self, request: HttpRequest, template: str, shown: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name  # {% url %} reads it
        context = {**self.admin_site.each_context(request), "opts": self.opts, **shown}
        return TemplateResponse(request, template, context)

    def _url(self, view: str) -> str:
        return reverse(f"{self.admin_site.name}:pulse_django_queue_{view}")

    def _url_of(self, name: str) -> str:
        return f"{self._url('one')}?{urlencode({'name': name})}"


def _facts_of(alias: str, name: str) -> QueueFacts:
    return {one.name: one for one in snapshot.queues(alias)}.get(name, QueueFacts(name=name))


def _pause_of(row: Queue | None, facts: QueueFacts) -> Pause:
    return Pause(row.paused_at if row is not None and facts.is_paused else None)


# The pauses that a page showed, as its form carries them: one of each shard, so that nothing newer is overwritten.


NOT_PAUSED = "none"


def spelt_seen(pauses: Mapping[str, Pause]) -> str:
    """Spell the pauses by shard. That of a single database stands alone."""
    texts = {alias: NOT_PAUSED if one.paused_at is None else one.paused_at.isoformat() for alias, one in pauses.items()}
    if not has_several_shards():
        return "".join(texts.values())
    return " ".join(f"{shards()[alias]}={text}" for alias, text in texts.items())


def read_seen(text: str, alone: str) -> dict[str, Pause]:
    """Read them by shard; empty: the form does not say, and may have been shown any.

    ``alone`` is the database, if it is a single one.
    """
    if not has_several_shards():
        pause = _pause(text)
        return {} if pause is None else {alone: pause}
    aliases = {str(number): alias for alias, number in shards().items()}
    found = {}
    for part in text.split():
        number, _, said = part.partition("=")
        if (pause := _pause(said)) is None or number not in aliases:
            return {}
        found[aliases[number]] = pause
    return found


def _pause(text: str) -> Pause | None:
    if text == NOT_PAUSED:
        return Pause(None)
    paused_at = instant_of(text)
    return None if paused_at is None else Pause(paused_at)


# Who serves a queue: its live workers, and the command that starts one where there is none.


MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    workers: Sequence[Worker]
    more: bool  # than are named
    missing_in: Sequence[str]  # shards in which no worker serves it; of a single shard, its alias
    command: str  # starts a worker for it


def serving(name: str, everywhere: Shards) -> Serving:
    """Return the live workers of a queue."""

    def live(alias: str) -> list[Worker]:
        heard = StatementTimestamp() - conf.current().worker_silence
        serves = Q(queues=[]) | Q(queues__contains=[name])
        rows = Worker.objects.using(alias).filter(serves, stopped_at=None, last_beat_at__gt=heard)
        return list(rows.only("id", "name", "boot_id").order_by("name", "boot_id")[: MOST_NAMED + 1])

    found = everywhere.ask(live)
    once = {(one.name, one.boot_id): one for workers in found.values() for one in workers}
    workers = sorted(once.values(), key=lambda one: (one.name, one.boot_id))
    return Serving(
        workers=workers[:MOST_NAMED],
        more=len(workers) > MOST_NAMED,
        missing_in=[alias for alias, served in found.items() if not served],
        command=_command_for(name),
    )


def _command_for(name: str) -> str:
    if "," in name or name != name.strip():  # a worker for all queues serves it
        return "python manage.py pulse_worker"
    return f"python manage.py pulse_worker --queues={shlex.quote(name)}"
