"""Test your tasks with the real queue: the same claim, the same settle, the same tables, inside any Django test.

drain()                        run everything that is due, and what that enqueues
run_job(job)                   run one job
assert_enqueued(task, ...)     there is such a job, with what ``task.using()`` said; returns it
expire_lease(job)              its worker is dead now
jump_to_next_run(job)          its backoff, snooze or run_after is over now
run_schedules(until=...)       fire every tick until then, as if time had passed
fake_context(attempt=2, ...)   a context for task.call(context, ...), which needs no job and no database
Zombie(job)                    hold a claim, lose it, report late
assert_idempotent(task, ...)   a second run after a crash leaves the same database as one clean run
run_workflow(workflow)         enqueue a workflow, run it to its end, and return the results by name
assert_workflow_idempotent(w)  crashes after each step and before each report leave the same database as none
"""

from .drain import DrainLimit as DrainLimit
from .drain import Fired as Fired
from .drain import Ran as Ran
from .drain import drain as drain
from .drain import expire_lease as expire_lease
from .drain import jump_to_next_run as jump_to_next_run
from .drain import run_job as run_job
from .drain import run_schedules as run_schedules
from .enqueued import assert_enqueued as assert_enqueued
from .fake_context import FakeContext as FakeContext
from .fake_context import fake_context as fake_context
from .idempotency import assert_idempotent as assert_idempotent
from .workflows import assert_workflow_idempotent as assert_workflow_idempotent
from .workflows import run_workflow as run_workflow
from .zombie import Zombie as Zombie
