"""``manage.py pulse_pause``: start no job of a queue or a task, for a time or until ``pulse_resume``."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand, user_of
from pulse_django.pauses.command import add_subject, pause, refuse_unknown
from pulse_django.shards.command import tell_each


class Command(PulseCommand):
    help = (
        "Start no job of a queue, of a task, or of a task in one queue, for a time or until pulse_resume. "
        "What runs goes on."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_subject(parser)
        parser.add_argument(
            "--for", dest="lasting", type=arguments.duration, metavar="DURATION", help="for so long; default: no end"
        )
        parser.add_argument("--reason", default="", help="shown beside it")
        parser.add_argument("--force", action="store_true", help="also if no queue or task of this name is known")

    def handle(self, *args: Any, **options: Any) -> None:
        aliases = arguments.aliases_of(options)
        if not options["force"]:
            refuse_unknown(aliases, options)
        ask = partial(pause, options=options, by=user_of("pulse_pause"))
        head = {"command": "pulse_pause"}
        tell_each(self, aliases, ask, head=head, as_json=options["json"])
