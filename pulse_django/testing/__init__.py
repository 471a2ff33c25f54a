"""Test your tasks with the real queue: the same claim, the same settle, the same tables, inside any Django test.

drain()                        run everything that is due, and what that enqueues
run_job(job)                   run one job
assert_enqueued(task, ...)     there is such a job, with what ``task.using()`` said; returns it
expire_lease(job)              its worker is dead now
jump_to_next_run(job)          its backoff, snooze or run_after is over now
run_schedules(until=...)       fire every tick until then, as if time had passed
Zombie(job)                    hold a claim, lose it, report late
assert_idempotent(task, ...)   a second run after a crash leaves the same database as one clean run
run_workflow(workflow)         enqueue a workflow, run it to its end, and return the results by name
assert_workflow_idempotent(w)  crashes after each step and before each report leave the same database as none
"""

from .drain import DrainLimit, Fired, Ran, drain, expire_lease, jump_to_next_run, run_job, run_schedules
from .enqueued import assert_enqueued
from .idempotency import assert_idempotent
from .workflows import assert_workflow_idempotent, run_workflow
from .zombie import Zombie

__all__ = [
    "DrainLimit",
    "Fired",
    "Ran",
    "Zombie",
    "assert_enqueued",
    "assert_idempotent",
    "assert_workflow_idempotent",
    "drain",
    "expire_lease",
    "jump_to_next_run",
    "run_job",
    "run_schedules",
    "run_workflow",
]
