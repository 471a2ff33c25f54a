"""What is wrong, said from the facts: pure, so that a table of examples tests it."""

from __future__ import annotations

from pulse_django.conf import PulseSettings
from pulse_django.words.display import in_words

from .snapshot import Health, QueueFacts, WorkerFacts


def troubles(health: Health, settings: PulseSettings) -> list[str]:
    """Return what an operator should look at, worst first; nothing: all is well."""
    alive = [worker for worker in health.workers if is_alive(worker, settings)]
    found = _unreaped(health, settings)
    for queue in health.queues:
        found += _of_queue(queue, alive, settings)
    if silent := [worker for worker in health.workers if not worker.has_stopped and worker not in alive]:
        silence = in_words(settings.worker_silence.total_seconds())
        found.append(f"{_count(len(silent), 'worker')} sent no heartbeat for {silence}")
    if stuck := sum(worker.stuck_slots for worker in alive):
        found.append(f"{_count(stuck, 'slot')} held by abandoned handlers")
    return found


def is_unreaped(health: Health, settings: PulseSettings) -> bool:
    """Whether a lease has been over for so long that every watchdog should have seen it."""
    return health.oldest_expired is not None and health.oldest_expired > settings.unreaped_after


def is_unserved(queue: QueueFacts, alive: list[WorkerFacts], settings: PulseSettings) -> bool:
    """Whether no live worker serves a queue with due jobs, for longer than a deploy takes."""
    if queue.is_paused or queue.oldest_due is None or queue.oldest_due <= settings.worker_silence:
        return False
    return not any(not worker.queues or queue.name in worker.queues for worker in alive)


def is_alive(worker: WorkerFacts, settings: PulseSettings) -> bool:
    return not worker.has_stopped and worker.last_beat <= settings.worker_silence


def _unreaped(health: Health, settings: PulseSettings) -> list[str]:
    if health.oldest_expired is None or not is_unreaped(health, settings):
        return []
    ago = in_words(health.oldest_expired.total_seconds())
    leases = _count(health.expired_leases, "lease")
    return [
        f"{leases} expired and not recovered, the oldest {ago} ago: check that a worker or pulse_watchdog is running"
    ]


def _of_queue(queue: QueueFacts, alive: list[WorkerFacts], settings: PulseSettings) -> list[str]:
    if not queue.due or queue.oldest_due is None:
        return []
    due, late = _count(queue.due, "job"), in_words(queue.oldest_due.total_seconds())
    if queue.is_paused:
        return [f"queue {queue.name} is paused: {due} due, the oldest for {late}"]
    if is_unserved(queue, alive, settings):
        return [f"queue {queue.name}: {due} due, the oldest for {late}, and no worker serves it"]
    if queue.oldest_due > settings.overdue_after:
        return [f"queue {queue.name}: {due} due, the oldest for {late}"]
    return []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
