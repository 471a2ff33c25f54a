"""What a keeper has for each shard: the loops that extend leases, recover jobs, watch and listen there.

Each has connections of its own, and fails alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pulse_django import conf
from pulse_django.execution.notify import ANY_QUEUE
from pulse_django.store.workers import Presence
from pulse_django.words.identity import Identity

from .children import Children
from .heartbeat import Charge, Heartbeat
from .listener import Listener
from .loops import Loops, WatchdogLoops
from .recovery import Recovery
from .worker_options import WorkerOptions

# Seconds: the longest pause of these loops.
LONGEST_TICK = 0.5


class ShardLine:
    def __init__(
        self,
        shard: int,
        options: WorkerOptions,
        identity: Identity,
        loops: Loops,
        children: Children,
        presence: Callable[[ShardLine], Presence],
    ) -> None:
        """``shard`` is its place among those of the worker."""
        self.shard, self._loops, self._children = shard, loops, children
        self.alias = alias = options.aliases[shard]
        of = options.of_shard(alias)
        beats = loops.connection(alias, f"heartbeat{of}", LONGEST_TICK)
        self.heartbeat = Heartbeat(beats, self._charges, partial(presence, self))
        wake_all = partial(children.wake, ANY_QUEUE, shard=shard)
        self.recovery = Recovery(loops.connection(alias, f"recovery{of}", LONGEST_TICK), wake_all)
        self._watching = WatchdogLoops(
            loops,
            alias,
            watches=options.watchdog,
            declarer=f"{identity.name}:{identity.boot_id}",
            beats=self.heartbeat,
            ended=wake_all,
            fleet_size=lambda: self.heartbeat.fleet_size,
            of_shard=of,
        )
        self.listener = (
            Listener(
                alias,
                options.queues,
                partial(children.wake, shard=shard),
                told=partial(children.listens, shard),
                standing=lambda: self.heartbeat.standing,
                of_shard=of,
            )
            if conf.current().notify
            else None
        )

    def add(self) -> None:
        """Add the loops to those that are about to start."""
        self._loops.add(self.heartbeat.database, self.heartbeat.run_once, self.heartbeat.farewell)
        self._loops.add(self.recovery.database, self.recovery.run_once)
        self._watching.add()
        if self.listener is not None:
            self._loops.add_run(self.listener.database, self.listener.run)

    @property
    def vitals(self) -> dict[str, Any]:
        """How this shard has been served since the worker began."""
        vitals = self.heartbeat.vitals.to_json()
        databases = [self.heartbeat.database, self.recovery.database, *self._watching.databases]
        return vitals | {"database_errors": vitals["database_errors"] + sum(one.errors for one in databases)}

    @property
    def unanswered(self) -> float:
        """For how many seconds the database has not answered heartbeats; infinite before it ever did."""
        return self._loops.liveness.unanswered(self.heartbeat.database.purpose)

    def _charges(self) -> Sequence[Charge]:
        return [child.charges[self.shard] for child in self._children.child_slots if not child.is_empty]
