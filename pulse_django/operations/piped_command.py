"""A command whose reader may end first, as in ``pulse_status | head``."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand

BROKEN_PIPE = 128 + 13  # as a shell says it of SIGPIPE


class PipedCommand(BaseCommand):
    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()
        except BrokenPipeError:
            # Python writes what is left when it ends, and would complain again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(BROKEN_PIPE)
        return output
