"""Requests of operators for the stack of a handler, from the worker's row to a child, and the answers."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")

# Seconds for a child to answer. If one of its handlers holds the interpreter, faulthandler is used then.
PATIENCE_WITH_CHILD = 1.0
# Seconds without an answer, until the same request is handled again: the row repeats it with every heartbeat.
UNTIL_ASKED_AGAIN = 10.0


class StackRequests:
    """The heartbeat thread adds requests and takes answers. The main thread of the keeper does the rest."""

    def __init__(self) -> None:
        self._asked: dict[int, float] = {}  # when, by job
        self._questions: SimpleQueue[int] = SimpleQueue()
        self._answers: SimpleQueue[tuple[int, str]] = SimpleQueue()

    def ask(self, job_id: int) -> None:
        now = time.monotonic()
        if now - self._asked.get(job_id, float("-inf")) > UNTIL_ASKED_AGAIN:
            self._asked = {one: at for one, at in self._asked.items() if now - at <= UNTIL_ASKED_AGAIN} | {job_id: now}
            self._questions.put(job_id)

    def questions(self) -> list[int]:
        return _all_of(self._questions)

    def answer(self, job_id: int, text: str) -> None:
        self._answers.put((job_id, text))

    def answers(self) -> list[tuple[int, str]]:
        found = _all_of(self._answers)
        for job_id, _ in found:
            self._asked.pop(job_id, None)
        return found


def _all_of(queue: SimpleQueue[T]) -> list[T]:
    found = []
    try:
        while True:
            found.append(queue.get_nowait())
    except Empty:
        return found
