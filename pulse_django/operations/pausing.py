"""Pause and resume a queue or a task from the command line, in one shard."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import Error

from pulse_django.exceptions import InvalidJob
from pulse_django.execution import paused_tasks
from pulse_django.fleet import snapshot
from pulse_django.fleet.known_names import unknown_queue, unknown_task
from pulse_django.fleet.paused_tasks import PausedTaskFacts, counted_in_words, waiting_jobs
from pulse_django.fleet.paused_tasks import paused_tasks as listed_tasks
from pulse_django.fleet.snapshot import QueueFacts
from pulse_django.store.tables import require_tables
from pulse_django.words.display import inert

from .arguments import add_output, text
from .over_shards import Said


def add_subject(parser: CommandParser) -> None:
    """Let a queue or a task be named, or a task in one queue."""
    parser.add_argument(
        "--queue", type=text, metavar="NAME", help="the queue; with --task: the task in this queue alone"
    )
    parser.add_argument(
        "--task", type=text, metavar="NAME", help="the task, in all of its queues unless --queue names one"
    )
    add_output(parser)


def refuse_unknown(aliases: Collection[str], options: dict[str, Any]) -> None:
    """Ask back if no shard knows what was named: a typo would stop nothing."""

    def ask(question: Callable[[str], set[str]]) -> Iterator[set[str]]:
        for alias in aliases:
            try:
                require_tables(alias)
                yield question(alias)
            except (Error, ImproperlyConfigured):
                if len(aliases) == 1:  # of several, the others are paused, and this one is named then
                    raise

    for name, unknown in ((options["task"], unknown_task), (options["queue"], unknown_queue)):
        if name is not None and (found := unknown(name, ask)) is not None:
            raise CommandError(inert(f"{found} Nothing was paused. --force pauses what no one knows yet."))


def pause(alias: str, options: dict[str, Any], by: str) -> Said:
    """Pause what was named, and return what is paused now."""
    require_tables(alias)
    _require_subject(options)
    try:
        if options["task"] is None:
            return _pause_queue(alias, options["queue"], options["lasting"], options["reason"])
        return _pause_task(alias, options, by)
    except (InvalidJob, ValueError) as error:
        raise CommandError(str(error)) from error


def resume(alias: str, options: dict[str, Any]) -> Said:
    """Resume what was named, and return it."""
    require_tables(alias)
    _require_subject(options)
    if options["task"] is None:
        name = options["queue"]
        try:
            was_paused = paused_tasks.resume_queue(name, using=alias)
        except InvalidJob as error:
            raise CommandError(str(error)) from error
        return {"queue": name, "was_paused": was_paused}, [_resumed("queue", name, was_paused)]
    name, queue = options["task"], options["queue"]
    try:
        was_paused = paused_tasks.resume_task(name, queue=queue, using=alias)
    except InvalidJob as error:
        raise CommandError(str(error)) from error
    brought_back = paused_tasks.bring_back(alias, most_batches=None)  # also what a call before has left
    facts = {"task": name, "queue": queue, "was_paused": was_paused, "brought_back": brought_back}
    return facts, [_resumed("task", _named(name, queue or ""), was_paused)]


def _pause_queue(alias: str, name: str, lasting: timedelta | None, reason: str) -> Said:
    paused_tasks.pause_queue(name, for_=lasting, reason=reason, using=alias)
    [facts] = [one for one in snapshot.queues(alias) if one.name == name]
    until = None if facts.paused_until is None else facts.paused_until.isoformat()
    waiting = facts.due + facts.later
    said = {"queue": name, "paused_until": until, "reason": facts.pause_reason, "due": facts.due, "later": facts.later}
    stopped = f"{waiting}+" if facts.is_more else str(waiting)
    return said, [inert(f"queue {name}: {_until(facts)}; {_stops(stopped)}")]


def _pause_task(alias: str, options: dict[str, Any], by: str) -> Said:
    name, queue, reason = options["task"], options["queue"], options["reason"]
    if not paused_tasks.pause_task(name, queue=queue, for_=options["lasting"], reason=reason, by=by, using=alias):
        raise CommandError("It is paused for longer already. Resume it first.")
    aside = paused_tasks.set_aside(alias, most_batches=None)
    names = paused_tasks.names_of(name)
    found = [one for one in listed_tasks(alias) if one.task in names and one.queue == (queue or "")]
    stopped = waiting_jobs(alias, names, queue)
    lines = [inert(f"{_paused(one)}; {_stops(counted_in_words(stopped))}") for one in found]
    return {"tasks": [one.as_json() for one in found], "set_aside": aside, "stopped": stopped}, lines


def paused_task_in_words(one: PausedTaskFacts) -> str:
    return inert(f"{_paused(one)}; waiting: {one.waiting}")


def _paused(one: PausedTaskFacts) -> str:
    by = f" by {one.paused_by}" if one.paused_by else ""
    until = "until it is resumed" if one.paused_until is None else f"until {one.paused_until:%Y-%m-%d %H:%M:%S%z}"
    why = one.reason or "no reason given"
    return f"task {_named(one.task, one.queue)}: paused {until}{by}: {why}"


def _stops(jobs: str) -> str:
    return f"stops {jobs} waiting job{'' if jobs == '1' else 's'}"


def _named(task: str, queue: str) -> str:
    return f"{task} in queue {queue}" if queue else task


def _require_subject(options: dict[str, Any]) -> None:
    if options["queue"] is None and options["task"] is None:
        raise CommandError("Name a queue with --queue, a task with --task, or both.")


def _until(facts: QueueFacts) -> str:
    until = "until it is resumed" if facts.paused_until is None else f"until {facts.paused_until:%Y-%m-%d %H:%M:%S%z}"
    return f"paused {until}: {facts.pause_reason or 'no reason given'}"


def _resumed(kind: str, name: str, was_paused: bool) -> str:
    return inert(f"{kind} {name}: {'resumed' if was_paused else 'was not paused'}")
