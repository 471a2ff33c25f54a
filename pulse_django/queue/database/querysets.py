"""Filters for jobs that verbs, admin and watchdog share. They only read; only ``queue/`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Self

from django.db import models
from django.db.models import BooleanField, DurationField, ExpressionWrapper, F, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Greatest

from pulse_django.queue.words.job_options import tag_of, tags_of
from pulse_django.queue.words.states import CLAIMABLE, TERMINAL, Status

from ..capability import installed
from ..gates import gates_by_id
from .sql_functions import StatementTimestamp, has_a_term, has_tags
from .transactions import Table


def lease_ran_out_lately(within: timedelta) -> Q:
    """Return the condition that the lease has not run out, or not longer ago than ``within``."""
    return Q(lease_until__gte=StatementTimestamp() - within)


def held_by_start(column: str, name: str, boot_id: str) -> Q:
    """Return the condition that the holder is one start of a worker: itself or one of its numbered children."""
    return Q(**{f"{column}__startswith": f"{name}:{boot_id}:"}) | Q(**{f"{column}__startswith": f"{name}:{boot_id}."})


def _any_of(conditions: list[str]) -> RawSQL:
    """Return the condition that at least one of these conditions of capabilities is true."""
    sql = " OR ".join(filter(None, conditions)).replace("{job}", '"pulse_django_job"') or "false"
    return RawSQL(f"({sql})", (), output_field=BooleanField())  # noqa: S611 - made of constants


def _is_holding() -> RawSQL:
    return _any_of([one.internals.is_holding for one in installed()])


class JobQuerySet(QuerySet[Table]):
    def claimable(self) -> Self:
        """Return jobs that wait for a worker, whether they are due or not."""
        return self.filter(status__in=CLAIMABLE)

    def due(self) -> Self:
        """Return claimable jobs that are due."""
        return self.claimable().filter(next_run_at__lte=StatementTimestamp())

    def startable(self) -> Self:
        """Return jobs that a claim by id may start, if they are claimable."""
        return self.filter(RawSQL(gates_by_id('"pulse_django_job"'), (), output_field=BooleanField()))  # noqa: S611 - made of constants

    def unneeded(self) -> Self:
        """Return jobs that no other job needs any more."""
        return self.exclude(_any_of([one.internals.is_needed for one in installed()]))

    def holding(self) -> Self:
        """Return dead letters whose retry other jobs wait for."""
        return self.filter(_is_holding(), status=Status.DEAD_LETTERED)

    def holding_nothing(self) -> Self:
        """Return all jobs except these dead letters."""
        return self.exclude(_is_holding(), status=Status.DEAD_LETTERED)

    def tagged(self, *tags: str) -> Self:
        """Return jobs that have all of these tags, ended or not."""
        return self.filter(has_tags(tags_of(tags)))

    def with_an_error(self) -> Self:
        """Return jobs with a failed run, whatever their status is now."""
        return self.exclude(last_error="")

    def found_by(self, terms: Sequence[str]) -> Self:
        """Return jobs that have one of these search terms."""
        return self.filter(has_a_term(terms))

    def for_object(self, instance: models.Model) -> Self:
        """Return jobs that are tagged with this saved model instance."""
        return self.tagged(tag_of(instance))

    def running(self) -> Self:
        return self.filter(status=Status.RUNNING)

    def terminal(self) -> Self:
        return self.filter(status__in=TERMINAL)

    def dead_letters(self) -> Self:
        return self.filter(status=Status.DEAD_LETTERED)

    def reapable(self) -> Self:
        """Return runs that a watchdog has to end: lease expired, deadline passed, or stalled."""
        now, last_sign = StatementTimestamp(), Greatest(F("started_at"), F("progress_at"))  # GREATEST ignores NULL
        silence = ExpressionWrapper(now - last_sign, output_field=DurationField())
        return self.running().filter(Q(lease_until__lt=now) | Q(deadline__lt=now) | Q(progress_timeout__lt=silence))
