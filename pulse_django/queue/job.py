"""The row of a job: the columns that every job has, with their constraints and indexes.

Capabilities add their own columns, and ``pulse_django.models`` combines all in one table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from .database.constraints import JOB_CONSTRAINTS
from .database.indexes import JOB_INDEXES
from .database.ledger import MAX_HOLDER, MAX_STATUS
from .database.sql_functions import STATUSES, ClockTimestamp, Document, ShortText, Tags
from .words.bounds import DEFAULT_QUEUE, MAX_LANE_KEY, MAX_QUEUE_NAME, MAX_TASK_NAME
from .words.decisions import Budget, retry_seconds
from .words.masks import MAX_MASKS
from .words.states import HOT, Status
from .words.traces import MAX_TRACE

if TYPE_CHECKING:
    from .database.job_queries import JobReader

# For foreign keys that the database does not check.
UNCHECKED: Any = {"on_delete": models.DO_NOTHING, "db_constraint": False, "db_index": False}


class JobRow(models.Model):
    """The columns that the kernel reads and writes. Type hints below ``models`` name this class."""

    if TYPE_CHECKING:
        objects: JobReader
        ledger: Any  # of the table of attempts

    id = models.BigAutoField(primary_key=True)  # in the database, id and era are the key (docs/adr/0049)
    # The partition: 0 for unfinished jobs and dead letters, else the day on which the job ended.
    era = models.IntegerField(default=HOT, db_default=HOT, editable=False)
    task = ShortText(max_length=MAX_TASK_NAME)  # a key of the task registry, never a path to import
    queue = ShortText(max_length=MAX_QUEUE_NAME, default=DEFAULT_QUEUE, db_default=DEFAULT_QUEUE)
    priority = models.SmallIntegerField(default=0, db_default=0)  # higher runs first
    # The limiter and the key of a job with a limit or a share, as queue/words/lane_keys.py spells them.
    lane_key = ShortText(max_length=MAX_LANE_KEY, db_collation="C", default="", db_default="", editable=False)
    # False: a job with a lane key that is not due yet. Jobs without a key are always ready, and ordered by their time.
    # NULL: set aside, because its task is paused (docs/adr/0060).
    ready = models.BooleanField(null=True, default=True, db_default=True, editable=False)
    args = Document(default=list, db_default=models.Value([], models.JSONField()))
    kwargs = Document(default=dict, db_default=models.Value({}, models.JSONField()))
    # The size of args and kwargs as text, to bound the answer of a claim. NULL: not measured, as by an older release.
    payload_bytes = models.IntegerField(null=True, blank=True, editable=False)
    # A checked foreign key would lock the parent's row in the enqueuing transaction, and a parent could not be pruned
    # before its children.
    parent = models.ForeignKey("self", null=True, blank=True, related_name="children", **UNCHECKED)

    trace = ShortText(max_length=MAX_TRACE, null=True, blank=True)  # NULL is "none"
    # The arguments that its task hid when the job was enqueued, as the text of Masks (docs/adr/0057).
    sensitive = ShortText(max_length=MAX_MASKS, null=True, blank=True, editable=False)  # NULL is "none"

    give_up_after = models.DurationField(null=True, blank=True, editable=False)  # after created_at: no later retry
    tags = Tags(default=list, null=True, blank=True, editable=False)
    search_terms = Tags(default=list, null=True, blank=True, editable=False)  # from arguments, and as secret as these
    meta = Document(null=True, blank=True, editable=False)
    weight = models.SmallIntegerField(default=1, db_default=1, editable=False)  # slots of a worker, and of a limit

    status = ShortText(
        max_length=MAX_STATUS, choices=STATUSES, default=Status.PENDING.value, db_default=Status.PENDING.value
    )
    next_run_at = models.DateTimeField(db_default=ClockTimestamp())  # the job does not start before
    attempts = models.IntegerField(default=0, db_default=0)  # claims so far; never decreases
    refunds = models.IntegerField(default=0, db_default=0)  # attempts that were given back
    max_attempts = models.IntegerField(default=10, db_default=10)
    losses = models.IntegerField(default=0, db_default=0)  # runs that ended with their worker
    max_lost_workers = models.SmallIntegerField(null=True, blank=True)  # NULL: the setting
    count_lost_workers = models.BooleanField(default=True, db_default=True)  # a lost worker costs an attempt

    locked_by = ShortText(max_length=MAX_HOLDER, null=True, blank=True)  # NULL: no holder
    lease_until = models.DateTimeField(null=True, blank=True)
    token = models.BigIntegerField(null=True, blank=True)  # of the run that holds the lease
    lease_ttl = models.DurationField(null=True, blank=True)  # NULL: the setting
    timeout = models.DurationField(null=True, blank=True)
    deadline = models.DateTimeField(null=True, blank=True)  # of the run that holds the lease
    progress_timeout = models.DurationField(null=True, blank=True)
    progress = Document(null=True, blank=True)
    progress_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_reason = models.TextField(blank=True, default="", db_default="")

    last_error = models.TextField(blank=True, default="", db_default="")
    result = Document(null=True, blank=True)
    # The run that completed the job: the ledger reads it here, and has no row for it (docs/adr/0006).
    completed_by = ShortText(max_length=MAX_HOLDER, null=True, blank=True)
    completed_token = models.BigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    started_at = models.DateTimeField(null=True, blank=True)  # of the latest run
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True
        constraints = JOB_CONSTRAINTS
        indexes = JOB_INDEXES

    def __str__(self) -> str:
        return f"{self.task} #{self.pk}"

    @property
    def budget(self) -> Budget:
        retries_for = None
        if self.started_at is not None and self.give_up_after is not None:
            waited = self.started_at.timestamp() - self.created_at.timestamp()
            retries_for = retry_seconds(self.give_up_after, waited)
        return Budget(
            attempts=self.attempts,
            refunds=self.refunds,
            max_attempts=self.max_attempts,
            losses=self.losses,
            max_lost_workers=self.max_lost_workers,
            count_lost_workers=self.count_lost_workers,
            cancel_requested=self.cancel_requested_at is not None,
            retries_for=retries_for,
        )
