"""The labels and help texts of the fields of a job."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils import translation
from django.utils.translation import gettext_lazy as _

from pulse_django.models import Job
from pulse_django.words.declared_options import OPTIONS

# Their texts are marked for translation where they are declared.
ON_THE_PAGE = [option for option in OPTIONS.values() if option.label]

LABELS: dict[str, Any] = {
    "task": _("Task"),
    **{option.column: translation.gettext_lazy(option.label) for option in ON_THE_PAGE},
    "status": _("Status"),
    "attempts": _("Attempts so far"),
    "refunds": _("Refunds"),
    "losses": _("Lost workers"),
    "locked_by": _("Holder"),
    "token": _("Fencing token"),
    "lease_until": _("Lease until"),
    "deadline": _("Deadline of the run"),
    "progress_at": _("Last progress"),
    "cancel_requested_at": _("Stop requested at"),
    "cancel_reason": _("Reason for stop request"),
    "created_at": _("Enqueued"),
    "next_run_at": _("Due"),
    "started_at": _("Latest run started"),
    "finished_at": _("Ended"),
}

HELP: dict[str, Any] = {
    **{option.column: translation.gettext_lazy(option.help) for option in ON_THE_PAGE},
    "attempts": _("Number of claims, including refunded ones. It never decreases."),
    "refunds": _("Attempts that do not count: put back, returned by a stopping worker, or granted by a retry."),
    "token": _("Other systems may reject writes with a smaller token."),
    "lease_until": _(
        "According to the server's clock. Each heartbeat extends it. When it expires, a watchdog ends the run."
    ),
    "next_run_at": _("The job does not run before this time. For an ended job, the time its last run was due."),
}


class JobWords(forms.ModelForm):
    """A form without fields: the admin takes its words from here, and a migration is not needed for them."""

    class Meta:
        model = Job
        fields: tuple[str, ...] = ()
        labels = LABELS
        help_texts = HELP
