"""The fleet over all of its shards: each is asked alone, and one that is away does not hide the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import Error, router

from pulse_django.execution.placement import has_several_shards, shards
from pulse_django.models import Job
from pulse_django.store.tables import explained
from pulse_django.words.display import inert

from .conditions import Limits, Verdict, ask_all


def shards_to_read() -> list[str]:
    """Return the databases that tell how the fleet is. A single one may have a replica for it."""
    return list(shards()) if has_several_shards() else [router.db_for_read(Job)]


@dataclass(frozen=True, slots=True)
class FleetVerdict:
    """What all conditions say in all shards that were asked."""

    by_shard: Mapping[str, Verdict]
    away: Mapping[str, str]  # the error of each that did not answer

    @property
    def is_well(self) -> bool:
        return not self.away and all(one.is_well for one in self.by_shard.values())

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known to be wrong, and something could not be checked."""
        wrong = [one for one in self.by_shard.values() if not one.is_well]
        return not self.is_well and all(one.is_unknown for one in wrong)

    @property
    def says(self) -> str:
        if self._is_one:
            return "; ".join(one.says for one in self.by_shard.values())
        said = {alias: one.says for alias, one in self.by_shard.items() if one.says}
        said |= {alias: f"it does not respond: {error}" for alias, error in self.away.items()}
        return "; ".join(f"shard {alias!r}: {words}" for alias, words in said.items())

    @property
    def _is_one(self) -> bool:
        return len(self.by_shard) + len(self.away) == 1

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for the JSON of commands and of the health view."""
        if self._is_one:
            return next(iter(self.by_shard.values())).to_json() if self.by_shard else {}
        told: dict[str, Any] = {alias: one.to_json() for alias, one in self.by_shard.items()}
        told |= {alias: {"is_well": None, "error": error} for alias, error in self.away.items()}
        return {"is_well": self.is_well, "shards": told}


def ask_shards(aliases: Iterable[str], limits: Limits | None = None) -> FleetVerdict:
    """Ask every condition in each of these shards. The error of a single one is raised."""
    aliases = list(aliases)
    verdicts: dict[str, Verdict] = {}
    away: dict[str, str] = {}
    for alias in aliases:
        try:
            verdicts[alias] = ask_all(alias, limits)
        except Error as error:
            if len(aliases) == 1:
                raise
            away[alias] = inert(explained(error, alias))
    return FleetVerdict(verdicts, away)
