"""A PostgreSQL server of a test's own, which it may crash."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pulse_django.embedded import starter
from pulse_django.embedded.server import Server
from testproject import postgres
from testproject.postgres import this_server
from tests.crash.processes import ROOT


class Scratch:
    """In a folder that is gone afterwards."""

    def __init__(self) -> None:
        self.url = postgres.ensure_running()
        self.server: Server = this_server()
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(migrate, cwd=ROOT, env=os.environ | {"DATABASE_URL": self.url}, check=True, timeout=60)

    def crash(self) -> None:
        """Stop it as a power cut would."""
        starter.pg_ctl(self.server, "-m", "immediate", "stop")

    def start(self) -> None:
        postgres.ensure_running()

    def ask(self, statement: str, *params: Any) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, params)
            return cursor.fetchall() if cursor.description else []

    def enqueue(self, task: str, count: int, *args: Any, priority: int = 0, queue: str = "default") -> list[int]:
        rows = self.ask(
            "INSERT INTO pulse_django_job (task, args, kwargs, priority, queue)"
            " SELECT %s, to_jsonb(%s::float8[]), '{}', %s, %s FROM generate_series(1, %s) RETURNING id",
            *(task, list(args), priority, queue, count),
        )
        return [pk for (pk,) in rows]


@contextmanager
def scratch_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scratch]:
    """Start one. The programs of the usual server are used again; they are large."""
    usual = this_server()
    programs = usual.root / f"programs-{usual.version}"
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # a short path: sockets have little room
        home = Path(folder)
        home.chmod(0o755)  # a server that root starts runs as somebody else
        if programs.exists():
            (home / programs.name).symlink_to(programs)
        monkeypatch.setenv("PULSE_PG_HOME", folder)
        try:
            yield Scratch()
        finally:
            postgres.stop()
