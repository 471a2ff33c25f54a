"""Arguments that several commands share, and their base class."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import timedelta
from getpass import getuser
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, OperationalError

from pulse_django.exceptions import InvalidJob
from pulse_django.queue.database.database_errors import is_refused
from pulse_django.queue.words.bounds import MAX_DELAY
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.job_ids import MAX_ID
from pulse_django.queue.words.job_options import tag_of
from pulse_django.queue.words.payloads import clean_text, error_in_one_line
from pulse_django.queue.words.states import Status
from pulse_django.shards.placement import aliases_of_jobs, routers_alias

from .batches import BATCH
from .preview import Selection

MOST_DIGITS = 19
# A batch is one statement with all its ids. A larger batch is not faster, and locks too many rows.
MAX_BATCH = 10_000
MAX_PER_MINUTE = 10_000_000


def require_unix(command: str) -> None:
    if sys.platform == "win32":
        raise CommandError(
            f"{command} needs a Unix system: run it in WSL or in a container. Web processes, enqueue() and tests work "
            "on Windows."
        )


def add_filters(parser: CommandParser, statuses: Iterable[Status]) -> None:
    """Add the arguments that select jobs. Without ``statuses``, there is no ``--status``."""
    parser.add_argument("ids", nargs="*", type=whole_number(1, MAX_ID), metavar="ID", help="these jobs")
    repeated: dict[str, Any] = {"action": "append", "default": []}
    parser.add_argument("--queue", dest="queues", **repeated, type=text, metavar="NAME", help="may be repeated")
    parser.add_argument("--task", dest="tasks", **repeated, type=text, metavar="NAME", help="may be repeated")
    said = "may be repeated: jobs with all tags"
    parser.add_argument("--tag", dest="tags", **repeated, type=_tag, metavar="TAG", help=said)
    if allowed := tuple(statuses):
        said = f"{', '.join(allowed)}; may be repeated"
        parser.add_argument("--status", dest="statuses", **repeated, type=_status(allowed), metavar="STATUS", help=said)
    parser.add_argument("--error", type=text, metavar="TEXT", help="text that the last error contains")
    age = "age since it ended, or since it was created: 7d, 12h, 30m, 45s"
    parser.add_argument("--older-than", type=duration, metavar="DURATION", help=age)
    parser.add_argument("--newer-than", type=duration, metavar="DURATION", help="the same, for younger jobs")
    add_output(parser)


def add_output(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object to stdout, and nothing else")
    add_shard(parser)


def add_shard(parser: CommandParser) -> None:
    parser.add_argument("--shard", metavar="ALIAS", help="only this shard; default: all shards")


def add_duration(parser: CommandParser, said: str) -> None:
    parser.add_argument("--for", dest="duration", type=duration, metavar="DURATION", help=said)


def add_cancelled_too(parser: CommandParser, act: str = "") -> None:
    said = f"{act}also dead letters whose workflow or batch was cancelled"
    parser.add_argument("--cancelled-too", action="store_true", help=said)


def add_action(parser: CommandParser) -> None:
    parser.add_argument("--all", action="store_true", help="allow running without a filter")
    parser.add_argument("--yes", action="store_true", help="apply the change; without it, nothing is changed")
    most, pace = whole_number(1, MAX_ID), whole_number(1, MAX_PER_MINUTE)
    parser.add_argument("--limit", type=most, metavar="N", help="maximum number of jobs, lowest ids first")
    parser.add_argument("--batch", type=whole_number(1, MAX_BATCH), default=BATCH, metavar="N", help=f"default {BATCH}")
    parser.add_argument("--per-minute", type=pace, metavar="N", help="maximum number of jobs per minute, spread evenly")


def selection_of(options: dict[str, Any]) -> Selection:
    named = {one.name: options.get(one.name) for one in fields(Selection)}
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    several = {name: tuple(dict.fromkeys(value)) for name, value in given.items() if isinstance(value, list)}
    return Selection(**{**given, **several})


def aliases_of(options: dict[str, Any]) -> list[str]:
    """Return the aliases of the shards for a command. They are writable, because a replica may lag behind."""
    try:
        return aliases_of_jobs(options["shard"])
    except InvalidJob as error:
        raise CommandError(f"--shard: {error}") from error


def alias_of(options: dict[str, Any]) -> str:
    """Return the shard of ``--shard``, or else of the router, for commands that use only one shard."""
    return routers_alias() if options["shard"] is None else aliases_of(options)[0]


def whole_number(least: int, most: int) -> Any:
    """Return a parser of whole numbers in a range."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return number


def _status(allowed: tuple[Status, ...]) -> Any:
    def status(text: str) -> Status:
        name = text.upper().replace("-", "_")
        if name not in allowed:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(allowed)}")
        return Status(name)

    return status


def _tag(text: str) -> str:
    try:
        return tag_of(text)
    except InvalidJob as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def text(given: str) -> str:
    """Refuse an empty text. It would match nothing, or everything; probably a variable of a script is not set."""
    if not given:
        raise argparse.ArgumentTypeError("the value is empty")
    if clean_text(given, len(given)) != given:
        raise argparse.ArgumentTypeError(f"PostgreSQL cannot store {given!r}")
    return given


# Durations of the command line: 7d, 12h, 30m, 45s, 1d12h, or plain seconds.


_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_NUMBER = r"(\d+(?:\.\d+)?)"
# A number without a unit must be the whole text: in 1h30 it could mean minutes or seconds.
_WRITTEN = re.compile("".join(f"(?:{_NUMBER}{unit})?" for unit in _SECONDS), re.ASCII)
_PLAIN = re.compile(_NUMBER, re.ASCII)


def duration(text: str) -> timedelta:
    """Return the duration, or raise an error that lists the accepted formats."""
    written = text.strip().lower()
    found = _WRITTEN.fullmatch(f"{written}s" if _PLAIN.fullmatch(written) else written)
    if found is None or not any(found.groups()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration: use 7d, 12h, 30m, 45s, 1d12h or a number of seconds"
        )
    parts = zip(found.groups(), _SECONDS.values(), strict=True)
    seconds = sum(float(number) * size for number, size in parts if number)
    if seconds > MAX_DELAY.total_seconds():
        raise argparse.ArgumentTypeError(f"{text!r} is longer than {MAX_DELAY.days} days")
    return timedelta(seconds=seconds)


# The user who runs a command.


def user_of(command: str) -> str:
    """Return the user of the operating system and the command, for the record of a change."""
    try:
        return f"{getuser()} ({command})"
    except (KeyError, OSError):  # a container's user may have no name
        return command


# The base class of all commands. It prints no traceback if PostgreSQL refuses a statement, or if a pipe is closed.


BROKEN_PIPE = 128 + 13  # the exit code of shells for SIGPIPE


class PulseCommand(BaseCommand):
    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()
        except BrokenPipeError:
            # Python flushes stdout at exit, and would raise again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BROKEN_PIPE)
        except Error as error:
            if not is_refused(error):
                raise
            raise CommandError(f"The database refused this: {inert(error_in_one_line(error))}") from error
        return output

    def reachable(self, aliases: Sequence[str], require: Callable[[str], object]) -> list[str]:
        """Return the shards that pass ``require``. With several shards, one that is unreachable is skipped for now."""
        found = []
        for alias in aliases:
            try:
                require(alias)
                found.append(alias)
            except OperationalError as error:
                if len(aliases) == 1:
                    raise
                self.stderr.write(self.style.WARNING(f"Shard {alias!r} cannot be queried: {error_in_one_line(error)}"))
        return found
