"""The arguments that the operators' commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pulse_django.exceptions import InvalidJob
from pulse_django.execution.placement import aliases_of_jobs, routers_alias
from pulse_django.words.job_ids import MAX_ID
from pulse_django.words.job_options import tag_of
from pulse_django.words.payloads import clean_text
from pulse_django.words.states import Status

from .batches import BATCH, Pace
from .durations import parse_duration
from .preview import Selection

MOST_DIGITS = 19
# The verbs travel as one statement with all ids of a batch; beyond that it gains nothing and locks too much.
MAX_BATCH = 10_000
MAX_PER_MINUTE = 10_000_000


def add_filters(parser: CommandParser, statuses: Iterable[Status]) -> None:
    """Let jobs be chosen; ``statuses`` are those that may be named, none: no choice."""
    parser.add_argument("ids", nargs="*", type=whole(1, MAX_ID), metavar="ID", help="these jobs")
    parser.add_argument("--queue", action="append", default=[], type=text, metavar="NAME", help="may be repeated")
    parser.add_argument("--task", action="append", default=[], type=text, metavar="NAME", help="may be repeated")
    parser.add_argument(
        "--tag", action="append", default=[], type=_tag, metavar="TAG", help="may be repeated: jobs with all of them"
    )
    if allowed := tuple(statuses):
        parser.add_argument(
            "--status",
            action="append",
            default=[],
            type=_status(allowed),
            metavar="STATUS",
            help=f"{', '.join(allowed)}; may be repeated",
        )
    parser.add_argument("--error", type=text, metavar="TEXT", help="text that the last error contains")
    age = "age since it ended, or since it was created: 7d, 12h, 30m, 45s"
    parser.add_argument("--older-than", type=duration, metavar="DURATION", help=age)
    parser.add_argument("--newer-than", type=duration, metavar="DURATION", help="the same")
    add_output(parser)


def add_output(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object to stdout, and nothing else")
    add_shard(parser)


def add_shard(parser: CommandParser) -> None:
    parser.add_argument("--shard", metavar="ALIAS", help="this shard alone; default: all shards")


def add_cancelled_too(parser: CommandParser, act: str = "") -> None:
    said = f"{act}also dead letters whose workflow or batch was cancelled"
    parser.add_argument("--cancelled-too", action="store_true", help=said)


def add_action(parser: CommandParser) -> None:
    parser.add_argument("--all", action="store_true", help="allow running without a filter")
    parser.add_argument("--yes", action="store_true", help="apply the change; without it, nothing is changed")
    parser.add_argument("--limit", type=whole(1, MAX_ID), metavar="N", help="maximum number of jobs, lowest ids first")
    parser.add_argument("--batch", type=whole(1, MAX_BATCH), default=BATCH, metavar="N", help=f"default {BATCH}")
    parser.add_argument(
        "--per-minute",
        type=whole(1, MAX_PER_MINUTE),
        metavar="N",
        help="maximum number of jobs per minute, spread evenly",
    )


def selection_of(options: dict[str, Any]) -> Selection:
    return Selection(
        ids=tuple(dict.fromkeys(options["ids"])),
        queues=tuple(options["queue"]),
        tasks=tuple(options["task"]),
        statuses=tuple(options.get("status", ())),
        tags=tuple(options["tag"]),
        error=options["error"] or "",
        older_than=options["older_than"],
        newer_than=options["newer_than"],
    )


def pace_of(options: dict[str, Any]) -> Pace:
    return Pace(batch=options["batch"], per_minute=options["per_minute"])


def aliases_of(options: dict[str, Any]) -> list[str]:
    """Return the shards that a command concerns. It reads where jobs are written: a replica may lag behind."""
    try:
        return aliases_of_jobs(options["shard"])
    except InvalidJob as error:
        raise CommandError(f"--shard: {error}") from error


def alias_of(options: dict[str, Any]) -> str:
    """Return the shard that was named, or else the router's: for commands that concern one."""
    return routers_alias() if options["shard"] is None else aliases_of(options)[0]


def duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def whole(least: int, most: int) -> Any:
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
    """An empty name would match nothing, or everything: most likely a variable of a script was not set."""
    if not given:
        raise argparse.ArgumentTypeError("it is empty")
    if clean_text(given, len(given)) != given:
        raise argparse.ArgumentTypeError(f"PostgreSQL cannot store {given!r}")
    return given
