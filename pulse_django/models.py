"""The tables. Their constraints refuse every state that the verbs cannot produce."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from . import require_app as require_app  # first
from .amendments.models import Amendment as Amendment
from .expiry.models import ExpiryColumns
from .limits.models import Bucket as Bucket
from .limits.models import Limiter as Limiter
from .limits.models import LimitIndexes
from .managers import JobManager
from .metrics.minute_stats import MinuteManager
from .metrics.models import Release as Release
from .metrics.models import Traffic as Traffic
from .on_dead.models import HookColumns
from .pauses.models import Pause as Pause
from .queue.database.constraints import ATTEMPT_CONSTRAINTS, MAX_PAYLOAD_TEXT
from .queue.database.duties import DutyManager
from .queue.database.indexes import ATTEMPT_INDEXES
from .queue.database.ledger import LedgerRow
from .queue.database.sql_functions import ClockTimestamp, Document, ShortText, bounded, instants_of, rule
from .queue.database.workers import WorkerManager
from .queue.job import UNCHECKED, JobRow
from .queue.words.bounds import MAX_REGISTRY_TEXT, MAX_USER
from .queue.words.payloads import MAX_TRACEBACK
from .schedules.models import Schedule as Schedule
from .schedules.models import Tick as Tick
from .shards.models import Arrival as Arrival
from .shards.models import Departure as Departure
from .sql_enqueue.models import DeclaredTask as DeclaredTask
from .unique.models import IdempotencyKey as IdempotencyKey
from .unique.models import KeyColumns
from .unique.models import Window as Window
from .workflows.models import BatchColumns
from .workflows.models import Dependency as Dependency
from .workflows.models import Event as Event
from .workflows.models import Step as Step
from .workflows.models import StoredBatch as StoredBatch
from .workflows.models import Unresolved as Unresolved

# The columns of jobs, with their constraints and indexes: those of the core and of capabilities.
_BLOCKS = (JobRow, KeyColumns, ExpiryColumns, BatchColumns, HookColumns, LimitIndexes)


class Job(KeyColumns, ExpiryColumns, BatchColumns, HookColumns, JobRow):
    """A job: one unit of work in one row, with its lease.

    Only the verbs of ``Job.objects`` write rows.
    """

    objects = JobManager()

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        default_permissions = ()
        permissions = [
            ("pulse_view_jobs", _("Can see jobs")),
            ("pulse_delete_jobs", _("Can delete dead letters")),
            ("pulse_retry_jobs", _("Can retry dead letters")),
            ("pulse_cancel_jobs", _("Can cancel jobs, and take them from their workers")),
            ("pulse_schedule_jobs", _("Can reschedule and move waiting jobs")),
            ("pulse_amend_jobs", _("Can change the arguments of waiting jobs")),
            ("pulse_view_arguments", _("Can see the arguments and results of jobs")),
        ]
        constraints = [rule for block in _BLOCKS for rule in block._meta.constraints]
        indexes = [index for block in _BLOCKS for index in block._meta.indexes]


class StoredAttempt(LedgerRow):
    """A run with its own row, which is written by the statement that ended it, and changed at most once.

    The run that completed its job has no row, unless there was a later report on it.
    """

    id = models.BigAutoField(primary_key=True)
    # The statement that updates a job inserts this row, and the one that deletes the job deletes it. A checked foreign
    # key would verify that for every settle, and cost an eighth of the throughput (docs/adr/0049).
    job = models.ForeignKey(
        Job, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="stored_attempts"
    )

    class Meta:
        db_table = "pulse_django_attempt"
        default_permissions = ()
        constraints = ATTEMPT_CONSTRAINTS
        indexes = ATTEMPT_INDEXES


class Attempt(LedgerRow):
    """The ledger: the stored attempts, and the runs that completed a job, which are read from the job's row."""

    id = models.BigIntegerField(primary_key=True)  # for runs in a job's row: the negative id of the job
    job = models.ForeignKey(Job, related_name="ledger", **UNCHECKED)

    class Meta:
        default_permissions = ()
        managed = False  # a view
        db_table = "pulse_django_ledger"
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")


