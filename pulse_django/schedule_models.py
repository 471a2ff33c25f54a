"""The tables of schedules. ``models.py`` loads them with the others."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from django.core.exceptions import ValidationError
from django.db import models, router
from django.utils.translation import gettext_lazy as _

from .exceptions import InvalidSchedule
from .managers import ScheduleManager
from .protocol import schedules
from .store.schedules import (
    SCHEDULE_CONSTRAINTS,
    SCHEDULE_INDEXES,
    TICK_CONSTRAINTS,
    DeclarationRow,
    ScheduleRow,
    TickRow,
)
from .store.sql_functions import instants_of
from .words.schedule_definitions import Definition


class CheckCall(Protocol):
    """Raises InvalidSchedule for a task that is not there, or that does not take these arguments."""

    def __call__(self, definition: Definition, /) -> None: ...


class Schedule(ScheduleRow):
    """When a task runs without being called: declared by code, or created at run time."""

    objects: ClassVar[ScheduleManager] = ScheduleManager()
    # Set by the app: models are loaded before the tasks that they name.
    check_call: ClassVar[CheckCall] = staticmethod(lambda _: None)

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        constraints = SCHEDULE_CONSTRAINTS
        indexes = SCHEDULE_INDEXES

    def save(self, *, using: str | None = None, by: str = "", why: str = "", **_: Any) -> None:
        """Write it down, and find its next instant if it is due at others now.

        For a schedule of the code, what differs from the code is overridden; ``by`` and ``why`` say for whom.
        """
        schedules.store(self, using or router.db_for_write(Schedule, instance=self), by, why)

    def clean(self) -> None:
        """Refuse what ``save`` would refuse. For forms."""
        try:
            schedules.check(self)
        except InvalidSchedule as error:
            field = str(error).partition(":")[0]
            is_field = field in {one.name for one in self._meta.fields}
            raise ValidationError({field: str(error)} if is_field else str(error)) from error


class Tick(TickRow):
    """The ledger of schedules: each instant, and what became of it."""

    schedule = models.ForeignKey(
        Schedule, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="ticks"
    )

    class Meta:
        verbose_name = _("tick")
        verbose_name_plural = _("ticks")
        constraints = TICK_CONSTRAINTS
        default_permissions = ()


class Declaration(DeclarationRow):
    """Whose code the schedules follow."""

    class Meta:
        constraints: ClassVar = [instants_of("declaration", "booted_at", "declared_at")]
        default_permissions = ()
