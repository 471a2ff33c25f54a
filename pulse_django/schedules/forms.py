"""A form for schedules, for the admin and for users of a project."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import router, transaction
from django.utils.translation import gettext_lazy as _

from pulse_django.models import Schedule
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.own_tasks import OWN_TASKS
from pulse_django.run.registry import registry

from .definitions import MAX_OWNER

# Held until the end of the transaction, so that two requests of one owner cannot both use the last place.
_LOCK_OWNER = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s::text, 7243))::text"

TIMING = ("cron", "tz", "every")
POLICY = ("missed", "grace", "overlap", "jitter", "starts_at", "ends_at")


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's own takes no parameters
    """Create or change a schedule.

    ``tasks`` are the keys of the tasks that may be chosen; all, if none is given. An ``owner`` may have ``quota``
    schedules.
    """

    class Meta:
        model = Schedule
        fields = ("name", "task", "args", "kwargs", "queue", "priority", *TIMING, *POLICY)

    def __init__(
        self,
        *args: Any,
        tasks: Iterable[str] | None = None,
        owner: str = "",
        quota: int | None = None,
        by: str = "",
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._owner, self._quota, self._by = owner[:MAX_OWNER], quota, by
        self.instance.owner = self.instance.owner or self._owner
        if "task" in self.fields:
            registry.discover()
            keys = sorted(set(registry).difference(OWN_TASKS) if tasks is None else tasks)
            if self.instance.task and self.instance.task not in keys:
                keys.insert(0, self.instance.task)  # this process does not know it
            self.fields["task"] = forms.ChoiceField(label=_("task"), choices=[("", "---------"), *zip(keys, keys)])  # noqa: B905
        if "cron" in self.fields:
            self.fields["cron"].help_text = _("Five fields: minute, hour, day of the month, month, day of the week.")
        if "every" in self.fields:
            self.fields["every"].help_text = _("Instead of an expression: [days] hours:minutes:seconds.")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.instance.pk is None:
            self._refuse_if_full()
        return cleaned

    def save(self, commit: bool = True) -> Schedule:
        """Save the schedule, or raise ValidationError if another request took the last place of the quota."""
        if not commit:
            unsaved: Schedule = super().save(commit=False)
            return unsaved
        if self.errors:
            raise ValueError("The schedule could not be saved because its data are not valid.")
        alias = router.db_for_write(Schedule)
        with transaction.atomic(using=alias):
            if self.instance.pk is None and self._quota is not None:
                run_joined(alias, _LOCK_OWNER, [self._owner])
                self._refuse_if_full()
            self.instance.save(using=alias, by=self._by)
        saved: Schedule = self.instance
        return saved

    def _refuse_if_full(self) -> None:
        own = Schedule.objects.using(router.db_for_write(Schedule)).filter(owner=self._owner)
        if self._quota is not None and own.count() >= self._quota:
            raise ValidationError(_("There may be at most %(quota)s schedules."), "quota", {"quota": self._quota})