class Worker(models.Model):
    """The registry of workers, for operators. Recovery never reads it, but only leases."""

    id = models.BigAutoField(primary_key=True)
    name = ShortText(max_length=80)
    boot_id = ShortText(max_length=40)
    host = ShortText(max_length=255)
    pid = models.IntegerField()
    versions = Document(default=dict, db_default=models.Value({}, models.JSONField()))
    queues = Document(default=list, db_default=models.Value([], models.JSONField()))  # empty: all
    slots = models.IntegerField()
    in_flight = models.IntegerField(default=0, db_default=0)
    tasks = Document(null=True, blank=True)  # the keys of its tasks; NULL: not reported
    vitals = Document(default=dict, db_default=models.Value({}, models.JSONField()))
    stuck_slots = models.IntegerField(default=0, db_default=0)  # slots of handlers that do not stop
    started_at = models.DateTimeField(db_default=ClockTimestamp())
    last_beat_at = models.DateTimeField(db_default=ClockTimestamp())
    stopped_at = models.DateTimeField(null=True, blank=True)  # of a lost worker: its last sign of life
    # When a watchdog found that it disappeared without a clean stop. NULL: it is alive, or it stopped cleanly.
    lost_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)  # by a person, or by its return
    # The job for whose handler an operator requested the stack, and the answer (queue/database/workers.py).
    stack_wanted = models.BigIntegerField(null=True, blank=True, editable=False)
    stack_asked_at = models.DateTimeField(null=True, blank=True, editable=False)
    stack_of = models.BigIntegerField(null=True, blank=True, editable=False)
    stack = models.TextField(blank=True, default="", db_default="", editable=False)
    stack_at = models.DateTimeField(null=True, blank=True, editable=False)
    acknowledged_by = ShortText(max_length=MAX_USER, blank=True, default="", db_default="")  # empty: by its return

    objects = WorkerManager()

    class Meta:
        default_permissions = ()
        permissions: ClassVar = [
            ("pulse_view_workers", _("Can see workers")),
            ("pulse_change_workers", _("Can acknowledge lost workers, and request stacks of handlers")),
        ]
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["name", "boot_id"], name="pulse_worker_one_per_boot"),
            rule("pulse_worker_has_slots", Q(slots__gte=0, in_flight__gte=0)),
            rule(
                "pulse_worker_acknowledged_if_lost",
                Q(lost_at__isnull=False) | Q(acknowledged_at__isnull=True, acknowledged_by=""),
            ),
            bounded(
                "pulse_worker_documents_are_bounded",
                versions=MAX_REGISTRY_TEXT,
                queues=MAX_REGISTRY_TEXT,
                tasks=MAX_REGISTRY_TEXT,
                vitals=MAX_REGISTRY_TEXT,
                stack=4 * MAX_TRACEBACK,
            ),
            instants_of(
                "worker",
                *("started_at", "last_beat_at", "stopped_at", "lost_at"),
                *("acknowledged_at", "stack_asked_at", "stack_at"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}:{self.boot_id}"

    @property
    def is_lost(self) -> bool:
        """Return whether it is lost and not acknowledged. The same rule as ``IS_LOST`` in SQL."""
        return None not in (self.stopped_at, self.lost_at) and self.acknowledged_at is None


class Fence(models.Model):
    """The largest token that was used for a resource without its own column for it."""

    id = models.BigAutoField(primary_key=True)
    resource = ShortText(max_length=200, unique=True)
    token = models.BigIntegerField()

    class Meta:
        default_permissions = ()
        verbose_name = _("fence")
        verbose_name_plural = _("fences")

    def __str__(self) -> str:
        return f"{self.resource}: {self.token}"


class Minute(models.Model):
    """The metrics of the whole fleet for one minute, written once, by the first watchdog."""

    minute = models.DateTimeField(primary_key=True)  # the start of the minute
    signs = models.JSONField()  # counters and gauges of the minute
    # Only in the latest row: the totals since the first minute, and the totals of each worker since its start.
    totals = models.JSONField(null=True, blank=True)
    workers = models.JSONField(null=True, blank=True)

    objects = MinuteManager()

    class Meta:
        default_permissions = ()
        constraints: ClassVar = [
            bounded(
                "pulse_minute_documents_are_bounded",
                **dict.fromkeys(("signs", "totals", "workers"), MAX_PAYLOAD_TEXT),
            ),
            instants_of("minute", "minute"),
        ]
        verbose_name = _("minute")
        verbose_name_plural = _("minutes")

    def __str__(self) -> str:
        return self.minute.isoformat()


class Duty(models.Model):
    """A duty: work that one watchdog of the fleet does in each interval, with its last time."""

    name = ShortText(max_length=40, primary_key=True)
    taken_at = models.DateTimeField()
    done_at = models.DateTimeField()

    objects = DutyManager()

    class Meta:
        default_permissions = ()
        constraints: ClassVar = [instants_of("duty", "taken_at", "done_at")]

    def __str__(self) -> str:
        return self.name


class Declaration(models.Model):
    """The worker whose code declares: the one that started last among those of one settings module.

    The row ``deployment:`` has the name of the deployment that the database belongs to as its fingerprint.
    """

    scope = ShortText(max_length=200, primary_key=True)  # the settings module
    worker = ShortText(max_length=160)
    booted_at = models.DateTimeField()
    fingerprint = ShortText(max_length=64)  # a hash of all its declarations
    declared_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints: ClassVar = [instants_of("declaration", "booted_at", "declared_at")]
        default_permissions = ()

    def __str__(self) -> str:
        return self.scope


class DeadLetter(Job):
    """Dead letters, as a separate entry in the admin."""

    class Meta:
        proxy = True
        default_permissions = ()  # those of jobs are used
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")


class Queue(Pause):
    """The pages about queues, as an entry of their own in the admin. A queue has no row: its pages go by its name."""

    class Meta:
        proxy = True
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        default_permissions = ()
        permissions: ClassVar = [
            ("pulse_view_queues", _("Can see queues")),
            ("pulse_operate_queues", _("Can pause and resume queues")),
        ]


class Board(Queue):
    """The page about the health of the fleet, as a separate entry in the admin."""

    class Meta:
        proxy = True
        default_permissions = ()
        permissions: ClassVar = [("pulse_view_board", _("Can see the board"))]
        verbose_name = _("board")
        verbose_name_plural = _("board")


class TaskOverview(Job):
    """The pages about tasks, as a separate entry in the admin."""

    class Meta:
        proxy = True
        default_permissions = ()  # the permission to see jobs is enough
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
