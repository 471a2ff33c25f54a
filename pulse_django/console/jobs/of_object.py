"""The latest jobs of an object, on the page of the object in a project's admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import Error
from django.db.models import F, Model
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.statuses import here, instant_shown, status_shown
from pulse_django.models import Job
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.job_options import tag_of
from pulse_django.shards.page import SHARD, cannot_be_read
from pulse_django.shards.placement import alias_of_jobs, has_several_shards, shards

from .page_window import TAG, Ids, are_few, extent_of, latest

FIELD = "jobs_of_object"


class JobsOfObject:
    """A mixin for a ``ModelAdmin``: its pages show the latest jobs that are tagged with the object.

    ``class OrderAdmin(JobsOfObject, admin.ModelAdmin)``. Only users who may view jobs see them.
    """

    most_jobs = 20

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = super().get_readonly_fields(request, obj)  # type: ignore[misc]  # of the ModelAdmin beside it
        return [*fields, FIELD] if _may_see(request, obj) else fields

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)  # type: ignore[misc]  # of the ModelAdmin beside it
        if not _may_see(request, obj):
            return fieldsets
        own = [
            (title, options | {"fields": [name for name in options["fields"] if name != FIELD]})
            for title, options in fieldsets
        ]
        return [*own, (_("Jobs"), {"fields": [FIELD]})]

    @admin.display(description=_("Jobs"))
    def jobs_of_object(self, obj: Model) -> str:
        site = self.admin_site.name  # type: ignore[attr-defined]  # of the ModelAdmin beside it
        if not has_several_shards():
            return self._table_of(obj, alias_of_jobs(), site, {})
        shown = ""
        for alias in shards():
            try:
                table = self._table_of(obj, alias, site, {SHARD: alias})
            except Error as error:
                table = format_html('<p class="errornote">{}</p>', cannot_be_read(alias, error))
            shown = format_html("{}<p>{}</p>{}", shown, alias, table)
        return shown

    def _table_of(self, obj: Model, alias: str, site: str, shard: dict[str, str]) -> str:
        jobs = latest_jobs_of(obj, self.most_jobs, alias)
        if not jobs:
            return gettext("none")
        try:
            everything = reverse(f"{site}:pulse_django_job_changelist")
        except NoReverseMatch:  # an admin site of the project, without the pages of jobs
            return ", ".join(f"#{job.pk} {inert(job.task)} {job.get_status_display()}" for job in jobs)
        rows = ""
        for job in jobs:
            rows = format_html(
                '{}<tr><td><a href="{}{}">#{}</a></td><td>{}</td><td>{}</td><td>{}</td></tr>',
                rows,
                reverse(f"{site}:pulse_django_job_change", args=[job.pk]),
                f"?{urlencode(shard)}" if shard else "",
                job.pk,
                inert(job.task),
                status_shown(job.status),
                instant_shown(here(job.created_at)),
            )
        link = f"{everything}?{urlencode({TAG: tag_of(obj), **shard})}"
        return format_html('<table>{}</table><a href="{}">{}</a>', rows, link, gettext("All jobs with this tag"))


def latest_jobs_of(obj: Model, most: int, alias: str) -> list[Job]:
    """Return the latest jobs of an object. If it has very many, search only the latest jobs of the table."""
    tag = tag_of(obj)
    tagged = Job.objects.using(alias).tagged(tag)
    if not are_few(alias, {TAG: tag}):
        extent = extent_of(alias)
        ids = latest(alias, Ids(0, 0) if extent is None else Ids(extent.oldest_id, extent.newest_id + 1))
        tagged = tagged.filter(pk__gte=ids.low, pk__lt=ids.high)
    # The sum keeps the index of tags in use: ordered by the id itself, the planner may read the primary key.
    newest = tagged.only("pk", "task", "status", "created_at").order_by((F("pk") + 0).desc())
    return list(newest[:most])


def _may_see(request: HttpRequest, obj: object) -> bool:
    return obj is not None and request.user.has_perm("pulse_django.pulse_view_jobs")
