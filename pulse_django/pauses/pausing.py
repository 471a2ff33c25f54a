"""Pause and resume tasks, by all of their names, and queues, in every shard."""

from __future__ import annotations

from pulse_django.models import Job, Pause
from pulse_django.queue.capability import Capability, StepDone, SweepStep, WorkerDatabase
from pulse_django.queue.database.transactions import is_in_callers_transaction
from pulse_django.queue.set_aside import MOST_BATCHES, in_batches
from pulse_django.queue.words.durations import Seconds
from pulse_django.run.notify import ANY_QUEUE, wake_workers
from pulse_django.run.registry import Task, key_of, keys_of, registry
from pulse_django.safe_logging import SafeLogger
from pulse_django.shards.placement import aliases_of_jobs

from .statements import GATES, READS

logger = SafeLogger("pulse_django.watchdog")


def pause_task(
    task: Task | str,
    *,
    queue: str | None = None,
    duration: Seconds | None = None,
    reason: str = "",
    by: str = "",
    using: str | None = None,
) -> bool:
    """Pause a task for some time or until it is resumed, from the next claim on. Running jobs continue.

    ``task`` is a task or its name. Its ``aliases`` are paused with it: in all queues, unless ``queue`` names one, and
    in every shard, unless ``using`` names one. Return whether it was not already paused for longer.
    """
    changed = False
    for alias in aliases_of_jobs(using):
        pauses = Pause.objects.db_manager(alias)
        changed |= pauses.pause(*names_of(task), queue=queue, duration=duration, reason=reason, by=by)
        set_aside(alias, most_batches=MOST_BATCHES)
    return changed


def resume_task(task: Task | str, *, queue: str | None = None, using: str | None = None) -> bool:
    """Resume a task. Return whether it was paused.

    It ends all pauses of the task. With ``queue`` it ends the one in that queue alone.
    """
    was_paused = False
    for alias in aliases_of_jobs(using):
        if Pause.objects.db_manager(alias).resume(*names_of(task), queue=queue):
            was_paused = True
            bring_back(alias, most_batches=MOST_BATCHES)
    return was_paused


def names_of(task: Task | str) -> tuple[str, ...]:
    """Return all names that jobs of the task may have: only its name if this process does not know the task."""
    name = task if isinstance(task, str) else key_of(task)
    known = registry.get(name) if isinstance(task, str) else task
    return tuple(dict.fromkeys([name, *(() if known is None else keys_of(known))]))


def set_aside(alias: str, *, most_batches: int | None) -> int:
    """Set jobs of paused tasks aside, so that claims do not read them. Return how many. None: all at the head of lanes.

    Inside a transaction of the caller's it is left to a watchdog: the rows would be locked until its end.
    """
    if is_in_callers_transaction(alias):
        return 0
    return sum(map(len, in_batches(Job.objects.db_manager(alias).set_aside, most_batches)))


def bring_back(alias: str, *, most_batches: int | None) -> int:
    """Bring back jobs that are set aside and no longer paused. Return how many. None: all.

    Inside a transaction of the caller's it is left to a watchdog, too.
    """
    brought = 0
    if not is_in_callers_transaction(alias):
        for queues in in_batches(Job.objects.db_manager(alias).bring_back, most_batches):
            brought += len(queues)
            wake_workers(alias, [ANY_QUEUE])
    return brought


def pause_queue(
    name: str, *, duration: Seconds | None = None, reason: str = "", by: str = "", using: str | None = None
) -> bool:
    """Pause a queue for some time or until it is resumed, from the next claim on. Running jobs continue.

    In every shard, unless ``using`` names one. Return whether it was not already paused for longer.
    """
    changed = False
    for alias in aliases_of_jobs(using):
        changed |= Pause.objects.db_manager(alias).pause(queue=name, duration=duration, reason=reason, by=by)
    return changed


def resume_queue(name: str, *, using: str | None = None) -> bool:
    """Resume a queue. Return whether it was paused."""
    was_paused = False
    for alias in aliases_of_jobs(using):
        if Pause.objects.db_manager(alias).resume(queue=name):
            was_paused = True
            wake_workers(alias, [name])
    return was_paused


class ForgettingEnded(SweepStep):
    name = "ended pauses"
    says = {"resumed": []}
    is_housekeeping = True

    def run(self, database: WorkerDatabase) -> StepDone:
        forgotten = database.call(Pause.objects.db_manager(database.alias).forget_ended)
        resumed = [f"task {task!r}" if task else f"queue {queue!r}" for task, queue, key in forgotten if not key]
        for paused in resumed:
            logger.info("The pause of %s has ended", paused)
        return StepDone(said={"resumed": resumed})


CAPABILITY = Capability(
    name="pauses",
    reads=READS,
    gates=GATES,
    sweeps=(ForgettingEnded(),),
)
