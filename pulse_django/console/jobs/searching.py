"""Execute a search, with an index if there is one.

Words are searched in the names of known tasks, and in errors. No index has all jobs of a task, but one has all jobs
with an error. If the word is in no name of a task, only that index is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext

from pulse_django.console.search_terms import Search, search_in
from pulse_django.encryption.values import declared_names, known_tasks, masks_argument, terms_for
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Job
from pulse_django.queue.database.indexes import HAS_ERROR
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.sql_functions import has_a_term
from pulse_django.queue.words.display import inert

from .sidebar import sidebar_of

MOST_NAMED = 5


def searching_of(request: HttpRequest, text: str) -> Searching:
    """Return the search of this request. It is parsed once."""
    made: dict[str, Searching] = request.__dict__.setdefault("_pulse_searching", {})
    if text not in made:
        search = search_in(text)
        known = sidebar_of(request).tasks if search.words else ()
        made[text] = Searching(search, known=known, sees_arguments=may_search_arguments(request))
    return made[text]


def may_search_arguments(request: HttpRequest) -> bool:
    """Return whether the user of this request may search and see arguments."""
    user = getattr(request, "user", None)
    return user is not None and user.has_perm("pulse_django.pulse_view_arguments")


class Searching:
    """One search. ``known`` has the names of tasks. With ``sees_arguments``, the user may search arguments."""

    def __init__(self, search: Search, *, known: Sequence[str], sees_arguments: bool) -> None:
        self.search = search
        self._sees_arguments = sees_arguments
        self.tasks = {word: [task for task in known if word.casefold() in task.casefold()] for word in search.words}
        self.names = declared_names() if search.number and sees_arguments else []

    @property
    def is_refused(self) -> bool:
        return bool(self.search.arguments) and not self._sees_arguments

    @property
    def is_one_job(self) -> bool:
        return self.search.job_id is not None and not self.names

    @property
    def is_about_errors(self) -> bool:
        """Return whether only jobs with an error can match."""
        return bool(self.search.errors) or any(not tasks for tasks in self.tasks.values())

    def narrowed(self, jobs: JobQuerySet[Job]) -> JobQuerySet[Job]:
        """Return those of these jobs that match."""
        search = self.search
        if self.is_refused:
            return jobs.none()
        found = self.by_index(jobs)
        jobs = jobs if found is None else found
        for name in search.tasks:
            jobs = jobs.filter(task__icontains=name)
        for text in search.errors:
            jobs = jobs.filter(last_error__icontains=text)
        for word, tasks in self.tasks.items():
            jobs = jobs.filter(Q(task__in=tasks) | HAS_ERROR & Q(last_error__icontains=word))
        return jobs

    def by_index(self, jobs: JobQuerySet[Job]) -> JobQuerySet[Job] | None:
        """Return those of these jobs that match the indexed parts of the search, or None if it has no such parts."""
        search, before = self.search, jobs
        if search.job_id is not None:
            is_meant = Q(pk=search.job_id)
            jobs = jobs.filter(is_meant | _has_argument(self.names, search.number) if self.names else is_meant)
        for name, value in search.arguments:
            jobs = jobs.filter(_has_argument([name], value))
        for parent in search.parents:
            jobs = jobs.filter(parent_id=parent)
        if search.tags:
            try:
                jobs = jobs.tagged(*search.tags)
            except InvalidJob:  # invalid tags, or too many
                jobs = jobs.none()
        if self.is_about_errors:
            jobs = jobs.with_an_error()
        return None if jobs is before else jobs

    def notes(self, job_is_there: bool | None) -> list[str]:
        """Return notes that explain the result. ``job_is_there`` says whether a job has the searched number."""
        notes = []
        if job_is_there is not None:
            said = gettext("There is a job %(id)d.") if job_is_there else gettext("There is no job %(id)d.")
            notes.append(said % {"id": self.search.job_id})
        if self.search.number:
            notes.append(self._note_of_number())
        if self.is_refused:
            notes.append(gettext("You need the permission to see arguments to search them."))
        for word, tasks in self.tasks.items():
            notes.append(_note_of_word(word, tasks))
        return notes

    def _note_of_number(self) -> str:
        if not self._sees_arguments:
            return gettext("Arguments were not searched: you need the permission to see them.")
        if not self.names:
            return gettext("Arguments were not searched: no task declares any with search.")
        names = ", ".join(inert(name) for name in self.names)
        return gettext("All other jobs have the value %(value)s as one of these arguments: %(names)s.") % {
            "value": self.search.number,
            "names": names,
        }


def _has_argument(names: Sequence[str], value: str) -> Q:
    """Match jobs with this value as one of these arguments, of known tasks that do not mask the argument.

    A job may have been enqueued before its task masked the argument.
    """
    tasks, found = known_tasks(), Q(pk__in=())
    by_tasks: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        showing = tuple(key for key, task in tasks.items() if not masks_argument(task, name))
        by_tasks.setdefault(showing, []).append(name)
    for showing, some in by_tasks.items():
        found |= has_a_term(terms_for(some, value)) & Q(task__in=showing)
    return found


def _note_of_word(word: str, tasks: Sequence[str]) -> str:
    if not tasks:
        said = gettext(
            "No known task has “%(word)s” in its name, so only errors were searched for it. To search the jobs of all"
            " tasks by name, type task:%(word)s."
        )
        return said % {"word": inert(word)}
    named = ", ".join(inert(one) for one in tasks[:MOST_NAMED]) + (", …" if len(tasks) > MOST_NAMED else "")
    return gettext("Tasks with “%(word)s” in their names: %(tasks)s.") % {"word": inert(word), "tasks": named}
