"""The filters beside the list of jobs. They use Django's own class, so every theme of the admin shows them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulse_django.console.search_terms import number_in
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Job
from pulse_django.queue.database.querysets import JobQuerySet, held_by_start
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words.job_options import tag_of
from pulse_django.queue.words.states import Status
from pulse_django.workflows.batch_verbs import members_of

from .page_window import BATCH, ERROR, QUEUE, STATUS, TAG, WORKER, same_error
from .sidebar import Sidebar, sidebar_of

LONGEST_TITLE = 80
AGES = {
    "15m": (timedelta(minutes=15), _("Last 15 minutes")),
    "1h": (timedelta(hours=1), _("Last hour")),
    "1d": (timedelta(days=1), _("Last day")),
    "7d": (timedelta(days=7), _("Last week")),
}


class Chosen(admin.SimpleListFilter):
    """A filter by one value. The address may have a value that is not in the list: a link may be older."""

    def value(self) -> str | None:
        value = super().value()
        return value if value and "\0" not in value else None  # PostgreSQL text cannot contain it

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        offered = list(self.offered(sidebar_of(request)))
        value = self.value()
        if value is not None and value not in offered:
            offered.append(value)
        return [(one, _shortened(one)) for one in offered]

    def offered(self, sidebar: Sidebar) -> Iterable[str]:
        """Return the values of the list. Filters whose values are too many offer none."""
        return ()

    def queryset(self, request: HttpRequest, queryset: Any) -> QuerySet[Job]:
        value = self.value()
        return queryset if value is None else self.narrowed(queryset, value)

    def narrowed(self, jobs: JobQuerySet[Job], value: str) -> QuerySet[Job]:
        """Filter jobs by this value. The parameter in the address is a lookup, unless a filter overrides this."""
        return jobs.filter(**{str(self.parameter_name): value})


class StatusFilter(Chosen):
    title = _("status")
    parameter_name = STATUS

    def value(self) -> str | None:
        value = super().value()
        return value if value in list(Status) else None

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(Job._meta.get_field("status").flatchoices)


class QueueFilter(Chosen):
    title = _("queue")
    parameter_name = QUEUE

    def offered(self, sidebar: Sidebar) -> Iterable[str]:
        return sidebar.names.queues


class TaskFilter(Chosen):
    title = _("task")
    parameter_name = "task"

    def offered(self, sidebar: Sidebar) -> Iterable[str]:
        return sidebar.tasks


class ErrorFilter(Chosen):
    """Dead letters of one group. Parts in which their errors differ are shown as #."""

    title = _("error of dead letters")
    parameter_name = ERROR

    def offered(self, sidebar: Sidebar) -> Iterable[str]:
        return sidebar.groups

    def narrowed(self, jobs: JobQuerySet[Job], value: str) -> QuerySet[Job]:
        return same_error(jobs, value)


class WorkerFilter(Chosen):
    """The running jobs of one start of a worker."""

    title = _("worker")
    parameter_name = WORKER

    def offered(self, sidebar: Sidebar) -> Iterable[str]:
        return sidebar.names.workers

    def narrowed(self, jobs: JobQuerySet[Job], value: str) -> QuerySet[Job]:
        return jobs.running().filter(held_by_start("locked_by", *value.rpartition(":")[::2]))


class TagFilter(Chosen):
    """The jobs with a tag. The list offers no tags, because there may be very many."""

    title = _("tag")
    parameter_name = TAG

    def value(self) -> str | None:
        return next(iter(valid_tags([super().value() or ""])), None)

    def narrowed(self, jobs: JobQuerySet[Job], value: str) -> QuerySet[Job]:
        return jobs.tagged(value)


class BatchFilter(Chosen):
    """The jobs of one workflow. The list offers no workflows: the page of each has a link."""

    title = _("workflow")
    parameter_name = BATCH

    def value(self) -> str | None:
        number = number_in(super().value() or "")
        return None if number is None else str(number)

    def narrowed(self, jobs: JobQuerySet[Job], value: str) -> QuerySet[Job]:
        return members_of(jobs, int(value))


class AgeFilter(Chosen):
    title = _("created")
    parameter_name = "age"

    @property
    def age(self) -> timedelta | None:
        value = self.value()
        return None if value is None else AGES[value][0]

    def value(self) -> str | None:
        value = super().value()
        return value if value in AGES else None

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(value, title) for value, (_age, title) in AGES.items()]

    def narrowed(self, jobs: JobQuerySet[Job], value: str) -> QuerySet[Job]:
        return jobs.filter(created_at__gte=StatementTimestamp() - AGES[value][0])


def valid_tags(texts: Iterable[str]) -> list[str]:
    """Return the texts that are valid tags."""
    tags = []
    for text in texts:
        with suppress(InvalidJob):
            tags.append(tag_of(text))
    return tags


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…"
