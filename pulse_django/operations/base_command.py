"""What all commands share: no traceback for what PostgreSQL refuses, nor if a reader such as head ends first."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from pulse_django.store.database_errors import is_refused
from pulse_django.words.display import inert
from pulse_django.words.payloads import error_in_one_line

BROKEN_PIPE = 128 + 13  # as a shell says it of SIGPIPE


class PulseCommand(BaseCommand):
    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()
        except BrokenPipeError:
            # Python writes what is left when it ends, and would complain again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BROKEN_PIPE)
        except Error as error:
            if not is_refused(error):
                raise
            raise CommandError(f"The database refused this: {inert(error_in_one_line(error))}") from error
        return output
