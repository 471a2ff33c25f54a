"""What all commands have in common: what PostgreSQL refuses their role is a sentence, and no traceback."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from pulse_django.store.database_errors import INSUFFICIENT_PRIVILEGE, sqlstate_of
from pulse_django.words.display import inert
from pulse_django.words.payloads import error_in_one_line


class PulseCommand(BaseCommand):
    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except Error as error:
            if sqlstate_of(error) != INSUFFICIENT_PRIVILEGE:
                raise
            raise CommandError(f"The database refused this: {inert(error_in_one_line(error))}") from error
