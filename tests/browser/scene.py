"""A fleet on a bad day: what the pictures of the documentation show, and where the browser tests begin."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone

from pulse_django.models import Dependency, Job, Minute, Pause, Schedule, StoredAttempt, StoredBatch, Tick, Worker
from pulse_django.queue.database.workers import Presence
from pulse_django.queue.words.states import Status
from pulse_django.schedules.timings import Cron
from tests.factories import AttemptFactory, make_job, now
from tests.queue.steps import sql

TRACEBACK = """Traceback (most recent call last):
  File "shop/tasks.py", line 41, in send_invoice
    gateway.charge(order)
  File "shop/gateway.py", line 17, in charge
    raise GatewayError(f"order {order.pk} was declined by the bank")
shop.gateway.GatewayError: order 4711 was declined by the bank
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    zombie: Job  # whose first worker reported too late
    running: Job
    dead: Job
    declined: list[Job]  # the dead letters of one group
    lost_worker: Worker
    nightly: Schedule  # with ticks that fired and others
    order: StoredBatch  # a workflow that a dead letter holds


def ago(**span: float) -> object:
    return now(-timedelta(**span))


def build() -> Scene:
    workers()
    waiting()
    zombie = job_with_a_zombie()
    declined = [declined_by_the_bank(number) for number in range(12)]
    others()
    running = make_job(
        Status.RUNNING,
        task="shop.export_report",
        queue="reports",
        locked_by="web-1-4021:boot1:77",
        lease_until=now(timedelta(seconds=24)),
        started_at=ago(minutes=4),
        created_at=ago(minutes=5),
        progress={"done": 640, "total": 1000, "cursor": "2026-10-31"},
        kwargs={"month": "2026-10"},
    )
    history()
    Pause.objects.pause(queue="mail", reason="the provider is down, ticket 812", duration=timedelta(hours=2))
    lost_worker = Worker.objects.get(name="web-2-311")
    shown = Scene(
        zombie=zombie,
        running=running,
        dead=declined[0],
        declined=declined,
        lost_worker=lost_worker,
        nightly=nightly_report(),
        order=order_that_is_held(),
    )
    leave_no_trace_of_factories()
    # As enqueue() writes it: the list shows arguments that are known to be short.
    sql("UPDATE pulse_django_job SET payload_bytes = octet_length(args::text) + octet_length(kwargs::text)")
    return shown


def leave_no_trace_of_factories() -> None:
    """Give each job that ran its attempt, and let no token be granted twice. The board says what no worker leaves."""
    ran = Job.objects.filter(attempts__gt=0).exclude(status=Status.RUNNING)
    for job in ran.exclude(pk__in=StoredAttempt.objects.values("job_id")):
        outcome = "SUCCEEDED" if job.status == Status.COMPLETED else "FAILED"
        AttemptFactory(job=job, number=job.attempts, outcome=outcome, message=job.last_error)
    sql("SELECT setval('pulse_django_token', 10000)")


def workers() -> None:
    for name, host, in_flight, stuck in (("web-1-4021", "web-1", 3, 0), ("web-2-977", "web-2", 1, 1)):
        beats = {"beats": 4_210, "beat_failures": 2, "beat_delays": {"2": 4_100, "4": 108, "11": 2}}
        Worker.objects.note(
            Presence(
                name=name, boot_id="boot1", host=host, pid=int(name.rpartition("-")[2]), slots=8, in_flight=in_flight,
                stuck_slots=stuck, versions={"pulse": "0.1.0", "python": "3.13.1", "django": "6.1"}, queues=(),
                tasks=("shop.send_invoice", "shop.export_report"), vitals=beats,
            )
        )  # fmt: skip
    lost = Presence(
        name="web-2-311",
        boot_id="boot0",
        host="web-2",
        pid=311,
        slots=8,
        in_flight=2,
        stuck_slots=0,
        queues=(),
        versions={},
    )
    Worker.objects.note(lost)
    sql(
        "UPDATE pulse_django_worker SET last_beat_at = clock_timestamp() - interval '9 min',"
        " stopped_at = clock_timestamp() - interval '9 min' WHERE name = 'web-2-311'"
    )


