"""Real processes on the test database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from django.db import connection

ROOT = Path(__file__).parent.parent.parent


def environment(**extra: str) -> dict[str, str]:
    """The environment of a process that works on the database of the running test."""
    settings = connection.settings_dict
    secret = f":{quote(settings['PASSWORD'])}" if settings["PASSWORD"] else ""
    login = f"{settings['USER']}{secret}@"
    if settings["HOST"].startswith("/"):
        where = f"{login}/{settings['NAME']}?host={quote(settings['HOST'], safe='')}&port={settings['PORT'] or 5432}"
    else:
        where = f"{login}{settings['HOST']}:{settings['PORT'] or 5432}/{settings['NAME']}"
    return os.environ | {
        "DATABASE_URL": f"postgres://{where}",
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "PYTHONPATH": str(ROOT),
        **extra,
    }


def start_script(script: str, **extra: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", f"import django\ndjango.setup()\n{script}"]
    return subprocess.Popen(
        command, env=environment(**extra), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_script(script: str, **extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import django\ndjango.setup()\n{script}"]
    return subprocess.run(command, env=environment(**extra), cwd=ROOT, capture_output=True, text=True, timeout=60)
