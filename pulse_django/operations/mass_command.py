"""The base class of pulse_retry, pulse_cancel and pulse_prune: select, preview, and with --yes apply and report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Event
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser, no_translations
from django.db import Error

from pulse_django.exceptions import PulseError
from pulse_django.health.known_names import unknown_queue, unknown_task
from pulse_django.health.snapshot import to_json
from pulse_django.models import Job
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.tables import explained
from pulse_django.queue.words.display import in_words, inert
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.queue.words.states import Status

from . import arguments
from .acts import Act
from .arguments import PulseCommand
from .batches import Pace, Progress, Walk, interruptible
from .preview import Preview, Selection, in_lines, look, unmatched
from .terminal import showable

INTERRUPTED = 130  # the exit code of shells for a program that Ctrl-C ended
MOST_IDS = 10  # in a list


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The selection of the operator in one shard."""

    alias: str
    jobs: JobQuerySet[Job]
    preview: Preview
    missed: dict[int, str | None]  # selected ids that do not match
    notes: list[str]


class MassCommand(PulseCommand):
    """An act on the jobs of a selection: its options, its preview, and its output.

    Every act checks each row again when it changes it. A job that has changed since the preview is skipped and
    counted. Tests replace the clock and the signals.
    """

    requires_system_checks = ()  # a project whose checks fail may need these commands most
    statuses: tuple[Status, ...] = ()  # allowed in --status
    default: tuple[Status, ...] = ()  # without --status; empty: those of the act
    noun: str  # the objects of the command, in the plural
    would: str  # the text of the preview
    act: Act
    given: tuple[str, ...] = ()  # the options that the act reads
    clock = staticmethod(time.monotonic)
    options: dict[str, Any]
    selection: Selection

    def signals(self) -> AbstractContextManager[Event]:
        return interruptible()

    def add_arguments(self, parser: CommandParser) -> None:
        arguments.add_filters(parser, self.statuses)
        arguments.add_action(parser)

    def choose(self, options: dict[str, Any]) -> None:
        self.options, self.selection = options, arguments.selection_of(options)
        self.pace = Pace(batch=options["batch"], per_minute=options["per_minute"])

    @property
    def meant(self) -> tuple[Status, ...]:
        return self.selection.statuses or self.default or self.act.statuses

    def jobs(self, alias: str) -> JobQuerySet[Job]:
        """Return the jobs that match now."""
        return replace(self.selection, statuses=self.meant).jobs(alias)

    def notes(self, alias: str) -> list[str]:
        """Return facts about the selection that an operator may not expect."""
        return []

    @no_translations  # the texts of acts are translated
    def handle(self, *args: Any, **options: Any) -> None:
        self.choose(options)
        choices, answers, limit, problem, interrupted = self._choices(), [], options["limit"], "", False
        for choice in choices:
            if len(choices) > 1:
                self._say([f"Shard {choice.alias!r}:"])
            self._say(self._chosen_in_lines(choice))
            facts = {
                "database": choice.alias,
                "filters": to_json(self.selection),
                "matches": choice.preview.matches,
                "unmatched": to_json(choice.missed),
                "notes": choice.notes,
            }
            if not options["yes"]:
                answers.append({"preview": True, **facts, **self._preview(choice.preview)})
                continue
            walk, seconds, problem = self._do(choice, limit)
            interrupted = not walk.is_complete and not problem
            if walk.met or choice.preview.matches:
                self._say(self._done_in_lines(walk, choice.preview.matches, seconds, is_cut=not walk.is_complete))
            said = {"interrupted": interrupted, "error": problem or None, "seconds": round(seconds, 3)}
            counts = {name: walk.counts[name] for name in self.act.answers}
            answers.append({"preview": False, **facts, **counts, "met": walk.met, "unsure": list(walk.unsure), **said})
            limit = None if limit is None else limit - walk.met
            if problem or interrupted or limit == 0:
                break
        if options["json"]:
            head = {"command": type(self).__module__.rpartition(".")[2]}
            self.stdout.write(json.dumps(head | (answers[0] if len(choices) == 1 else {"shards": answers})))
        if problem:
            raise CommandError(problem)
        if interrupted:
            sys.exit(INTERRUPTED)

    def _choices(self) -> list[_Choice]:
        """Return the selection in each shard. An id is reported as missing only if no shard has it."""
        choices = [self._choose(alias) for alias in arguments.aliases_of(self.options)]
        if len(choices) == 1:
            return choices
        missed = {
            job_id: next((one.missed[job_id] for one in choices if one.missed[job_id]), None)
            for job_id in choices[0].missed
            if all(job_id in one.missed for one in choices)
        }
        return [replace(one, missed=missed if one is choices[-1] else {}) for one in choices]

    def _choose(self, alias: str) -> _Choice:
        if self.selection.is_everything and not self.options["all"]:
            raise CommandError("Select jobs by id, by a filter, or with --all. Without --yes, nothing is changed.")
        try:
            jobs = self.jobs(alias)
            preview, missed = look(jobs, limit=self.options["limit"]), unmatched(jobs, self.selection.ids)
            notes = [*([] if preview.matches else self._unknown()), *self.notes(alias)]
            return _Choice(alias=alias, jobs=jobs, preview=preview, missed=missed, notes=notes)
        except (Error, PulseError, ImproperlyConfigured) as error:
            raise CommandError(f"Nothing was changed: {inert(explained(error, alias))}") from error

    def _unknown(self) -> Iterator[str]:
        """Yield the sentences about tasks and queues that no shard knows."""
        aliases = arguments.aliases_of(self.options)
        for names, unknown in ((self.selection.tasks, unknown_task), (self.selection.queues, unknown_queue)):
            yield from (inert(f"{found}") for name in names if (found := unknown(name, lambda ask: map(ask, aliases))))

    def _chosen_in_lines(self, choice: _Choice) -> list[str]:
        matches = choice.preview.matches
        one = f"1 {self.noun.removesuffix('s')} matches."
        lines = [one if matches == 1 else f"{matches or 'No'} {self.noun} match.", *in_lines(choice.preview)]
        if choice.missed:
            shown = [f"{job_id} ({status or 'no such job'})" for job_id, status in choice.missed.items()]
            more = f" and {len(shown) - MOST_IDS} more" if len(shown) > MOST_IDS else ""
            lines.append(f"Not matching: {', '.join(shown[:MOST_IDS])}{more}.")
        return [*lines, *choice.notes]

    def _preview(self, preview: Preview) -> dict[str, Any]:
        pace = self.pace
        seconds, how = pace.seconds_for(preview.matches), f"{pace.at_a_time} at a time"
        if pace.per_minute is not None:
            how += f", {pace.per_minute} a minute: about {in_words(seconds)}"
        if preview.matches:
            waiting, running = preview.matches - preview.running, preview.running
            options = {
                name: in_words(value.total_seconds()) if isinstance(value, timedelta) else value
                for name, value in self.options.items()
            }
            would = self.would.format(matches=preview.matches, waiting=waiting, running=running, **options)
            self._say([f"{would}, {how}."])
            self._say(["Nothing was changed. Add --yes to apply it."])
        return {**to_json(preview), "pace": to_json(pace), "seconds": seconds}

    def _do(self, choice: _Choice, limit: int | None) -> tuple[Walk, float, str]:
        """Run the walk. Return it, also after an interruption, with its duration and the error of the database."""
        pace, clock, problem, given = self.pace, self.clock, "", {name: self.options[name] for name in self.given}
        # Start at the lowest id of the preview: there may be millions of finished jobs before it.
        after = (choice.preview.lowest_id or 1) - 1

        def act(ids: Sequence[int]) -> Mapping[str, int]:
            return self.act.counts(self.act.do(choice.alias, ids, given), len(ids))

        walk = Walk(choice.jobs, act, pace=pace, limit=limit, after=after, clock=clock)
        progress, began = Progress(self.stderr._out, choice.preview.matches, clock, per_minute=pace.per_minute), clock()
        try:
            with self.signals() as stopping:
                walk.run(stopping, lambda walk: progress.show(walk.met))
        except KeyboardInterrupt:  # the second Ctrl-C: the report shows the progress
            pass
        except (Error, PulseError) as error:
            problem = inert(error_in_one_line(error))
        progress.end(walk.met)
        return walk, clock() - began, problem

    def _done_in_lines(self, walk: Walk, matches: int, seconds: float, *, is_cut: bool) -> list[str]:
        lines = [f"{self.act.in_words(walk.counts)} Took {in_words(round(seconds, 3))}."]
        if walk.unsure:
            lines.append(
                f"The result of {len(walk.unsure)} more, ids {walk.unsure[0]} to {walk.unsure[-1]}, is unknown: "
                f"the connection was lost. It is safe to run the command again."
            )
        if is_cut:
            left = max(0, matches - walk.met - len(walk.unsure))
            lines.append(
                f"Stopped early: about {left} of {matches} were not processed. Run the command again to continue."
            )
        return lines

    def _say(self, lines: list[str]) -> None:
        for line in [] if self.options["json"] else lines:
            self.stdout.write(showable(line, self.stdout))
