"""The keeper's part of a question where a handler is: find the child that runs it, ask, and pass on the answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from .child_slot import ChildSlot
from .handler_stacks import dump_of
from .stack_requests import PATIENCE_WITH_CHILD, StackRequests

NOT_HERE = "The job is not running in this worker any more."
NOT_BEGUN = "The job waits for a slot of this worker."
NO_ANSWER = "Its process does not answer."
# Above a dump that does not say which job a handler runs.
OF_ALL = "Its process does not answer: a handler holds the interpreter. These are all of its handlers.\n\n"


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a child was asked, and has not answered yet."""

    child: ChildSlot
    pid: int | None
    at: float
    requests: StackRequests


class AskedStacks:
    """Used by the main thread of the keeper."""

    def __init__(self) -> None:
        self._asked: dict[int, _Asked] = {}

    def look_after(self, children: Sequence[ChildSlot], of_shards: Sequence[StackRequests], now: float) -> None:
        for shard, requests in enumerate(of_shards):
            for job_id in requests.questions():
                self._ask(job_id, children, shard, requests, now)
        for job_id, asked in list(self._asked.items()):
            if now - asked.at > PATIENCE_WITH_CHILD:
                self.answered(job_id, _dump_of(asked))

    def answered(self, job_id: int, text: str) -> None:
        asked = self._asked.pop(job_id, None)
        if asked is not None:
            asked.requests.answer(job_id, text)

    def _ask(self, job_id: int, children: Sequence[ChildSlot], shard: int, requests: StackRequests, now: float) -> None:
        for child in children:
            for held in child.leases[shard].held() if not child.is_empty else ():
                if held.lease.job_id != job_id:
                    continue
                if not held.begun or child.channel is None:
                    requests.answer(job_id, NOT_BEGUN)
                    return
                self._asked[job_id] = _Asked(child, child.pid, now, requests)
                child.channel.send({"where": job_id, "shard": shard})
                return
        requests.answer(job_id, NOT_HERE)


def _dump_of(asked: _Asked) -> str:
    """Ask the process by a signal, which needs no interpreter."""
    child = asked.child
    if child.pid is None or child.pid != asked.pid or child.stack_file is None:
        return NOT_HERE
    with suppress(OSError):
        if found := dump_of(child.pid, child.stack_file):
            return OF_ALL + found
    return NO_ANSWER
