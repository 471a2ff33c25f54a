"""Pause and resume a queue or a task from the command line, in one shard."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import Error

from pulse_django.exceptions import InvalidJob
from pulse_django.health import snapshot
from pulse_django.health.known_names import unknown_queue, unknown_task
from pulse_django.operations.arguments import add_output, text
from pulse_django.queue.database.tables import require_tables
from pulse_django.queue.words.display import inert
from pulse_django.shards.command import Said

from . import pausing as pauses
from .facts import PauseFacts, counted_in_words, paused_queues, paused_tasks, waiting_jobs


def add_subject(parser: CommandParser) -> None:
    """Add the options that name a queue, a task, or a task in one queue."""
    parser.add_argument(
        "--queue", type=text, metavar="NAME", help="the queue; with --task: only the task in this queue"
    )
    parser.add_argument(
        "--task", type=text, metavar="NAME", help="the task, in all of its queues unless --queue names one"
    )
    add_output(parser)


def refuse_unknown(aliases: Collection[str], options: dict[str, Any]) -> None:
    """Refuse a name that no shard knows: a pause with a typo would stop nothing."""

    def ask(question: Callable[[str], set[str]]) -> Iterator[set[str]]:
        for alias in aliases:
            try:
                require_tables(alias)
                yield question(alias)
            except (Error, ImproperlyConfigured):
                if len(aliases) == 1:  # if there are several, the others are paused and this one is named
                    raise

    for name, unknown in ((options["task"], unknown_task), (options["queue"], unknown_queue)):
        if name is not None and (found := unknown(name, ask)) is not None:
            raise CommandError(inert(f"{found} Nothing was paused. --force pauses an unknown name."))


def pause(alias: str, options: dict[str, Any], by: str) -> Said:
    """Pause what the options name. Return the pauses in force."""
    task, queue = _subject(alias, options)
    how = {"duration": options["duration"], "reason": options["reason"], "by": by, "using": alias}
    try:
        is_changed = pauses.pause_queue(queue, **how) if task is None else pauses.pause_task(task, queue=queue, **how)
    except InvalidJob as error:
        raise CommandError(str(error)) from error
    if not is_changed:
        raise CommandError("It is already paused for longer. Resume it first.")
    if task is None:
        [stopped] = [one for one in snapshot.queues(alias) if one.name == queue]
        jobs = f"{stopped.due + stopped.later}{'+' if stopped.is_more else ''}"
        [found] = paused_queues(alias, queue)
        return found.as_json() | {"due": stopped.due, "later": stopped.later}, [_stops(found, jobs)]
    aside = pauses.set_aside(alias, most_batches=None)
    names = pauses.names_of(task)
    listed = [one for one in paused_tasks(alias) if one.task in names and one.queue == (queue or "")]
    stops = waiting_jobs(alias, names, queue)
    said = {"tasks": [one.as_json() for one in listed], "set_aside": aside, "stopped": stops}
    return said, [_stops(one, counted_in_words(stops)) for one in listed]


def resume(alias: str, options: dict[str, Any]) -> Said:
    """Resume what the options name. Return its names."""
    task, queue = _subject(alias, options)
    try:
        if task is None:
            was_paused = pauses.resume_queue(queue, using=alias)
        else:
            was_paused = pauses.resume_task(task, queue=queue, using=alias)
    except InvalidJob as error:
        raise CommandError(str(error)) from error
    named = f"queue {queue}" if task is None else f"task {task} in queue {queue}" if queue else f"task {task}"
    said = {"queue": queue, "was_paused": was_paused}
    if task is not None:  # including jobs that an earlier call left
        said |= {"task": task, "brought_back": pauses.bring_back(alias, most_batches=None)}
    return said, [inert(f"{named}: {'resumed' if was_paused else 'was not paused'}")]


def _subject(alias: str, options: dict[str, Any]) -> tuple[str | None, Any]:
    """Return the task and the queue of the options."""
    require_tables(alias)
    if options["queue"] is None and options["task"] is None:
        raise CommandError("Name a queue with --queue, a task with --task, or both.")
    return options["task"], options["queue"]


def _stops(one: PauseFacts, jobs: str) -> str:
    return inert(f"{one.in_words()}; stops {jobs} waiting job{'' if jobs == '1' else 's'}")
