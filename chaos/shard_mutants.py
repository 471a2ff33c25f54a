"""Bugs of moves between shards, for runs with several. Each is planted in the movers, and in workers and callers."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from chaos.mutants import HOMES, MUTANTS, Mutant, replaced
from pulse_django.shards import moving, transfer

HOMES["_ARRIVE"] = transfer

IN_ONE_SHARD = ("nothing is lost", "a job is in one shard", "a move changes nothing", "terminal once")


def forgets_first() -> None:
    deliver_then = moving.deliver

    def deliver(alias: str, sent: Any) -> Any:
        moving.forget_departures(alias, [one.departure_id for one in sent])
        return deliver_then(alias, sent)

    moving.deliver = deliver


def raises_no_floor() -> None:
    moving.raise_sequence = lambda *_: None


def leaves_what_departs() -> None:
    """The job is copied: it stays in its shard, too."""

    def go_back_as_well(alias: str, sent: Collection[Any]) -> None:
        transfer.go_back(alias, [one.departure_id for one in sent])

    arrive = moving.arrive

    def arrives(to: str, sent: Any, until: str) -> Any:
        found = arrive(to, sent, until)
        source = next(alias for alias in moving.shards() if transfer.departures(alias, job_ids=[sent[0].job_id]))
        go_back_as_well(source, sent)
        return found

    moving.arrive = arrives


SHARD_MUTANTS = {
    "a departure that is forgotten before the job arrives": Mutant(
        plant=forgets_first, nemeses=("connections reset",), breaks=("nothing is lost",)
    ),
    "a job that arrives twice": Mutant(
        plant=replaced("_ARRIVE", (" JOIN arrived ON arrived.departure_id = sent.id", "")),
        nemeses=("connections reset",),
        breaks=IN_ONE_SHARD,
    ),
    "a job that stays where it left": Mutant(
        plant=leaves_what_departs, nemeses=("connections reset",), breaks=("a job is in one shard",)
    ),
    "a move that raises no token": Mutant(
        plant=raises_no_floor, nemeses=("connections reset",), breaks=("tokens rise",)
    ),
}
ALL_MUTANTS = MUTANTS | SHARD_MUTANTS

if (name := os.environ.get("CHAOS_MUTANT", "")) in SHARD_MUTANTS:
    SHARD_MUTANTS[name].plant()