def waiting() -> None:
    for number in range(40):
        make_job(task="shop.send_mail", queue="mail", kwargs={"order": number}, next_run_at=ago(minutes=12))
    for number in range(7):
        make_job(task="shop.export_report", queue="reports", next_run_at=now(timedelta(minutes=30 * number + 5)))
    for _ in range(3):
        make_job(
            Status.RETRYING, task="shop.send_invoice", queue="invoices",
            last_error="TimeoutError: the bank took 31 s", next_run_at=now(timedelta(seconds=40)),
        )  # fmt: skip


def job_with_a_zombie() -> Job:
    job = make_job(
        Status.COMPLETED,
        task="shop.send_invoice",
        queue="invoices",
        attempts=3,
        losses=1,
        kwargs={"order": 1042},
        created_at=ago(minutes=12),
        started_at=ago(minutes=7, seconds=20),
        finished_at=ago(minutes=6),
    )
    AttemptFactory(
        job=job, number=1, worker="web-1-4021:boot1:12", outcome="FAILED", started_at=ago(minutes=11, seconds=50),
        finished_at=ago(minutes=11, seconds=10), error_class="TimeoutError", message="the bank took 31 s",
        traceback=TRACEBACK,
    )  # fmt: skip
    AttemptFactory(
        job=job, number=2, worker="web-2-311:boot0:9", outcome="WORKER_LOST", message="worker lease expired",
        started_at=ago(minutes=10), last_seen_at=ago(minutes=9), finished_at=ago(minutes=8, seconds=20),
        late_outcome="SUCCEEDED", late_at=ago(minutes=6, seconds=40),
    )  # fmt: skip
    AttemptFactory(
        job=job,
        number=3,
        worker="web-1-4021:boot1:31",
        started_at=ago(minutes=7, seconds=20),
        finished_at=ago(minutes=6),
    )
    return job


def declined_by_the_bank(number: int) -> Job:
    job = make_job(
        Status.DEAD_LETTERED,
        task="shop.send_invoice",
        queue="invoices",
        attempts=3,
        max_attempts=3,
        kwargs={"order": 4_711 + number, "card": "4111 1111 1111 1111"},
        last_error=f"GatewayError: order {4_711 + number} was declined by the bank",
        created_at=ago(hours=3, minutes=number),
        finished_at=ago(hours=2, minutes=5 * number),
    )
    for attempt in (1, 2, 3):
        begun = ago(hours=3, minutes=number - 6 * attempt)
        AttemptFactory(
            job=job, number=attempt, worker="web-1-4021:boot1:3", outcome="FAILED", started_at=begun,
            finished_at=ago(hours=3, minutes=number - 6 * attempt - 0.5), error_class="shop.gateway.GatewayError",
            message=f"order {4_711 + number} was declined by the bank", traceback=TRACEBACK,
        )  # fmt: skip
    return job


def others() -> None:
    for error, count in (
        ("worker lease expired", 2),
        ("TypeError: send_mail() missing 1 required argument: 'order'", 3),
        ("OSError: [Errno 28] No space left on device: '/var/reports/2026-10.csv'", 1),
    ):
        for number in range(count):
            make_job(
                Status.DEAD_LETTERED, task="shop.export_report" if "OSError" in error else "shop.send_mail",
                last_error=error, created_at=ago(days=1), finished_at=ago(minutes=20 + 7 * number),
            )  # fmt: skip
    for number in range(30):
        make_job(
            Status.COMPLETED, task="shop.send_mail", queue="mail", created_at=ago(minutes=60 - number),
            finished_at=ago(minutes=59 - number), kwargs={"order": number},
        )  # fmt: skip


def nightly_report() -> Schedule:
    """A schedule of every quarter of an hour around a change of the clocks, and a paused one."""
    timing = Cron("*/15 0-5 * * *", tz="Europe/Berlin")
    schedule = Schedule.objects.create(name="nightly report", task="shop.echo", args=[1], timing=timing)
    for back, outcome, note in (
        (1, "FIRED", ""),
        (2, "OVERLAP", "the last job of this schedule is not finished"),
        (3, "MISSED", "0:20:00 late, and the grace is 0:10:00"),
        (4, "FIRED", ""),
    ):
        at, job = ago(minutes=15 * back), None
        if outcome == "FIRED":
            job = make_job(Status.COMPLETED, task="shop.echo", created_at=at, started_at=at, finished_at=at)
        Tick.objects.create(schedule=schedule, at=at, decided_at=at, outcome=outcome, note=note, job_id=job and job.pk)
    paused = Schedule.objects.create(name="warm caches", task="shop.echo", args=[2], every=timedelta(minutes=5))
    Schedule.objects.pause(paused.pk, reason="the provider is down, ticket 812", duration=timedelta(hours=2))
    return schedule


