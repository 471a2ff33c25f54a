"""``manage.py pulse_limits``: list limits, change, close and open them; pause keys."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pulse_django.exceptions import InvalidJob
from pulse_django.limits.facts import LimitFacts, limits
from pulse_django.limits.rules import Rate, override_of
from pulse_django.limits.rules import in_words as numbers_in_words
from pulse_django.models import Limiter, Pause
from pulse_django.operations import arguments
from pulse_django.operations.arguments import user_of
from pulse_django.operations.terminal import table
from pulse_django.pauses.facts import paused_keys, paused_tasks
from pulse_django.queue.words.display import in_words, inert
from pulse_django.queue.words.lane_keys import key_of, lane_key, lane_of_share, limiter_of, text_of_key
from pulse_django.shards.command import ActCommand, Said

NO_LIMIT = "none"
WHAT_TO_GIVE = "give a limit and --key, or --share."


class Command(ActCommand):
    help = (
        "List limits, what uses them, and paused tasks; change, close and open limits, pause and resume their keys and "
        "shares."
    )
    acts = ("list", "show", "set", "reset", "close", "open", "pause", "resume")
    subject, wanted = "name", "name the limit."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_act(parser)
        parser.add_argument("name", type=arguments.text, nargs="?", help="of the limit; needed by every act but list")
        parser.add_argument("--key", help="pause, resume: the key of the limit, as the list of keys shows it")
        parser.add_argument("--share", metavar="KEY", help="pause, resume: the share, instead of a limit and a key")
        number, rate = _or_none(arguments.whole_number(1, 1_000_000)), _or_none(_rate)
        parser.add_argument("--running", type=number, metavar="N", help="set: so many at once, or none")
        parser.add_argument("--per-key", type=number, metavar="N", help="set: so many of each key, or none")
        parser.add_argument("--rate", type=rate, metavar="N/DURATION", help="set: starts in a time: 100/1m, or none")
        parser.add_argument("--rate-per-key", type=rate, metavar="N/DURATION", help="set: the same of each key")
        arguments.add_lasting(parser, "set, close, pause: for so long")
        parser.add_argument("--reason", default="", help="set, close, pause: shown beside it")
        arguments.add_output(parser)

    def is_unnamed(self, options: dict[str, Any]) -> bool:
        names_share = options["share"] is not None and options["act"] in ("pause", "resume")
        return super().is_unnamed(options) and not names_share

    def _list(self, alias: str, options: dict[str, Any]) -> Said:
        found = limits(alias)
        rows = [(one.name, one.state, one.in_words, one.running, _waiting(one), _note(one)) for one in found]
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
        one = self._named(alias, options["name"])
        paused = paused_keys(alias, one.name)
        lines = [
            f"{inert(one.name)}: {one.state}, allows {one.in_words}",
            f"running: {one.running}",
            f"due: {_waiting(one)}",
            *([inert(_note(one))] if _note(one) else []),
            f"the code says: {numbers_in_words(one.of_code) if one.is_declared else 'nothing'}",
            *(table(("key", "running"), one.keys) if one.keys else []),
            *(inert(key.in_words()) for key in paused),
        ]
        return {"limit": one.as_json(), "paused_keys": [one.as_json() for one in paused]}, lines

    def _set(self, alias: str, options: dict[str, Any]) -> Said:
        one = self._named(alias, options["name"])
        given = {name: options[name] for name in ("running", "per_key", "rate", "rate_per_key") if options[name]}
        if not given:
            raise CommandError("set: give --running, --per-key, --rate or --rate-per-key.")
        numbers = override_of({name: None if value == NO_LIMIT else value for name, value in given.items()})
        Limiter.objects.db_manager(alias).override(
            one.name, numbers, for_=options["lasting"], by=user_of("pulse_limits"), reason=options["reason"]
        )
        return self._changed(alias, one.name)

    def _reset(self, alias: str, options: dict[str, Any]) -> Said:
        one = self._named(alias, options["name"])
        Limiter.objects.db_manager(alias).override(one.name, None, by=user_of("pulse_limits"))
        return self._changed(alias, one.name)

    def _close(self, alias: str, options: dict[str, Any]) -> Said:
        one = self._named(alias, options["name"])
        if options["lasting"] is None:
            raise CommandError("close: say for how long with --for.")
        reason = options["reason"] or f"closed by {user_of('pulse_limits')}"
        if not Limiter.objects.db_manager(alias).close(one.name, for_=options["lasting"], reason=reason):
            raise CommandError(f"{one.name!r} is closed for longer already. Open it first.")
        return self._changed(alias, one.name)

    def _open(self, alias: str, options: dict[str, Any]) -> Said:
        one = self._named(alias, options["name"])
        Limiter.objects.db_manager(alias).reopen(one.name)
        return self._changed(alias, one.name)

    def _pause(self, alias: str, options: dict[str, Any]) -> Said:
        if options["share"] is None and options["name"] is not None:
            self._named(alias, options["name"])  # a typo would stop nothing
        reason, by = options["reason"], user_of("pulse_limits")
        pauses = Pause.objects.db_manager(alias)
        if not pauses.pause(lane_key=(key := _lane_key(options)), for_=options["lasting"], reason=reason, by=by):
            raise CommandError("It is paused for longer already. Resume it first.")
        [one] = [one for one in paused_keys(alias, limiter_of(key)) if one.lane_key == key]
        return {"paused_key": one.as_json()}, [inert(one.in_words())]

    def _resume(self, alias: str, options: dict[str, Any]) -> Said:
        if not Pause.objects.db_manager(alias).resume(lane_key=(key := _lane_key(options))):
            raise CommandError("It is not paused.")
        return {"resumed": key}, [inert(f"{key_of(key)}: resumed")]

    def _changed(self, alias: str, name: str) -> Said:
        one = self._named(alias, name)
        note = f". {_note(one)}" if _note(one) else ""
        return {"limit": one.as_json()}, [inert(f"{one.name}: {one.state}, allows {one.in_words}{note}")]

    @staticmethod
    def _named(alias: str, name: str) -> LimitFacts:
        found = limits(alias, name)
        if not found:
            raise CommandError(f"There is no limit {name!r}. Those of the code are written when a worker starts.")
        return found[0]


def _lane_key(options: dict[str, Any]) -> str:
    """Return the lane key that --key or --share names."""
    if (options["share"] is None) == (options["name"] is None or options["key"] is None):
        raise CommandError(f"{options['act']}: {WHAT_TO_GIVE}")
    if options["share"] is not None:
        return lane_of_share(options["share"])
    return lane_key(options["name"], text_of_key(options["key"]))


def _waiting(one: LimitFacts) -> str:
    if not one.waiting:
        return "0"
    more = "+" if one.is_more else ""
    return f"{one.waiting}{more}, the first for {in_words(one.waiting_for or 0.0)}"


def _note(one: LimitFacts) -> str:
    """Return what people or answers of other systems have changed."""
    parts = []
    if one.closed_until is not None:
        parts.append(f"closed until {one.closed_until:%Y-%m-%d %H:%M:%S%z}: {one.closed_reason}")
    elif one.half_open:
        parts.append(f"one job runs at a time: {one.closed_reason}")
    if one.override is not None:
        until = f" until {one.override_until:%Y-%m-%d %H:%M:%S%z}" if one.override_until else ""
        parts.append(f"changed by {one.overridden_by or 'unknown'}{until}: {one.override_reason or 'no reason given'}")
    return "; ".join(parts)


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
