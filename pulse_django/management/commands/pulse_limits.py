"""``manage.py pulse_limits``: list limits, and change their numbers."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pulse_django.exceptions import InvalidJob
from pulse_django.limits.command import in_words, named, note
from pulse_django.limits.facts import LimitFacts, limits
from pulse_django.limits.rules import Rate, override_of
from pulse_django.limits.rules import in_words as numbers_in_words
from pulse_django.models import Limiter
from pulse_django.operations import arguments
from pulse_django.operations.arguments import user_of
from pulse_django.operations.terminal import table
from pulse_django.pauses.facts import paused_keys, paused_tasks
from pulse_django.queue.words.display import in_words as seconds_in_words
from pulse_django.queue.words.display import inert
from pulse_django.shards.command import ActCommand, Said

NO_LIMIT = "none"


class Command(ActCommand):
    help = (
        "List limits, their use and their pauses, or change the numbers of a limit. pulse_pause and pulse_resume "
        "pause limits and their keys."
    )
    acts = ("list", "show", "set", "reset")
    subject, wanted = "name", "name the limit."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_act(parser)
        parser.add_argument("name", type=arguments.text, nargs="?", help="name of the limit; required except by list")
        number, rate = _or_none(arguments.whole_number(1, 1_000_000)), _or_none(_rate)
        parser.add_argument("--max-running", type=number, metavar="N", help="set: jobs at once, or none")
        parser.add_argument("--max-running-per-key", type=number, metavar="N", help="set: at once of each key, or none")
        parser.add_argument("--rate", type=rate, metavar="N/DURATION", help="set: starts in a period: 100/1m, or none")
        parser.add_argument("--rate-per-key", type=rate, metavar="N/DURATION", help="set: starts of each key, or none")
        arguments.add_duration(parser, "set: how long the numbers apply; default: until reset")
        parser.add_argument("--reason", default="", help="set: reason to show with them")
        arguments.add_output(parser)

    def _list(self, alias: str, options: dict[str, Any]) -> Said:
        found = limits(alias)
        rows = [(one.name, one.state, one.in_words, one.running, _waiting(one), note(one)) for one in found]
        headers = ("limit", "state", "allows", "running", "due", "")
        lines = table(headers, rows, indent="") if rows else ["There are no limits."]
        paused, tasks = paused_keys(alias), paused_tasks(alias)
        lines += [inert(one.in_words()) for one in paused]
        lines += [inert(f"{one.in_words()}; waiting: {one.waiting}") for one in tasks]
        said = {
            "limits": [one.as_json() for one in found],
            "paused_keys": [one.as_json() for one in paused],
            "paused_tasks": [one.as_json() for one in tasks],
        }
        return said, lines

    def _show(self, alias: str, options: dict[str, Any]) -> Said:
        one = named(alias, options["name"])
        paused = paused_keys(alias, one.name)
        lines = [
            f"{inert(one.name)}: {one.state}, allows {one.in_words}",
            f"running: {one.running}",
            f"due: {_waiting(one)}",
            *([inert(note(one))] if note(one) else []),
            f"the code says: {numbers_in_words(one.of_code) if one.is_declared else 'nothing'}",
            *(table(("key", "running"), one.keys) if one.keys else []),
            *(inert(key.in_words()) for key in paused),
        ]
        return {"limit": one.as_json(), "paused_keys": [one.as_json() for one in paused]}, lines

    def _set(self, alias: str, options: dict[str, Any]) -> Said:
        one = named(alias, options["name"])
        numbers_of = ("max_running", "max_running_per_key", "rate", "rate_per_key")
        given = {name: options[name] for name in numbers_of if options[name]}
        if not given:
            raise CommandError("set: give --max-running, --max-running-per-key, --rate or --rate-per-key.")
        numbers = override_of({name: None if value == NO_LIMIT else value for name, value in given.items()})
        Limiter.objects.db_manager(alias).override(
            one.name, numbers, duration=options["duration"], by=user_of("pulse_limits"), reason=options["reason"]
        )
        return in_words(alias, one.name)

    def _reset(self, alias: str, options: dict[str, Any]) -> Said:
        one = named(alias, options["name"])
        Limiter.objects.db_manager(alias).override(one.name, None, by=user_of("pulse_limits"))
        return in_words(alias, one.name)


def _waiting(one: LimitFacts) -> str:
    if not one.waiting:
        return "0"
    more = "+" if one.is_more else ""
    return f"{one.waiting}{more}, the first for {seconds_in_words(one.waiting_for or 0.0)}"


def _or_none(parse: Any) -> Any:
    def value(text: str) -> Any:
        return NO_LIMIT if text == NO_LIMIT else parse(text)

    return value


def _rate(text: str) -> Rate:
    n, slash, per = text.partition("/")
    try:
        if not slash:
            raise ValueError
        period: timedelta = arguments.duration(per)
        return Rate(int(n), per=period)
    except (ValueError, InvalidJob) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number and a time, as 100/1m") from error
