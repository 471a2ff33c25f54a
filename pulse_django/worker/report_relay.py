"""Reports through the keeper: how a child that cannot reach the database any more delivers its reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from pulse_django.words.leases import Lease
from pulse_django.words.verb_results import Report, Settled

from .channel import Message
from .executors.serialization import report_to_wire, settled_from_wire
from .guarded_connection import longest_wait

MOST_AT_ONCE = 100
# Characters of results in one message. A channel that holds much more counts as stuck.
MOST_TEXT = 2_000_000
PATIENCES = 2  # of a statement: the keeper may have to open a connection


class NoAnswer(Exception):
    """The keeper has not settled these reports in time. They are sent again."""


class ReportRelay:
    """The child's side. ``settle`` is called by the reporter, ``answered`` by the thread that hears the keeper."""

    def __init__(self, send: Callable[[Message], object]) -> None:
        self._send = send
        self._number = 0
        self._answers: SimpleQueue[Message] = SimpleQueue()

    def settle(self, reports: Sequence[Report]) -> Settled:
        """Have the keeper settle these, and return its answer."""
        answers = [self._ask(some) for some in _in_parts(reports)]
        return Settled(
            accepted={lease: status for one in answers for lease, status in one.accepted.items()},
            repeated=_union(one.repeated for one in answers),
            lost=_union(one.lost for one in answers),
            skipped=_union(one.skipped for one in answers),
            has_unresolved=any(one.has_unresolved for one in answers),
        )

    def answered(self, message: Message) -> None:
        self._answers.put(message)

    def _ask(self, reports: Sequence[Report]) -> Settled:
        self._number += 1
        self._send({"reports": [report_to_wire(report) for report in reports], "number": self._number})
        while True:
            try:
                answer = self._answers.get(timeout=PATIENCES * longest_wait())
            except Empty:
                raise NoAnswer(f"the parent process has not settled {len(reports)} reports") from None
            if answer["number"] == self._number:  # an earlier one may come late
                return settled_from_wire(answer["settled"])


def _in_parts(reports: Sequence[Report]) -> Iterator[list[Report]]:
    part: list[Report] = []
    length = 0
    for report in reports:
        more = len(getattr(report.decision, "result", None) or "") + len(report.progress or "")
        if part and (len(part) == MOST_AT_ONCE or length + more > MOST_TEXT):
            yield part
            part, length = [], 0
        part.append(report)
        length += more
    if part:
        yield part


def _union(sets: Any) -> frozenset[Lease]:
    return frozenset().union(*sets)
