"""``manage.py pulse_status``: show the state of the fleet or, with filters, the matching jobs. Read-only."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import Error, connections

from pulse_django.health import conditions, snapshot
from pulse_django.health.snapshot import to_json
from pulse_django.metrics import history
from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand
from pulse_django.operations.preview import Selection, match
from pulse_django.operations.status_lines import eight_in_lines, health_in_lines, matching_in_lines
from pulse_django.operations.terminal import cut_to, is_terminal, painted, screen_of, showable
from pulse_django.queue.database.read_only import read_only
from pulse_django.queue.database.tables import explained, require_tables
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.states import Status
from pulse_django.shards.command import Said, tell_each

UNWELL = 1


class Command(PulseCommand):
    help = (
        "Show queues, workers, dead letters and problems; with filters, the matching jobs. Read-only. Exits with 1 if "
        "there are problems."
    )
    requires_system_checks = ()  # a project whose checks fail may need it most
    _is_well = True  # the results of earlier queries

    def add_arguments(self, parser: CommandParser) -> None:
        arguments.add_filters(parser, Status)
        parser.add_argument("--all", action="store_true", help="include stopped workers")
        parser.add_argument(
            "--watch", nargs="?", type=arguments.duration, const=timedelta(seconds=2), metavar="EVERY",
            help="refresh every 2 s, or every N seconds, until Ctrl-C",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        aliases, selection = arguments.aliases_of(options), arguments.selection_of(options)
        if options["watch"] is not None:
            if options["json"] or not selection.is_everything:
                raise CommandError("--watch cannot be combined with --json or with filters.")
            self._watch(aliases, options["watch"].total_seconds())
            return
        ask = partial(self._asked, selection=selection, stopped_workers=options["all"])
        tell_each(self, aliases, ask, head={"command": "pulse_status"}, as_json=options["json"])
        if not self._is_well:
            sys.exit(UNWELL)

    def _watch(self, aliases: Sequence[str], every: float, looks: Iterable[int] | None = None) -> None:
        """Refresh the output until Ctrl-C. If the database does not respond, say so and try again."""
        clear = "\x1b[H\x1b[2J" if is_terminal(self.stdout) else ""
        with suppress(KeyboardInterrupt):
            for _ in count() if looks is None else looks:
                lines = [line for alias in aliases for line in self._glance_or_error(alias, len(aliases) > 1)]
                text = "\n".join(showable(line, self.stdout) for line in cut_to(lines, screen_of(self.stdout)))
                self.stdout.write(f"{clear}{painted(text, self.stdout)}")
                self.stdout.flush()
                time.sleep(every)

    def _glance_or_error(self, alias: str, is_one_of_several: bool) -> list[str]:
        try:
            lines = self._asked(alias, Selection(), False, is_glance=True)[1]
        except CommandError as error:
            lines = [f"The database does not respond: {error}"]
            connections[alias].close()
        return [f"Shard {alias!r}:", *lines, ""] if is_one_of_several else lines

    def _asked(self, alias: str, selection: Selection, stopped_workers: bool, *, is_glance: bool = False) -> Said:
        try:
            if selection.is_everything:
                require_tables(alias)
                verdict = conditions.ask_all(alias)  # before the snapshot, so that no age is too large
                self._is_well &= verdict.is_well
            with read_only(alias):
                if not selection.is_everything:
                    matching = match(selection, alias)
                    return {"filters": to_json(selection), **to_json(matching)}, matching_in_lines(matching)
                health = snapshot.glance(alias) if is_glance else snapshot.take(alias, stopped_workers=stopped_workers)
                past = history.read(alias)
        except (Error, ImproperlyConfigured) as error:
            raise CommandError(inert(explained(error, alias))) from error
        lines = health_in_lines(health, verdict, width=screen_of(self.stdout).width) + eight_in_lines(health, past)
        return {**verdict.to_json(), **to_json(health)}, lines
