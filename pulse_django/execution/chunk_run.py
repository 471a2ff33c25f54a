"""The runs of which one call of a handler takes the jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pulse_django.words.leases import Claim

from .registry import registry
from .run import Run

if TYPE_CHECKING:
    from .judging import Performed


LOSSES_UNTIL_ALONE = 2  # then a job is in no chunk, and gets a process of its own, for the sake of its neighbours


def is_gathered(claim: Claim) -> bool:
    """Say whether a job may be in a chunk with others."""
    return claim.task in registry.chunked and claim.losses < LOSSES_UNTIL_ALONE


class ChunkRun(Run):
    """What an executor runs: it takes a slot, and its members have the leases. Nothing is reported on itself."""

    __slots__ = ("members", "report")

    def __init__(self, members: Sequence[Run], report: Callable[[Run, Performed], None] | None = None) -> None:
        """``report`` takes what is known of a member before the handler is over. Any thread may call it."""
        first = members[0]
        super().__init__(first.claim, granted_at=first.granted_at, alias=first.alias)
        self.members = list(members)
        self.report = report

    @property
    def parent_id(self) -> None:
        """It is not known for which of its jobs the handler enqueues one."""
        return

    def is_of_no_use(self) -> bool:
        """Say whether no member is left whose handler may go on."""
        return all(one.reported or one.completed or one.asked_to_stop_at or one.cancelled for one in self.members)
