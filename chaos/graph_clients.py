"""Who uses the queue in ``chaos.graphs``: one enqueues, and an operator sends events, pauses and retries.

They die after each of their commits, as it were: what follows from it is left to the workers.
"""

from __future__ import annotations

import random
import time
from threading import Event, Lock, Thread
from typing import Any

from django.db import connection

from chaos.graph_plans import Planner
from chaos.own_server import ask
from pulse_django import Batch, api, send_event
from pulse_django.workflows import resolving

LONGEST_DEATH = 2.0  # seconds until a dead letter is retried
PAUSES = 0.15  # of the operator's rounds, of which there are ten a second
LONGEST_PAUSE = 1.5  # seconds
OPEN = "SELECT id FROM pulse_django_batch WHERE finished_at IS NULL ORDER BY random() LIMIT 1"
DEAD = f"""
SELECT id FROM pulse_django_job_hot
WHERE status = 'DEAD_LETTERED' AND finished_at < clock_timestamp() - random() * {LONGEST_DEATH} * interval '1 s'
"""


class Clients:
    def __init__(self, seed: int, seconds: float, rate: float, share: float) -> None:
        """Enqueue so many jobs for each second, in this share of the time."""
        resolving._resolve_for_caller = lambda _: None
        self._budget, self._pace = seconds * rate, rate / share
        self._chance = random.Random(seed + 1)
        self._planner = Planner(random.Random(seed), self._send_later)
        self._events: list[tuple[float, str]] = []  # when each is to be sent
        self._paused: dict[int, float] = {}  # when each batch is to be resumed
        self._pauses = 0
        self._lock, self._stopped = Lock(), Event()
        self._enqueuer = Thread(target=self._guarded, args=[self._enqueue])
        self._operator = Thread(target=self._guarded, args=[self._operate])

    @property
    def counts(self) -> dict[str, int]:
        return self._planner.counts | {"pauses": self._pauses}

    @property
    def refused(self) -> list[str]:
        return self._planner.refused

    @property
    def is_busy(self) -> bool:
        return self._enqueuer.is_alive() or bool(self._events or self._paused)

    def __enter__(self) -> Clients:
        self._enqueuer.start()
        self._operator.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._enqueuer.join()
        self._operator.join()

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.refused.append(f"a client failed: {error!r}")
        finally:
            connection.close()

    def _enqueue(self) -> None:
        begin = time.monotonic()
        while self._planner.enqueued < self._budget and not self._stopped.is_set():
            if self._planner.enqueued > (time.monotonic() - begin + 1) * self._pace:
                time.sleep(0.1)
            else:
                self._planner.enqueue()

    def _send_later(self, name: str, delay: float) -> None:
        if delay:
            with self._lock:
                self._events.append((time.monotonic() + delay, name))
        else:
            send_event(name, {"sent": "early"})

    def _operate(self) -> None:
        while not self._stopped.wait(0.1):
            self._send_events()
            self._pause_and_resume()
            if dead := [job_id for (job_id,) in ask(DEAD)]:
                ask("INSERT INTO chaos_pardon SELECT unnest(%s) ON CONFLICT DO NOTHING", dead)
                api.retry(*dead)

    def _send_events(self) -> None:
        now = time.monotonic()
        with self._lock:
            due = [name for at, name in self._events if at <= now]
        for name in due:
            send_event(name, {"sent": "later"})
        with self._lock:
            self._events = [one for one in self._events if one[1] not in due]

    def _pause_and_resume(self) -> None:
        now = time.monotonic()
        if self._enqueuer.is_alive() and self._chance.random() < PAUSES:
            for (batch_id,) in ask(OPEN):
                Batch.get(batch_id).pause()
                self._paused[batch_id] = now + self._chance.uniform(0, LONGEST_PAUSE)
                self._pauses += 1
        for batch_id in [batch_id for batch_id, at in self._paused.items() if at <= now]:
            Batch.get(batch_id).resume()
            del self._paused[batch_id]
