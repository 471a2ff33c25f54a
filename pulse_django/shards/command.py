"""Run a command in each shard, and print the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.db import Error

from pulse_django.exceptions import PulseError
from pulse_django.operations.arguments import PulseCommand, aliases_of
from pulse_django.operations.terminal import painted, showable
from pulse_django.queue.database.tables import explained, require_tables
from pulse_django.queue.words.display import inert

Said = tuple[dict[str, Any], list[str]]


def tell_each(
    command: BaseCommand,
    aliases: Sequence[str],
    ask: Callable[[str], Said],
    *,
    head: dict[str, Any],
    as_json: bool,
    one_is_enough: bool = False,
) -> None:
    """Call ``ask`` for each shard. Print its lines, with the name of the shard if there are several, or one JSON
    object.

    Raise CommandError at the end if a shard failed. ``one_is_enough``: the subject is in only one of the shards.
    """
    if len(aliases) == 1:
        facts, lines = ask(aliases[0])
        _print(command, {**head, "database": aliases[0], **facts}, lines, as_json=as_json)
        return
    answers, all_lines, failed = [], [], {}
    for alias in aliases:
        try:
            facts, lines = ask(alias)
        except (CommandError, Error) as error:
            failed[alias] = str(error) if isinstance(error, CommandError) else inert(explained(error, alias))
            continue
        answers.append({"database": alias, **facts})
        all_lines += [f"Shard {alias!r}:", *(f"  {line}" if line else "" for line in lines), ""]
    if failed and one_is_enough and not answers:
        raise CommandError(next(iter(failed.values())))
    if failed and not one_is_enough:
        answers += [{"database": alias, "error": words} for alias, words in failed.items()]
    _print(command, {**head, "shards": answers}, all_lines[:-1], as_json=as_json)
    if failed and not one_is_enough:
        raise CommandError("; ".join(f"shard {alias!r}: {words}" for alias, words in failed.items()))


def _print(command: BaseCommand, facts: dict[str, Any], lines: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        command.stdout.write(json.dumps(facts))
        return
    for line in lines:
        command.stdout.write(painted(showable(line, command.stdout), command.stdout))


class ActCommand(PulseCommand):
    """A command with several acts. The method of an act gets the alias and the options, and returns the output."""

    acts: tuple[str, ...]
    subject: str  # the argument that every act except "list" needs
    wanted: str  # the error without it

    def add_act(self, parser: CommandParser) -> None:
        said = f"{', '.join(self.acts)}; default: list"
        parser.add_argument("act", nargs="?", choices=self.acts, default="list", help=said)

    def aliases(self, options: dict[str, Any]) -> list[str]:
        return aliases_of(options)

    @no_translations  # the texts of acts are translated
    def handle(self, *args: Any, **options: Any) -> None:
        act, is_named = options["act"], options[self.subject] is not None
        if act != "list" and not is_named:
            raise CommandError(f"{act}: {self.wanted}")
        head, as_json = {"command": type(self).__module__.rpartition(".")[2], "act": act}, options["json"]
        ask = partial(self.act, options=options)
        tell_each(self, self.aliases(options), ask, head=head, as_json=as_json, one_is_enough=is_named)

    def act(self, alias: str, options: dict[str, Any]) -> Said:
        require_tables(alias)
        try:
            said: Said = getattr(self, f"_{options['act']}")(alias, options)
        except PulseError as error:
            raise CommandError(f"{options['act']}: {error}") from error
        return said
