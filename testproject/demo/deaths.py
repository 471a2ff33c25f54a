"""Three ways to lose a worker: its child is killed, all of it is killed, or it is frozen and continues later."""

from __future__ import annotations

import os
import signal
import time

from django.db import router

from pulse_django.models import Job
from pulse_django.queue.database.sql_functions import ClockTimestamp
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import Status
from testproject.harness.processes import StartedWorker

from . import handlers
from .rows import Row, ledger, look
from .telling import Telling

A, B, C = "demo-A", "demo-B", "demo-C"
LOST, SUCCEEDED = OutcomeName.WORKER_LOST.value, OutcomeName.SUCCEEDED.value
STEPS = 100
SHORT_STEPS = 30
SHORTEST_BACKOFF = 0.8  # seconds; after the first loss it is 1 s, with a tenth of jitter


def killed_process(t: Telling, worker: StartedWorker) -> None:
    t.screen.head("Act 2: a handler's process is killed")
    t.screen.say(
        "A job works in steps and reports progress, which travels with the heartbeats. Then `kill -9` hits the child.",
        "Its parent sees it die, so recovery does not wait for the lease to expire. Watch last_error and attempts.",
    )
    job = t.enqueue(handlers.steps, SHORT_STEPS, t.pace.short_work / SHORT_STEPS)
    t.watch("progress in the table", [job], lambda rows: rows[0].done > 0)
    os.kill(pid := worker.child(), signal.SIGKILL)
    killed_at = time.monotonic()
    t.screen.say(f"  kill -9 {pid}")
    t.watch("the parent to settle the job of a killed process", [job], lambda rows: rows[0].was_lost)
    took = time.monotonic() - killed_at
    run = ledger(job)[0]
    t.expect("killed by SIGKILL" in run.message, "the parent to report 'killed by SIGKILL'", run.message)
    t.screen.praise(f"settled {took:.1f} s after the kill: {run.message}. It is retried after a backoff")
    expect_resumed(t, job)


def killed_worker(t: Telling, worker: StartedWorker) -> StartedWorker:
    t.screen.head("Act 3: the whole worker is killed")
    t.screen.say(
        f"A job needs {t.pace.long_work:g} s, several times its lease of {t.pace.ttl:g} s. A heartbeat extends the "
        f"lease every {t.pace.beat:g} s.",
    )
    job = t.enqueue(handlers.steps, STEPS, t.pace.long_work / STEPS)
    _see_the_lease_extended(t, job)
    t.screen.say(
        "Now `kill -9` kills the whole worker. No process can report it, so the table still shows RUNNING.",
        f"A new worker, {B}, starts; like every worker it looks for expired leases. Watch the lease run down.",
    )
    count = worker.kill()
    killed_at = time.monotonic()
    t.screen.say(f"  kill -9: {count} processes of {A}, {len(worker.survivors())} left")
    t.expect(not worker.survivors(), f"no process of {A} to survive", worker.survivors())
    fresh = t.stage.worker(B)
    [left] = look([job])
    t.expect(left.lease_until is not None, "the job to be RUNNING under a lease that is not extended", left)
    t.screen.counting_down = True
    t.watch("a watchdog to reap the job", [job], lambda rows: rows[0].was_lost)
    took = time.monotonic() - killed_at
    t.screen.counting_down = False
    run = ledger(job)[0]
    t.expect((run.outcome, run.message) == (LOST, "worker lease expired"), "'worker lease expired'", run.message)
    t.expect(left.had_run_out_at(run.finished_at), f"the lease to expire ({left.lease_until}) first", run.finished_at)
    late = "" if took <= t.pace.worst_case else f". Later than that: {B}, the only watchdog here, was slow to start"
    t.screen.praise(
        f"reaped {took:.1f} s after the kill: {run.message}. The worst case is lease + watchdog interval = "
        f"{t.pace.ttl:g} + {t.pace.tick:g} s{late}"
    )
    expect_resumed(t, job)
    return fresh


