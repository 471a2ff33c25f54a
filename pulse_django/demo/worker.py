"""``python -m pulse_django.demo.worker``: the real ``pulse_worker`` of this project, at the pace of the demo.

The first argument is what to change in PULSE, as JSON; the others are those of ``pulse_worker``.
"""

from __future__ import annotations

import json
import sys

import django
from django.conf import settings
from django.core.management import call_command


def main(changes: str, *arguments: str) -> None:
    # Before setup(), so that nothing has read the project's own values yet.
    settings.PULSE = {**getattr(settings, "PULSE", {}), **json.loads(changes)}
    django.setup()
    call_command("pulse_worker", *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