def history() -> None:
    """Three hours of minutes, of a shape that can be recognised."""
    last = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=1)
    for back in range(180):
        wave = 60 + 40 * math.sin(back / 18)
        signs = {
            "jobs_enqueued_total": {"mail": round(wave), "invoices": round(wave / 4), "reports": 2},
            "jobs_ended_total": {
                "mail": {"COMPLETED": round(wave) if back > 12 else 0},
                "invoices": {"COMPLETED": round(wave / 4), "DEAD_LETTERED": int(back % 15 == 0)},
                "reports": {"COMPLETED": 2},
            },
            "runs_total": {"shop.send_mail": {"SUCCEEDED": round(wave), "WORKER_LOST": int(back in (8, 60, 61))}},
            "late_reports_total": {"SUCCEEDED": 1} if back in (7, 58) else {},
            "death_to_requeue_seconds": {"count": 1, "sum": 21.0, "buckets": {"29": 1}} if back in (8, 60, 61) else {},
            "queues": {"mail": [40, 0, 720.0]},
            "broken": {"paused-backlog": 1},
        }
        sql(
            "INSERT INTO pulse_django_minute (minute, signs) VALUES (%s, %s)",
            last - timedelta(minutes=back),
            json.dumps(signs),
        )
    Minute.objects.count()


def order_that_is_held() -> StoredBatch:
    """A workflow in which there is one of everything."""
    order = StoredBatch.objects.create(name="order 4711", kind="workflow", created_at=ago(minutes=9), sealed_at=now())
    parcel = StoredBatch.objects.create(
        name="parcel", kind="workflow", parent=order, created_at=ago(minutes=9), sealed_at=now()
    )

    def job(node: str, status: Status, *needs: Job, begun: float = 0, took: float = 0, **fields: object) -> Job:
        over = {"started_at": ago(minutes=begun), "finished_at": ago(minutes=begun - took)} if took else {}
        made = make_job(
            status, task=f"shop.{node.replace(' ', '_')}", node=node, batch=order, created_at=ago(minutes=9),
            **over | fields,
        )  # fmt: skip
        for need in needs:
            met = {"met": "done", "met_at": ago(minutes=begun, seconds=1)} if need.status == Status.COMPLETED else {}
            Dependency.objects.create(job_id=made.pk, needs=need.pk, name=need.node, **met)
        return made

    charge = job("charge", Status.COMPLETED, begun=9, took=2)
    stock = job("reserve stock", Status.COMPLETED, charge, begun=7, took=0.2)
    invoice = job("write invoice", Status.COMPLETED, charge, begun=7, took=3)
    pdf = job("print invoice", Status.DEAD_LETTERED, invoice, begun=4, took=1, last_error="PrinterError: no paper")
    picked = job("pick", Status.RUNNING, stock, begun=2, started_at=ago(minutes=2), locked_by="web-1-4021:boot1:91")
    approved = job("approve", Status.WAITING)
    Dependency.objects.create(job_id=approved.pk, needs_event="approved:4711")
    label = make_job(Status.WAITING, task="shop.print_label", node="print label", batch=parcel)
    Dependency.objects.create(job_id=label.pk, needs=picked.pk, name="pick")
    hand_over = job("hand over", Status.WAITING, pdf, approved)
    Dependency.objects.create(job_id=hand_over.pk, needs_batch=parcel.pk, name="parcel")
    job("say thank you", Status.WAITING, hand_over)
    for batch, jobs in ((order, 8), (parcel, 1)):
        batch.added, batch.completed = jobs, 3 if batch is order else 0
    StoredBatch.objects.bulk_update([order, parcel], ["added", "completed"])
    return order