def _see_the_lease_extended(t: Telling, job: int) -> None:
    [begun] = t.watch(f"{A} to claim the job", [job], lambda rows: rows[0].lease_until is not None)
    [before] = t.watch(
        "the lease to be extended past its first end, with progress",
        [job],
        lambda rows: rows[0].done > 0 and _has_outlived(begun, rows[0]),
    )
    t.expect(before.attempts == 1, "the job to be in its first attempt", before)
    t.screen.praise(
        f"the first lease would have expired by now: it was extended, and lasts {before.lease_left:.1f} s more"
    )


def frozen_worker(t: Telling, frozen: StartedWorker) -> tuple[StartedWorker, int]:
    t.screen.head("Act 4: a frozen worker resumes")
    t.screen.say(
        f"{B} is frozen while it runs a job, as when a virtual machine is paused. Its lease expires,",
        f"and {C} gets the job. Then {B} resumes and reports success.",
        "(A second job, poison, is also enqueued. It is used in the last act.)",
    )
    job = t.enqueue(handlers.nap, t.pace.nap, t.pace.nap / 6)
    [begun] = t.watch(f"{B} to claim the job", [job], lambda rows: rows[0].lease_until is not None)
    # Right after a beat: in the middle of one it would keep a lock on the row, and the reap would wait for that.
    t.watch("a heartbeat", [job], lambda rows: rows[0].lease_until != begun.lease_until)
    count = len(frozen.freeze())
    t.screen.say(f"  SIGSTOP: {count} processes of {B}")
    t.screen.counting_down = True
    rescuer = t.stage.worker(C)
    poison = t.enqueue(handlers.poison)
    rows = t.watch(f"{C} to complete the job", [job, poison], lambda rows: rows[0].is_over)
    t.screen.counting_down = False
    t.expect(rows[0].status == Status.COMPLETED, "the job to be completed", rows[0])
    t.expect_ledger(job, LOST, SUCCEEDED)
    t.screen.praise(f"{C} completed it in attempt {rows[0].attempts}. Now {B} resumes: SIGCONT")
    frozen.thaw()
    late = t.wait("the late report to be kept", lambda: ledger(job)[0].late_outcome, lambda: ledger(job)[0].message)
    t.expect(late == SUCCEEDED, "the late report to say SUCCEEDED", late)
    [after] = t.watch("the job to stay completed", [job], lambda rows: rows[0].is_over)
    t.expect((after.attempts, after.result) == (2, {"attempt": 2}), "the result of attempt 2 to stand", after)
    t.screen.praise(
        f"the late report was rejected: the result is still {after.result}. The report is recorded in the ledger"
    )
    return rescuer, poison


def _has_outlived(first: Row, row: Row) -> bool:
    jobs = Job.objects.using(router.db_for_write(Job)).annotate(now=ClockTimestamp())
    return bool(jobs.filter(now__gt=first.lease_until, pk=row.id).exists())


def expect_resumed(t: Telling, job: int) -> None:
    """The second attempt goes on where the first one was last heard of."""
    [row] = t.watch("the job to be completed by a second attempt", [job], lambda rows: rows[0].is_over)
    t.expect((row.status, row.attempts) == (Status.COMPLETED, 2), "COMPLETED with attempts = 2", row)
    lost, resumed = t.expect_ledger(job, LOST, SUCCEEDED)
    pause = (resumed.started_at - lost.finished_at).total_seconds()
    t.expect(pause >= SHORTEST_BACKOFF, f"a backoff of at least {SHORTEST_BACKOFF} s", f"{pause:.2f} s")
    done = row.result
    t.expect(0 < done["resumed_after_step"] < row.total, "a second attempt that resumed from the checkpoint", done)
    t.screen.praise(
        f"completed, attempts = 2: begun {pause:.1f} s later, resumed after step {done['resumed_after_step']}, did "
        f"{done['steps_done']} of {row.total} steps"
    )
