"""``manage.py pulse_demo``: one job's life, with a worker that dies in the middle of it.

Every step is played with the real verbs on the real tables, and checked: the command fails if the story went otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from pulse_django.answers import Reaped, Report
from pulse_django.decisions import Complete
from pulse_django.identity import Identity
from pulse_django.leases import Claim
from pulse_django.models import Attempt, Job
from pulse_django.newjob import NewJob
from pulse_django.outcomes import OutcomeName, Succeeded
from pulse_django.states import Status

T = TypeVar("T")

LEASE = timedelta(seconds=2)
RESULT = '{"invoices": 100}'
LOOK_AGAIN = 0.2  # seconds
PATIENCE = 60.0  # seconds; the story takes about four


class Command(BaseCommand):
    help = "Play one job's life: enqueued, claimed, left by a dying worker, recovered and completed by another."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--no-migrate", action="store_true", help="the tables exist already")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["no_migrate"]:
            self.tell("Migrating the database")
            call_command("migrate", verbosity=0)
        doomed, rescuer = Identity("doomed-worker"), Identity("rescuer")
        queue = f"demo-{doomed.boot_id}"  # of its own, so that the demo claims nobody's jobs

        self.tell("Enqueueing a job")
        job = Job.objects.enqueue(NewJob(task="demo.send_invoices", args=[100], queue=queue, lease_ttl=LEASE))
        self.show(job, Status.PENDING)

        self.tell(f"A worker claims it. The claim is the lease: {LEASE.total_seconds():.0f} s, unless it is extended")
        lost = self.claim(doomed, queue)
        self.show(job, Status.RUNNING)

        self.tell("Its heartbeat extends the lease and carries progress")
        Job.objects.heartbeat([lost.lease], {lost.lease: '{"done": 40, "total": 100}'})
        self.show(job, Status.RUNNING)

        self.tell("The worker dies without a word. Nobody extends the lease, and a watchdog looks for such leases")
        reaped = self.wait_for(lambda: self.reap(job))
        self.expect(reaped.outcome is OutcomeName.WORKER_LOST, f"the run ended as {reaped.outcome}")
        self.show(job, Status.RETRYING)

        self.tell("After its backoff another worker claims it, and sees how far the first one came")
        saved = self.wait_for(lambda: self.claim_if_due(rescuer, queue))
        self.expect(saved.progress == {"done": 40, "total": 100}, f"the progress was {saved.progress}")
        self.show(job, Status.RUNNING)

        self.tell("The first worker was only frozen, and reports success. It lost its lease: nothing changes")
        late = Job.objects.settle([Report(lost.lease, Succeeded(RESULT), Complete(RESULT))])
        self.expect(late.lost == {lost.lease}, "a zombie's report was accepted")
        self.show(job, Status.RUNNING)

        self.tell("The second worker completes the job")
        done = Job.objects.settle([Report(saved.lease, Succeeded(RESULT), Complete(RESULT))])
        self.expect(saved.lease in done.accepted, "the report of the lease's holder was refused")
        self.show(job, Status.COMPLETED)

        self.tell("The ledger keeps both runs, and what the zombie said")
        self.show_ledger(job)

    def claim(self, worker: Identity, queue: str) -> Claim:
        claim = self.claim_if_due(worker, queue)
        self.expect(claim is not None, "there was nothing to claim")
        assert claim is not None  # noqa: S101 - for the type checker; the line above has looked
        return claim

    def claim_if_due(self, worker: Identity, queue: str) -> Claim | None:
        lanes = Job.objects.lanes([queue])
        return next(iter(Job.objects.claim(worker, lanes=lanes)), None)

    def reap(self, job: Job) -> Reaped | None:
        return next((one for one in Job.objects.reap() if one.lease.job_id == job.pk), None)

    def wait_for(self, look: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + PATIENCE
        while (found := look()) is None:
            self.expect(time.monotonic() < deadline, f"nothing happened for {PATIENCE:.0f} s")
            time.sleep(LOOK_AGAIN)
        return found

    def tell(self, line: str) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(f"\n{line}"))

    def show(self, job: Job, expected: Status) -> None:
        job.refresh_from_db()
        facts = {
            "status": job.status,
            "attempts": f"{job.attempts} of {job.max_attempts}",
            "locked_by": job.locked_by,
            "lease_until": f"{job.lease_until:%H:%M:%S.%f}"[:-3] if job.lease_until else None,
            "token": job.token,
            "progress": job.progress,
            "last_error": job.last_error,
            "result": job.result,
        }
        self.stdout.write(
            "  " + "  ".join(f"{name}={value}" for name, value in facts.items() if value not in (None, ""))
        )
        self.expect(job.status == expected, f"the job should be {expected}")

    def show_ledger(self, job: Job) -> None:
        entries = list(Attempt.objects.filter(job=job).order_by("number"))
        for entry in entries:
            late = f", reported {entry.late_outcome} too late" if entry.late_outcome else ""
            self.stdout.write(f"  attempt {entry.number} by {entry.worker}: {entry.outcome}{late}")
        outcomes = [(entry.outcome, entry.late_outcome) for entry in entries]
        self.expect(outcomes == [("WORKER_LOST", "SUCCEEDED"), ("SUCCEEDED", "")], "the ledger should show two runs")
        self.stdout.write(self.style.SUCCESS("\nNothing was lost."))

    def expect(self, happened: bool, otherwise: str) -> None:
        if not happened:
            raise CommandError(f"The story went otherwise: {otherwise}.")
