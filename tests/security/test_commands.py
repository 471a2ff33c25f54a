"""Names that no row can have, on the command line: a sentence, and no traceback."""

from __future__ import annotations

import io
from contextlib import suppress

import pytest
from django.core.management import CommandError, call_command

from tests.faults import all_faults

pytestmark = pytest.mark.usefixtures("pulse_db")

COMMANDS = [
    *(("pulse_pause", "--queue"), ("pulse_pause", "--task"), ("pulse_pause", "--task", "x", "--queue")),
    *(("pulse_pause", "--queue", "x", "--reason"), ("pulse_resume", "--queue"), ("pulse_resume", "--task")),
    *(("pulse_resume", "--task", "x", "--queue"), ("pulse_cancel", "--queue"), ("pulse_cancel", "--tag")),
    *(("pulse_retry", "--task"), ("pulse_retry", "--error"), ("pulse_prune", "--queue"), ("pulse_explain",)),
    *(("pulse_schedules", "list", "--task"), ("pulse_schedules", "pause"), ("pulse_schedules", "run")),
    *(("pulse_limits", "set"), ("pulse_pause", "--limit"), ("pulse_pause", "--limit", "x", "--key")),
    *(("pulse_pause", "--fair-key"), ("pulse_resume", "--fair-key"), ("pulse_workflows", "show")),
    *(("pulse_status", "--shard"), ("pulse_check", "--repair"), ("pulse_import_schedules",)),
    ("pulse_import_schedules", "celery-beat", "--from-database"),
]


def test_what_cannot_be_stored_is_refused_or_names_nothing() -> None:
    with all_faults() as about:
        for command in COMMANDS:
            for name in ("a\x00b", "a\udcffb", "a\ud800"):
                with about((*command, name)), suppress(CommandError):
                    call_command(*command, name, stdout=io.StringIO(), stderr=io.StringIO())
