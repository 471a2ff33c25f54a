"""``manage.py pulse_pause``: start no jobs of a queue, task, limit or key for some time or until ``pulse_resume``."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from pulse_django.limits import command
from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand, user_of
from pulse_django.pauses.command import add_subject, pause, refuse_unknown
from pulse_django.shards.command import tell_each


class Command(PulseCommand):
    help = (
        "Start no jobs of a queue, a task, a task in one queue, a limit or one of its keys, for some time or "
        "until pulse_resume. Running jobs continue."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_subject(parser)
        command.add_limit(parser)
        arguments.add_duration(parser, "length of the pause; default: until resumed")
        parser.add_argument("--reason", default="", help="reason to show with the pause")
        parser.add_argument("--force", action="store_true", help="pause a queue or task that is not known")

    def handle(self, *args: Any, **options: Any) -> None:
        aliases = arguments.aliases_of(options)
        is_limit = command.names_limit(options)
        if not is_limit and not options["force"]:
            refuse_unknown(aliases, options)
        ask = partial(command.pause if is_limit else pause, options=options, by=user_of("pulse_pause"))
        head = {"command": "pulse_pause"}
        tell_each(self, aliases, ask, head=head, as_json=options["json"])
