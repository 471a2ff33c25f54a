"""``manage.py pulse_shards``: show the shards, add one, move waiting jobs between them, or empty one."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Collection
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError, CommandParser
from django.db import Error

from pulse_django import conf
from pulse_django.citus.nodes import (
    LEADS_TO_A_NODE,
    CitusNode,
    distribute,
    leads_to_a_node,
    move_schema,
    node_of,
)
from pulse_django.exceptions import InvalidJob
from pulse_django.health.snapshot import to_json
from pulse_django.models import Job
from pulse_django.operations.acts import Act, Answer, Given
from pulse_django.operations.arguments import PulseCommand
from pulse_django.operations.mass_command import MassCommand
from pulse_django.operations.terminal import showable, table
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.tables import problem_with_tables, require_tables
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.shards.fleet import MOST_COUNTED, ShardFacts, shard_facts
from pulse_django.shards.ids import TOKENS, number_ids, position_of, raise_sequence, require_numbers
from pulse_django.shards.moving import finish, movable, move
from pulse_django.shards.placement import checked_shard, routers_alias, shards

ACTS = ("status", "add", "move", "drain")
_DIGITS = 4  # digits of a key's hash at the start of a lane key


class Command(PulseCommand):
    help = "Show the shards, make a database a shard, move waiting jobs to another shard, or empty one."
    requires_system_checks = ()  # a new shard does not pass them yet

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "act", nargs="?", choices=ACTS, default="status", help=f"{', '.join(ACTS)}; default: status"
        )
        MassCommand.add_arguments(_Move(), parser)
        parser.add_argument("--from", dest="from_shard", metavar="ALIAS", help="move, drain: the shard to move from")
        parser.add_argument("--to", metavar="ALIAS", help="move, drain: the shard to move to")
        parser.add_argument(
            "--node", type=_node, metavar="HOST:PORT",
            help="move, on Citus: the node to move the schema of --shard to, while it is in use",
        )  # fmt: skip
        parser.add_argument(
            "--keys", type=_keys, metavar="FROM-TO",
            help="move: only jobs whose key in fair_by has a hash in this range; 0000-7fff is half of them",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        act = options["act"]
        if act == "status":
            self._status(as_json=options["json"])
        elif act == "add":
            self._add(_shard(options["shard"], "--shard"))
        elif act == "move" and options["node"] is not None:
            self._move_schema(_shard(options["shard"], "--shard"), options)
        else:
            self._move(act, options)

    def _status(self, *, as_json: bool) -> None:
        found = [shard_facts(alias) for alias in shards()]
        if as_json:
            self.stdout.write(json.dumps({"command": "pulse_shards", "shards": [to_json(one) for one in found]}))
        else:
            nodes = ("node",) if any(one.node for one in found) else ()
            headers = ("shard", "number", "waiting", "running", "for others", "on its way", "last token", *nodes, "")
            rows: list[tuple[object, ...]] = []
            for one in found:
                counted = (one.waiting, one.running, one.for_others)
                counts = [f"{count}+" if count >= MOST_COUNTED else count for count in counted]
                node = [one.node] if nodes else []
                rows.append((one.alias, one.number, *counts, one.departed, one.token, *node, one.problem))
            for line in table(headers, rows, indent=""):
                self.stdout.write(showable(line, self.stdout))
        if wrong := [one.alias for one in found if one.problem]:
            raise CommandError(f"{len(wrong)} of {len(found)} shards have a problem: {', '.join(wrong)}.")

    def _add(self, alias: str) -> None:
        """Prepare a database as a shard. Each step can be repeated; other shards are not changed."""
        number = shards()[alias]
        if leads_to_a_node(alias):
            raise CommandError(f"{LEADS_TO_A_NODE.format(alias=alias)}.")
        call_command("migrate", "pulse_django", database=alias, verbosity=0)
        try:
            require_tables(alias)
            number_ids(alias, number)  # before Citus distributes the sequences: it refuses to change their owner
            distribute(alias)
            require_numbers(alias, number)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        # A shard without tables has given no tokens. When it is added, its tokens begin above these.
        try:
            granted = [position_of(one, TOKENS) for one in shards() if one == alias or not problem_with_tables(one)]
        except Error as error:
            reason = error_in_one_line(error)
            raise CommandError(
                f"Run this again when all shards answer: its tokens have to exceed theirs. {reason}"
            ) from error
        raise_sequence(alias, TOKENS, max(granted))
        token = position_of(alias, TOKENS) + 1
        self.stdout.write(f"Shard {alias!r} is ready: its ids begin with {number}, and its tokens with {token}.")
        if node := node_of(alias):
            self.stdout.write(f"Citus keeps its schema on {node}.")
        self.stdout.write("Start the workers again with these settings, and then the web processes.")

    def _move_schema(self, alias: str, options: dict[str, Any]) -> None:
        if any(options[name] is not None for name in ("from_shard", "to", "keys")):
            raise CommandError("--node moves a whole schema: it takes no --from, --to and --keys.")
        to, node = options["node"], node_of(alias)
        if not options["yes"] and node is not None:
            self.stdout.write(f"Shard {alias!r} is on {node}. With --yes, it moves to {to} while it is in use.")
            return
        try:
            before = move_schema(alias, to)
        except (ImproperlyConfigured, Error) as error:
            raise CommandError(error_in_one_line(error)) from error
        self.stdout.write(f"Shard {alias!r} has moved from {before} to {to}." if before != to else "It is there.")

    def _move(self, act: str, options: dict[str, Any]) -> None:
        source, to = _shard(options["from_shard"], "--from"), _shard(options["to"], "--to")
        if source == to:
            raise CommandError("--from and --to are the same shard.")
        if act == "drain" and (why := _why_jobs_still_come(source)):
            raise CommandError(f"Shard {source!r} still gets new jobs: {why}.")
        for alias in (source, to):
            facts = shard_facts(alias)
            if facts.problem:
                raise CommandError(f"Shard {alias!r}: {facts.problem}")
            if facts.node:
                raise CommandError(
                    f"Jobs leave and join {alias!r}, a schema of Citus, only with it: move it by --node."
                )
        if options["yes"]:
            begun = finish(source)
            if begun.moved or begun.went_back:
                self.stderr.write(
                    f"Finished an earlier move: {len(begun.moved)} moved, {len(begun.went_back)} went back."
                )
        command = _Move()
        command.stdout, command.stderr = self.stdout, self.stderr
        command.handle(
            **{**options, "shard": source, "all": options["all"] or options["keys"] is not None or act == "drain"}
        )
        if act == "drain" and options["yes"]:
            self._tell_what_is_left(shard_facts(source))

    def _tell_what_is_left(self, left: ShardFacts) -> None:
        if left.is_empty:
            self.stdout.write(f"Shard {left.alias!r} is empty. Remove it from SHARDS when you need no history of it.")
            return
        raise CommandError(
            f"{left.waiting} waiting, {left.running} running and {left.for_others} jobs that wait for others are left "
            f"in shard {left.alias!r}, and {left.departed} are on their way. Let workers run them there, and run this "
            f"again."
        )


def _move(alias: str, ids: Collection[int], given: Given) -> Answer:
    done = move(Job.objects.using(alias).filter(pk__in=list(ids)), given["to"])
    return {"moved": done.moved, "went_back": done.went_back}


_MOVED = {"moved": "moved", "left": "locked or no longer matched", "went_back": "left: another job there has the key"}


class _Move(MassCommand):
    """Move waiting jobs that no limit, batch or parent of this shard counts."""

    noun = "waiting jobs that can be moved"
    would = "Would move {matches} to shard {to!r}"
    act, given = Act(name="move to a shard", do=_move, answers=_MOVED, changes=("moved",), missed="left"), ("to",)

    def jobs(self, alias: str) -> JobQuerySet[Job]:
        found = self.selection.jobs(alias)
        if self.options["keys"] is not None:
            first, below = self.options["keys"]
            found = found.filter(lane_key__gte=f":{first}", lane_key__lt=f":{below}")
        return movable(found)

    def notes(self, alias: str) -> list[str]:
        return ["Jobs of limits, batches and steps, and jobs with an unfinished parent, stay until they have run."]


def _shard(alias: str | None, said_by: str) -> str:
    if alias is None:
        raise CommandError(f"{said_by}: name the shard.")
    try:
        return checked_shard(alias, said_by)
    except InvalidJob as error:
        raise CommandError(str(error)) from error


def _why_jobs_still_come(alias: str) -> str:
    queues = [queue for queue, names in conf.current().queue_shards.items() if alias in names]
    if queues:
        return f"QUEUE_SHARDS names it for {', '.join(map(repr, queues[:3]))}"
    return "the router sends jobs without a shard there" if alias == routers_alias() else ""


def _node(text: str) -> CitusNode:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a node such as db-2:5432")
    return CitusNode(host, int(port))


def _keys(text: str) -> tuple[str, str]:
    """Return the first hash digits of a range of keys, and the digits below which it ends."""
    digits = f"[0-9a-f]{{{_DIGITS}}}"
    if not (found := re.fullmatch(f"({digits})-({digits})", text)) or found[1] > found[2]:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range such as 0000-7fff")
    above = int(found[2], 16) + 1
    return found[1], f"{above:04x}" if above < 16**_DIGITS else "g"
