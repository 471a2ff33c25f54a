"""Real processes on the test database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

from django.db import connections

from tests import citus
from tests.proxy import SwallowingProxy

ROOT = Path(__file__).parent.parent.parent


def environment(**extra: str) -> dict[str, str]:
    """The environment of a process that works on the database of the running test."""
    return os.environ | {
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "PYTHONPATH": str(ROOT),
        **extra,
    }


def database_url(
    *, host: str = "", port: int | str = "", name: str = "", alias: str = "default", **options: object
) -> str:
    """The database of the running test; ``host`` leads there by another way, as through a proxy."""
    if citus.is_on_citus():
        options["options"] = citus.options(str(options.get("options", "")))
    settings = connections[alias].settings_dict
    name = name or str(settings["NAME"])
    host, port = host or settings["HOST"], port or settings["PORT"] or 5432
    secret = f":{quote(settings['PASSWORD'])}" if settings["PASSWORD"] else ""
    login = f"{settings['USER']}{secret}@"
    if host.startswith("/"):
        where = f"{login}/{name}"
        options |= {"host": host, "port": port}
    else:
        where = f"{login}{host}:{port}/{name}"
    return f"postgres://{where}?{urlencode(options, quote_via=quote)}"


def through(proxy: SwallowingProxy) -> dict[str, str]:
    """The environment of a process that reaches the database through a proxy."""
    return {"DATABASE_URL": database_url(host=proxy.host, port=proxy.port)}


def start_script(script: str, **extra: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", f"import django\ndjango.setup()\n{script}"]
    return subprocess.Popen(
        command, env=environment(**extra), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_script(script: str, **extra: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import django\ndjango.setup()\n{script}"]
    return subprocess.run(command, env=environment(**extra), cwd=ROOT, capture_output=True, text=True, timeout=60)
