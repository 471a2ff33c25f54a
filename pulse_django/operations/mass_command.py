"""What pulse_retry, pulse_cancel and pulse_prune share: select, preview, and with --yes apply and report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import Error

from pulse_django.exceptions import PulseError
from pulse_django.fleet.snapshot import to_json
from pulse_django.store.querysets import JobQuerySet
from pulse_django.store.tables import explained
from pulse_django.words.display import in_words, inert
from pulse_django.words.payloads import error_in_one_line
from pulse_django.words.states import Status

from . import arguments
from .arguments import PulseCommand
from .batches import Pace, Progress, Stopping, Walk, interruptible
from .preview import Preview, Selection, in_lines, look, unmatched
from .terminal import showable
from .verbs import MassVerb

INTERRUPTED = 130  # as shells say it of a program that Ctrl-C ended
MOST_IDS = 10  # that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What the operator named, looked up."""

    verb: MassVerb
    jobs: JobQuerySet
    selection: Selection
    alias: str
    preview: Preview
    missed: dict[int, str | None]  # ids that were named and do not match
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "database": self.alias,
            "filters": to_json(self.selection),
            "matches": self.preview.matches,
            "unmatched": to_json(self.missed),
            "notes": self.notes,
        }

    def in_lines(self) -> list[str]:
        matches, noun = self.preview.matches, self.verb.noun
        first = f"1 {noun.removesuffix('s')} matches." if matches == 1 else f"{matches or 'No'} {noun} match."
        lines = [first, *in_lines(self.preview)]
        if self.missed:
            shown = [f"{job_id} ({status or 'no such job'})" for job_id, status in self.missed.items()]
            more = f" and {len(shown) - MOST_IDS} more" if len(shown) > MOST_IDS else ""
            lines.append(f"Not matching: {', '.join(shown[:MOST_IDS])}{more}.")
        return [*lines, *self.notes]


