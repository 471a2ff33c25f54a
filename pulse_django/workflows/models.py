"""The columns of jobs in batches, and the tables of batches, workflows, durable steps and events."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.lookups import LessThanOrEqual
from django.utils.translation import gettext_lazy as _

from pulse_django.queue.database.sql_functions import (
    ClockTimestamp,
    Document,
    ShortText,
    StoredSize,
    TextSize,
    bounded,
    index,
    instants_of,
    rule,
)
from pulse_django.queue.job import UNCHECKED, JobRow
from pulse_django.queue.words.bounds import MAX_DOCUMENT_TEXT, MAX_NOTE_TEXT

from .rules import MAX_BATCH_KIND, MAX_BATCH_NAME, MAX_EVENT_NAME, MAX_NODE_NAME, Met, OnNeedFailed, When


class StoredBatch(models.Model):
    """Jobs that belong together. A workflow is a batch whose jobs need each other."""

    id = models.BigAutoField(primary_key=True)
    name = ShortText(max_length=MAX_BATCH_NAME)
    kind = ShortText(max_length=MAX_BATCH_KIND, default="batch", db_default="batch")  # or workflow, mass operation
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="children"
    )
    context = Document(null=True, blank=True)  # readable by all of its jobs
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    sealed_at = models.DateTimeField(null=True, blank=True)  # all members were added
    died_at = models.DateTimeField(null=True, blank=True)  # a member was a dead letter, for the first time
    ended_at = models.DateTimeField(null=True, blank=True)  # each member had ended or was dead, for the first time
    finished_at = models.DateTimeField(null=True, blank=True)  # each member has ended
    cancelled_at = models.DateTimeField(null=True, blank=True)
    cancel_reason = models.TextField(blank=True, default="", db_default="")
    paused_at = models.DateTimeField(null=True, blank=True)
    # Without the rows of pulse_django_unresolved, which are added to them.
    added = models.BigIntegerField(default=0, db_default=0)
    completed = models.BigIntegerField(default=0, db_default=0)
    cancelled = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        default_permissions = ()
        permissions: ClassVar = [("pulse_view_workflows", _("Can see workflows"))]
        db_table = "pulse_django_batch"
        verbose_name = _("workflow")
        verbose_name_plural = _("workflows")
        indexes: ClassVar = [
            index("pulse_batch_open", ["id"], Q(finished_at__isnull=True)),
            index("pulse_batch_finished", ["finished_at"], Q(finished_at__isnull=False)),
            index("pulse_batch_paused", ["id"], Q(paused_at__isnull=False, finished_at__isnull=True)),
        ]
        constraints: ClassVar = [
            rule(
                "pulse_batch_finished_after_sealed",
                Q(finished_at__isnull=True) | Q(sealed_at__isnull=False, ended_at__isnull=False),
            ),
            bounded("pulse_batch_reason_is_bounded", cancel_reason=MAX_NOTE_TEXT),
            # Measuring unpacks it. When jobs of the batch end, only the stored size is compared.
            rule(
                "pulse_batch_context_is_bounded",
                Q(LessThanOrEqual(StoredSize("context"), MAX_DOCUMENT_TEXT))
                & (Q(added__gt=0) | Q(LessThanOrEqual(TextSize("context"), MAX_DOCUMENT_TEXT))),
            ),
            instants_of(
                "batch", "created_at", "sealed_at", "died_at", "ended_at", "finished_at", "cancelled_at", "paused_at"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} #{self.pk}"


class BatchColumns(JobRow):
    """The columns of jobs in batches and workflows."""

    batch = models.ForeignKey(StoredBatch, null=True, blank=True, related_name="members", editable=False, **UNCHECKED)
    node = ShortText(max_length=MAX_NODE_NAME, null=True, blank=True, editable=False)  # its name in its workflow
    awaited = models.BooleanField(default=False, db_default=False, editable=False)  # another job needs this one

    class Meta:
        abstract = True
        indexes: ClassVar = [
            # In this partition a job that is finished is a dead letter.
            index("pulse_job_batch_open", ["batch", "id"], Q(batch__isnull=False, finished_at__isnull=True)),
            index("pulse_job_batch_dead", ["batch", "id"], Q(batch__isnull=False, finished_at__isnull=False)),
        ]


class Dependency(models.Model):
    """A need of a job, which must be met before it runs. A met need is kept, because it names the results."""

    id = models.BigAutoField(primary_key=True)
    job_id = models.BigIntegerField()  # that waits
    needs = models.BigIntegerField(null=True)  # a job
    needs_batch = models.BigIntegerField(null=True)
    needs_event = ShortText(max_length=MAX_EVENT_NAME, null=True)
    name = ShortText(max_length=MAX_NODE_NAME, default="", db_default="")  # of the result, for the handler
    on_need_failed = ShortText(max_length=8, default=OnNeedFailed.WAIT.value, db_default=OnNeedFailed.WAIT.value)
    moment = ShortText(max_length=8, default=When.FINISHED.value, db_default=When.FINISHED.value)  # of a batch
    until = models.DateTimeField(null=True)  # of an event: not longer
    met_at = models.DateTimeField(null=True)
    met = ShortText(max_length=10, null=True)  # how

    class Meta:
        db_table = "pulse_django_dependency"
        default_permissions = ()
        indexes: ClassVar = [
            index("pulse_dependency_job", ["job_id"]),
            index("pulse_dependency_unmet", ["job_id"], Q(met_at__isnull=True)),
            index("pulse_dependency_needs", ["needs"], Q(needs__isnull=False, met_at__isnull=True)),
            index("pulse_dependency_batch", ["needs_batch"], Q(needs_batch__isnull=False, met_at__isnull=True)),
            index("pulse_dependency_event", ["needs_event"], Q(needs_event__isnull=False, met_at__isnull=True)),
            index(
                "pulse_dependency_lost",
                ["job_id"],
                Q(met__in=[Met.DEAD.value, Met.CANCELLED.value]) & ~Q(on_need_failed=OnNeedFailed.CONTINUE.value),
            ),
            index("pulse_dependency_until", ["until"], Q(until__isnull=False, met_at__isnull=True)),
        ]
        constraints: ClassVar = [
            rule(
                "pulse_dependency_needs_one_thing",
                Q(needs__isnull=False, needs_batch__isnull=True, needs_event__isnull=True)
                | Q(needs__isnull=True, needs_batch__isnull=False, needs_event__isnull=True)
                | Q(needs__isnull=True, needs_batch__isnull=True, needs_event__isnull=False),
            ),
            rule(
                "pulse_dependency_is_known",
                Q(on_need_failed__in=[one.value for one in OnNeedFailed], moment__in=[one.value for one in When]),
            ),
            rule(
                "pulse_dependency_met_has_an_instant",
                Q(met__isnull=True, met_at__isnull=True) | Q(met__in=[one.value for one in Met], met_at__isnull=False),
            ),
            instants_of("dependency", "until", "met_at"),
        ]

    def __str__(self) -> str:
        return f"job {self.job_id} needs {self.needs or self.needs_batch or self.needs_event}"


class Unresolved(models.Model):
    """A change after which a waiting job may be free to run. ``resolve`` handles it and deletes it.

    The statement that makes the change inserts the row. So each committed change is handled, whichever process dies
    meanwhile.
    """

    id = models.BigAutoField(primary_key=True)
    job_id = models.BigIntegerField(null=True)  # ended, or waits since now
    batch_id = models.BigIntegerField(null=True)
    event = ShortText(max_length=MAX_EVENT_NAME, null=True)
    added = models.IntegerField(default=0, db_default=0)  # members of the batch
    completed = models.IntegerField(default=0, db_default=0)
    cancelled = models.IntegerField(default=0, db_default=0)
    died = models.BooleanField(default=False, db_default=False)  # a member became a dead letter, and may be none by now

    class Meta:
        db_table = "pulse_django_unresolved"
        default_permissions = ()
        indexes: ClassVar = [index("pulse_unresolved_batch", ["batch_id"], Q(batch_id__isnull=False))]

    def __str__(self) -> str:
        return f"{self.pk}: {self.job_id or self.batch_id or self.event}"


class Step(models.Model):
    """A durable step of a handler: its result, written once, by the run that held the lease."""

    pk = models.CompositePrimaryKey("job_id", "name")
    job_id = models.BigIntegerField()
    name = ShortText(max_length=MAX_NODE_NAME)
    number = models.IntegerField()  # 1 for the first of the job
    attempt = models.IntegerField()
    token = models.BigIntegerField()
    result = Document(null=True)
    at = models.DateTimeField(db_default=ClockTimestamp())
    seconds = models.FloatField(null=True)  # that it took

    class Meta:
        constraints: ClassVar = [
            bounded("pulse_step_result_is_bounded", result=MAX_DOCUMENT_TEXT),
            instants_of("step", "at"),
        ]
        db_table = "pulse_django_step"
        default_permissions = ()

    def __str__(self) -> str:
        return f"step {self.number} of job {self.job_id}: {self.name}"


class Event(models.Model):
    """Something that happened, by name. The first one with a name counts, and is kept for a while."""

    name = ShortText(max_length=MAX_EVENT_NAME, primary_key=True)
    payload = Document(null=True, blank=True)
    sent_at = models.DateTimeField(db_default=ClockTimestamp())
    sent_by = ShortText(max_length=150, blank=True, default="", db_default="")

    class Meta:
        default_permissions = ()
        constraints: ClassVar = [
            bounded("pulse_event_payload_is_bounded", payload=MAX_DOCUMENT_TEXT),
            instants_of("event", "sent_at"),
        ]
        verbose_name = _("event")
        verbose_name_plural = _("events")
        indexes: ClassVar = [index("pulse_event_sent", ["sent_at"])]

    def __str__(self) -> str:
        return self.name
