"""Pause and resume a limit, a key of it, or a key of fairness, from the command line, in one shard."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from pulse_django.models import Limiter, Pause
from pulse_django.operations.arguments import text
from pulse_django.pauses.facts import paused_keys
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.lane_keys import key_of, lane_key, lane_of_share, limiter_of, text_of_key
from pulse_django.shards.command import Said

from .facts import LimitFacts, limits


def add_limit(parser: CommandParser) -> None:
    """Add the options that name a limit or one of its keys."""
    parser.add_argument("--limit", type=text, metavar="NAME", help="the limit")
    parser.add_argument("--key", metavar="KEY", help="with --limit: only this key, as pulse_limits shows it")
    parser.add_argument("--fair-key", metavar="KEY", help="the key of tasks with fair_by, such as a customer")


def names_limit(options: dict[str, Any]) -> bool:
    """Say whether the options name a limit or a key. Refuse options that do not fit."""
    named = [name for name in ("limit", "fair_key") if options[name] is not None]
    others = [name for name in ("queue", "task") if options[name] is not None]
    if options["key"] is not None and options["limit"] is None:
        raise CommandError("--key needs --limit.")
    if len(named) > 1 or (named and others):
        first, second = (f"--{name.replace('_', '-')}" for name in (*named, *others)[:2])
        raise CommandError(f"Name {first} or {second}, and not both.")
    return bool(named)


def pause(alias: str, options: dict[str, Any], by: str) -> Said:
    """Pause what the options name. Return the pauses in force."""
    name, duration = options["limit"], options["duration"]
    if name is not None:
        named(alias, name)  # a pause with a typo would stop nothing
    if (key := _lane_key(options)) is None:
        if duration is None:
            raise CommandError("--limit requires --for. Only a key can be paused without an end.")
        reason = options["reason"] or f"paused by {by}"
        if not Limiter.objects.db_manager(alias).pause(name, duration=duration, reason=reason):
            raise CommandError("It is already paused for longer. Resume it first.")
        return in_words(alias, name)
    if not Pause.objects.db_manager(alias).pause(lane_key=key, duration=duration, reason=options["reason"], by=by):
        raise CommandError("It is already paused for longer. Resume it first.")
    [one] = [one for one in paused_keys(alias, limiter_of(key)) if one.lane_key == key]
    return {"paused_key": one.as_json()}, [inert(one.in_words())]


def resume(alias: str, options: dict[str, Any]) -> Said:
    """Resume what the options name. Return its names."""
    name = options["limit"]
    if (key := _lane_key(options)) is None:
        named(alias, name)
        Limiter.objects.db_manager(alias).resume(name)
        return in_words(alias, name)
    if not Pause.objects.db_manager(alias).resume(lane_key=key):
        raise CommandError("It is not paused.")
    return {"resumed": key}, [inert(f"{key_of(key)}: resumed")]


def named(alias: str, name: str) -> LimitFacts:
    """Return the limit of this name, or raise."""
    found = limits(alias, name)
    if not found:
        raise CommandError(f"There is no limit {name!r}. Limits of the code are stored when a worker starts.")
    return found[0]


def in_words(alias: str, name: str) -> Said:
    """Describe the numbers of a limit."""
    one = named(alias, name)
    said = note(one)
    return {"limit": one.as_json()}, [
        inert(f"{one.name}: {one.state}, allows {one.in_words}{f'. {said}' if said else ''}")
    ]


def note(one: LimitFacts) -> str:
    """Describe changes that users and pauses have made."""
    parts = []
    if one.paused_until is not None:
        parts.append(f"paused until {one.paused_until:%Y-%m-%d %H:%M:%S%z}: {one.pause_reason}")
    elif one.half_open:
        parts.append(f"one job runs at a time: {one.pause_reason}")
    if one.override is not None:
        until = f" until {one.override_until:%Y-%m-%d %H:%M:%S%z}" if one.override_until else ""
        parts.append(f"changed by {one.overridden_by or 'unknown'}{until}: {one.override_reason or 'no reason given'}")
    return "; ".join(parts)


def _lane_key(options: dict[str, Any]) -> str | None:
    """Return the lane key that the options name. None: they name the whole limit."""
    if options["fair_key"] is not None:
        return lane_of_share(options["fair_key"])
    return None if options["key"] is None else lane_key(options["limit"], text_of_key(options["key"]))
