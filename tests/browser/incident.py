"""An incident in six parts. What takes hours is made of rows; what takes seconds is done by real workers."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import Any

from django.core.management import call_command

from pulse_django.health.conditions import ask, named
from pulse_django.models import Attempt, Job, Pause, Worker
from pulse_django.queue.words.states import CLAIMABLE, Status
from testproject.harness.processes import StartedWorker
from tests.crash.workers import QUICK, Workers, wait_for, wait_until
from tests.database import leave_no_line_behind
from tests.factories import AttemptFactory, make_job, now
from tests.health.outlets import SECRET
from tests.health.states import record
from tests.queue.steps import sql
from tests.worker import handlers

# A worker is silent after four and a half seconds, so that one is soon lost, and a busy computer loses none.
SETTINGS: dict[str, Any] = QUICK | {"LEASE_TTL": 3, "METRICS_TOKEN": SECRET, "ALERT_MAIL": False}
OF_WORKERS = {"MAX_LOST_WORKERS": 2, "SHUTDOWN_GRACE": 1, "LEASE_TTL": 3, "RETRY_BACKOFF_CAP": 3_600}
SAFE = {"DJANGO_ALLOW_ASYNC_UNSAFE": ""}  # workers have no browser

MAILS = 300
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"
SMTP_IS_DOWN = f"""Traceback (most recent call last):
  File "shop/tasks.py", line 12, in send_mail
    connection.send_messages([mail])
  File "smtplib.py", line 341, in connect
    self.sock = self._get_socket(host, port, self.timeout)
{REFUSED}
"""
WHY_PAUSED = "the month is being closed, ticket 812"
ALL = {
    "dead-letters", "failure-rate", "failures-rise", "slots-stuck", "paused-backlog", "worker-lost",
    "queue-without-worker",
}  # fmt: skip
OF_MAIL = {"dead-letters", "failure-rate", "failures-rise"}


def start(workers: Workers, name: str, *queues: str) -> StartedWorker:
    """Start a worker. It records no minutes: the test does, when it wants to know what they say."""
    flags = "--name", name, "--queues", ",".join(queues), "--no-watchdog"
    return workers.ready(*flags, settings=OF_WORKERS, env=SAFE)


def watch() -> None:
    """Do what a watchdog does at each tick."""
    call_command("pulse_watchdog", "--once")
    leave_no_line_behind()


def smtp_goes_down() -> None:
    """Mails were sent for an hour, and then none."""
    record(40, runs_total={"shop.send_mail": {"SUCCEEDED": 600}}, jobs_ended_total={"mail": {"COMPLETED": 600}})
    record(8, runs_total={"shop.send_mail": {"FAILED": MAILS}}, jobs_ended_total={"mail": {"DEAD_LETTERED": MAILS}})
    ended = {"started_at": now(timedelta(minutes=-26)), "finished_at": now(timedelta(minutes=-25))}
    for order in range(MAILS):
        job = make_job(
            Status.DEAD_LETTERED, task="shop.send_mail", queue="mail", args=[order], attempts=1, max_attempts=1,
            last_error=REFUSED, created_at=now(timedelta(minutes=-30)), **ended,
        )  # fmt: skip
        [(token,)] = sql("SELECT nextval('pulse_django_token')")
        AttemptFactory(
            job=job, token=token, outcome="FAILED", error_class="ConnectionRefusedError",
            message="[Errno 111] Connection refused", traceback=SMTP_IS_DOWN, **ended,
        )  # fmt: skip


def a_job_kills_its_workers() -> Job:
    poison = handlers.is_killed.enqueue()
    wait_for(Status.DEAD_LETTERED, poison.id)
    return Job.objects.get(pk=poison.id)


def a_handler_hangs() -> Job:
    """It goes on after its timeout. Its job is tried again, and put back, since the first run has not ended."""
    hanging = handlers.hangs.enqueue()
    wait_until(lambda: Attempt.objects.filter(job_id=hanging.id, outcome="TIMED_OUT").exists())
    wait_until(lambda: not ask(named("slots-stuck"), "default").is_clear)
    return Job.objects.get(pk=hanging.id)


def is_put_back_for_a_while(job: Job) -> None:
    """Wait until the job is not due for some seconds: an act is about the attempt that the page showed."""
    due_later = Job.objects.filter(pk=job.pk, status__in=CLAIMABLE, next_run_at__gt=now(timedelta(seconds=5)))
    wait_until(due_later.exists)


def a_queue_is_paused_and_forgotten() -> None:
    make_job(queue="reports", task="shop.echo", args=[1], next_run_at=now(timedelta(hours=-2)))
    Pause.objects.pause(queue="reports", reason=WHY_PAUSED)


def a_host_freezes(workers: Workers) -> Job:
    """A worker is stopped with a job, and no other can run it yet."""
    frozen = start(workers, "web-2", "slow")
    held = handlers.naps.using(queue_name="slow").enqueue(2.0)
    wait_until(lambda: bool(workers.trace.of(held.id, "begin")))
    wait_until(lambda: Worker.objects.filter(in_flight=1).exists())  # its last heartbeat says what it held
    frozen.freeze()
    return Job.objects.get(pk=held.id)


def its_worker_is_noticed_as_lost() -> Worker:
    def is_lost() -> bool:
        watch()
        return Worker.objects.filter(lost_at__isnull=False).exists()

    wait_until(is_lost)
    return Worker.objects.get(lost_at__isnull=False)


def a_queue_has_no_worker() -> Job:
    return make_job(queue="exports", task="shop.echo", args=[2], next_run_at=now(timedelta(minutes=-10)))


def restart(worker: StartedWorker, workers: Workers, name: str, *queues: str) -> StartedWorker:
    worker.signal(signal.SIGTERM)
    worker.wait()
    return start(workers, name, *queues)


def later(minutes: int) -> None:
    """Let what the minutes say be so much older."""
    for by in (f"{minutes} min 1000 days", "-1000 days"):  # no two minutes meet on the way
        sql("UPDATE pulse_django_minute SET minute = minute - %s::interval", by)


def forget_what_was_asked() -> None:
    """Let the next minute ask the conditions anew, and report each alert again."""
    sql("DELETE FROM pulse_django_minute WHERE jsonb_exists(signs, 'conditions')")
