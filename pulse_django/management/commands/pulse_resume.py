"""``manage.py pulse_resume``: let jobs of a queue, a task, a limit or a key start again."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from pulse_django.limits import command
from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand
from pulse_django.pauses.command import add_subject, resume
from pulse_django.shards.command import tell_each


class Command(PulseCommand):
    help = "Let jobs of a paused queue, task, limit or key start again. --task without --queue ends all of its pauses."

    def add_arguments(self, parser: CommandParser) -> None:
        add_subject(parser)
        command.add_limit(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        head = {"command": "pulse_resume"}
        ask = partial(command.resume if command.names_limit(options) else resume, options=options)
        tell_each(self, arguments.aliases_of(options), ask, head=head, as_json=options["json"])
