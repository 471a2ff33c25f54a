"""The runs of a child from all of its shards, for those who look after all of them."""

from __future__ import annotations

from collections.abc import Mapping

from pulse_django.execution.run import Run

from .in_flight import InFlight


class InFlightOfShards:
    """Answers as an ``InFlight`` does where the shard does not matter, and says which one has a run where it does."""

    def __init__(self, by_alias: Mapping[str, InFlight]) -> None:
        self._by_alias = by_alias
        self._all = list(by_alias.values())
        for one in self._all:
            one.peers = self._all
            one.prefetch = self._all[0].prefetch  # what is claimed ahead of any shard waits for the same slots
        self.slots = self._all[0].slots

    def of(self, run: Run) -> InFlight:
        """Return what has this run, or had it."""
        return self._by_alias[str(run.alias)]

    @property
    def active(self) -> list[Run]:
        return [run for one in self._all for run in one.active]

    @property
    def is_idle(self) -> bool:
        return all(one.is_idle for one in self._all)

    @property
    def is_orphaned(self) -> bool:
        return self._all[0].is_orphaned

    @is_orphaned.setter
    def is_orphaned(self, is_orphaned: bool) -> None:
        for one in self._all:
            one.is_orphaned = is_orphaned

    @property
    def is_used_up(self) -> bool:
        return self._all[0].is_used_up

    @property
    def all_taken(self) -> int:
        return self._all[0].all_taken

    @property
    def stuck_slots(self) -> int:
        return self._all[0].stuck_slots

    @property
    def slots_beyond_leases(self) -> int:
        return sum(one.slots_beyond_leases for one in self._all)

    def blocks_a_retry(self, now: float) -> bool:
        """Whether a retry has waited for long for a handler here, and nothing else would suffer from its end."""
        return self.is_idle and any(one.blocks_a_retry(now) for one in self._all)

    def slow_down(self) -> None:
        """Let no shard claim more than can begin at once."""
        for one in self._all:
            one.slow_down()