class MassCommand(PulseCommand):
    """A command is its verb and its own arguments. Tests replace the clock and the signals."""

    requires_system_checks = ()  # a project whose checks fail may need these commands most
    statuses: tuple[Status, ...] = ()  # that --status may name
    clock = staticmethod(time.monotonic)

    def signals(self) -> AbstractContextManager[Stopping]:
        return interruptible()

    def add_arguments(self, parser: CommandParser) -> None:
        arguments.add_filters(parser, self.statuses)
        arguments.add_action(parser)

    def verb(self, selection: Selection, options: dict[str, Any]) -> MassVerb:
        raise NotImplementedError

    def notes(self, verb: Any, alias: str) -> list[str]:
        """Tell what an operator may not expect of the choice."""
        return []

    def handle(self, *args: Any, **options: Any) -> None:
        self._is_json = options["json"]
        choices, pace = self._choices(options), arguments.pace_of(options)
        told, limit, problem, interrupted = [], options["limit"], "", False
        for choice in choices:
            if len(choices) > 1:
                self._say([f"Shard {choice.alias!r}:"])
            self._say(choice.in_lines())
            if not options["yes"]:
                told.append(self._preview(choice, pace))
                continue
            report = self._do(choice, pace, limit)
            if report.met or choice.preview.matches:
                self._say(report.in_lines(choice.verb))
            told.append({"preview": False, **choice.to_json(), **report.to_json()})
            limit = None if limit is None else limit - report.met
            problem, interrupted = report.problem, report.interrupted
            if problem or interrupted or limit == 0:
                break
        self._print_json(told[0] if len(choices) == 1 else {"shards": told})
        if problem:
            raise CommandError(problem)
        if interrupted:
            sys.exit(INTERRUPTED)

    def _choices(self, options: dict[str, Any]) -> list[_Choice]:
        """Look up what was named in each shard. An id is missed if no shard has it."""
        choices = [self._choose(alias, options) for alias in arguments.aliases_of(options)]
        if len(choices) == 1:
            return choices
        missed = {
            job_id: next((one.missed[job_id] for one in choices if one.missed[job_id]), None)
            for job_id in choices[0].missed
            if all(job_id in one.missed for one in choices)
        }
        return [replace(one, missed=missed if one is choices[-1] else {}) for one in choices]

    def _choose(self, alias: str, options: dict[str, Any]) -> _Choice:
        selection = arguments.selection_of(options)
        if selection.is_everything and not options["all"]:
            raise CommandError("Select jobs by id, by a filter, or with --all. Without --yes, nothing is changed.")
        try:
            verb = self.verb(selection, options)
            jobs = verb.jobs(alias)
            return _Choice(
                verb=verb,
                jobs=jobs,
                selection=selection,
                alias=alias,
                preview=look(jobs, limit=options["limit"]),
                missed=unmatched(jobs, selection.ids),
                notes=self.notes(verb, alias),
            )
        except (Error, PulseError, ImproperlyConfigured) as error:
            raise CommandError(f"Nothing was changed: {inert(explained(error, alias))}") from error

    def _preview(self, choice: _Choice, pace: Pace) -> dict[str, Any]:
        preview, verb = choice.preview, choice.verb
        seconds = pace.seconds_for(preview.matches)
        how = f"{pace.at_a_time} at a time"
        if pace.per_minute is not None:
            how += f", {pace.per_minute} a minute: about {in_words(seconds)}"
        if preview.matches:
            self._say([f"{verb.would(preview.matches, preview.running)}, {how}."])
            self._say(["Nothing was changed. Add --yes to apply it."])
        shown = {"pace": to_json(pace), "seconds": seconds}
        return {"preview": True, **choice.to_json(), **to_json(preview), **shown}

    def _do(self, choice: _Choice, pace: Pace, limit: int | None) -> MassReport:
        verb, alias, matches = choice.verb, choice.alias, choice.preview.matches
        # The preview knows the lowest id: finished jobs by the million may lie in front of it.
        after = (choice.preview.lowest_id or 1) - 1
        clock = self.clock
        walk = Walk(choice.jobs, lambda ids: verb.act(alias, ids), pace=pace, limit=limit, after=after, clock=clock)
        progress = Progress(self.stderr._out, matches, clock, per_minute=pace.per_minute)
        began, problem = clock(), ""
        try:
            with self.signals() as stopping:
                walk.run(stopping, lambda walk: progress.show(walk.met))
        except KeyboardInterrupt:  # the second Ctrl-C: the report says how far the first got
            pass
        except (Error, PulseError) as error:
            problem = inert(error_in_one_line(error))
        progress.end(walk.met)
        return MassReport.of(walk, verb, matches=matches, seconds=clock() - began, problem=problem)

    def _say(self, lines: list[str]) -> None:
        if not self._is_json:
            for line in lines:
                self.stdout.write(showable(line, self.stdout))

    def _print_json(self, facts: dict[str, Any]) -> None:
        if self._is_json:
            command = type(self).__module__.rpartition(".")[2]
            self.stdout.write(json.dumps({"command": command, **facts}))


# What an operation did, also if it was interrupted: in lines, or as JSON.


@dataclass(frozen=True, slots=True, kw_only=True)
class MassReport:
    counts: Mapping[str, int]  # by what the verb answered
    met: int  # jobs that were given to the verb
    matches: int  # at the start
    unsure: tuple[int, ...]  # their batch was sent, and its answer never came
    interrupted: bool
    problem: str  # what the database said; empty: nothing
    seconds: float

    @classmethod
    def of(cls, walk: Walk, verb: MassVerb, *, matches: int, seconds: float, problem: str = "") -> MassReport:
        return cls(
            counts={name: walk.counts[name] for name in verb.answers},
            met=walk.met,
            matches=matches,
            unsure=walk.unsure,
            interrupted=not walk.is_complete and not problem,
            problem=problem,
            seconds=round(seconds, 3),
        )

    def in_lines(self, verb: MassVerb) -> list[str]:
        lines = [f"{verb.summary(self.counts)} Took {in_words(self.seconds)}."]
        if self.unsure:
            lines.append(
                f"The result for {len(self.unsure)} more jobs, ids {self.unsure[0]} to {self.unsure[-1]}, is unknown: "
                f"the connection was lost. It is safe to run the command again."
            )
        if self.interrupted or self.problem:
            left = max(0, self.matches - self.met - len(self.unsure))
            lines.append(
                f"Stopped early: about {left} of {self.matches} were not processed. Run the command again to continue."
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        return {
            **self.counts,
            "met": self.met,
            "unsure": list(self.unsure),
            "interrupted": self.interrupted,
            "error": self.problem or None,
            "seconds": self.seconds,
        }
