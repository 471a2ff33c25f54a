"""A queue of an earlier time: its schema, its rows, its workers and those who enqueue, each with the code of then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from testproject.harness.processes import StartedProcess, StartedProcesses, StartedWorker, worker_command
from tests.crash.processes import ROOT, database_url
from tests.crash.workers import wait_until
from tests.upgrades.history import Earlier, add_a_migration, export, migrations_in

FINISHED, WAITING = 100_000, 2_000
LONGEST_COMMAND = 60
MOST_TRIES = 5  # of a migration that gave up a lock
SHORT = "shop.echo"
LONG = "testproject.shop.tasks.sleep"
# What all of these workers know. Leases long enough that none runs out on a busy machine, beats that are many.
PULSE = {"LEASE_TTL": 10, "HEARTBEAT_INTERVAL": 0.5, "WATCHDOG_INTERVAL": 0.5, "POLL_INTERVAL": 0.1}

# One in fifty is a dead letter, of yesterday: many of the last hour would raise an alert. Its other attempts would have
# been in the ledger too; one says enough.
_FINISHED = """
WITH job AS (
    INSERT INTO pulse_django_job (task, args, status, attempts, max_attempts, last_error, started_at, finished_at)
    SELECT
        %(task)s, '[1]', CASE WHEN n %% 50 = 0 THEN 'DEAD_LETTERED' ELSE 'COMPLETED' END, 1, 1,
        CASE WHEN n %% 50 = 0 THEN 'ValueError: no' ELSE '' END, clock_timestamp() - interval '1 day',
        clock_timestamp() - interval '1 day'
    FROM generate_series(1, %(finished)s) AS n
    RETURNING id, status, started_at, finished_at
)
INSERT INTO pulse_django_attempt (job_id, number, token, worker, started_at, finished_at, outcome)
SELECT
    id, 1, nextval('pulse_django_token'), 'before:0:1', started_at, finished_at,
    CASE status WHEN 'COMPLETED' THEN 'SUCCEEDED' ELSE 'FAILED' END
FROM job
"""
_WAITING = """
INSERT INTO pulse_django_job (task, args, priority) SELECT %(task)s, '[1]', -10 FROM generate_series(1, %(waiting)s)
"""

SCHEDULE = "every second"
_SCHEDULE = f"""
from datetime import timedelta
from pulse_django.models import Schedule
from pulse_django.words.timings import Every
from testproject.shop.tasks import echo
timing = Every(timedelta(seconds=1), missed="all", overlap="allow")
Schedule.objects.create(name="{SCHEDULE}", task=echo, args=["tick"], timing=timing)
"""


class Scene:
    """A database in an earlier state, and processes of any age on it."""

    def __init__(self, url: str, folder: Path, earlier: Earlier | None) -> None:
        """Without an earlier state the present one is it, and a migration is added for the upgrade."""
        self.url = url
        self._earlier = earlier
        self.old, self.new = (ROOT, folder / "new") if earlier is None else (folder / "old", ROOT)
        self._processes = StartedProcesses(folder)
        self._enqueuer: StartedProcess | None = None

    # The database

    def set_up(self) -> None:
        if self._earlier is None:
            add_a_migration(self.new)
        else:
            assert self._earlier.code is not None
            export(self._earlier.code, self.old)
        self.manage(self.old, "migrate")
        if self._earlier is not None and self._earlier.knows != self._earlier.state:
            self.manage(self.new, "migrate", "pulse_django", self._earlier.state)
        assert self.state() == self.earlier_state

    @property
    def earlier_state(self) -> str:
        return migrations_in(ROOT)[-1] if self._earlier is None else self._earlier.state

    def fill(self, finished: int = FINISHED, waiting: int = WAITING) -> None:
        """Fill it as if it had been at work for long."""
        values = {"task": SHORT, "finished": finished, "waiting": waiting}
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(_FINISHED, values)
            connection.execute(_WAITING, values)
            connection.execute("VACUUM ANALYZE pulse_django_job, pulse_django_attempt")

    def ask(self, statement: str, *params: Any) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, params)
            return cursor.fetchall() if cursor.description else []

    def state(self) -> str:
        [(state,)] = self.ask("SELECT max(name) FROM django_migrations WHERE app = 'pulse_django'")
        return str(state)

    def is_true(self, condition: str, *params: Any) -> bool:
        [(value,)] = self.ask(f"SELECT {condition}", *params)
        return bool(value)

    @property
    def has_schedules(self) -> bool:
        """Whether the older code fires schedules."""
        return (self.old / "pulse_django/protocol/tick.py").exists()

    def start_schedule(self) -> None:
        self.manage(self.old, "shell", "-c", _SCHEDULE)

    def pause_schedule(self) -> None:
        self.manage(self.new, "pulse_schedules", "pause", SCHEDULE, "--reason", "the upgrade is over")

    # Processes

    def manage(self, tree: Path, *arguments: str, **env: str) -> str:
        """Run a management command of a tree's, and return what it said."""
        done = self.try_to_manage(tree, *arguments, **env)
        assert done.returncode == 0, f"{arguments} failed:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def migrate(self) -> str:
        """Run the migrations as the documentation says, and return their output.

        A migration that does not get its lock soon gives up, and is started again: vacuum of a busy table may hold one.
        """
        said = ""
        for _ in range(MOST_TRIES):
            done = self.try_to_manage(self.new, "migrate")
            said += done.stdout
            if done.returncode == 0:
                return said
            assert "due to lock timeout" in done.stderr, f"migrate failed:\n{said}\n{done.stderr}"
        raise AssertionError(f"migrate got no lock in {MOST_TRIES} tries:\n{said}")

    def try_to_manage(self, tree: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "manage.py", *arguments]
        environment = self._environment(tree) | env
        return subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LONGEST_COMMAND
        )

    def start_worker(self, tree: Path, name: str) -> StartedWorker:
        return self._processes.start_worker(name, worker_command("--name", name), self._environment(tree), cwd=tree)

    def start_enqueuer(self) -> None:
        command = [sys.executable, str(ROOT / "tests/upgrades/enqueuer.py")]
        self._enqueuer = self._processes.start("enqueuer", command, self._environment(self.old), cwd=self.old)
        wait_until(lambda: len(self.enqueued()) > 10 or bool(self.refusals()), lambda: self._acknowledgements)
        assert self._acknowledgements.startswith(f"# {self.old}\n"), "it runs other code"

    def stop_enqueuer(self) -> None:
        assert self._enqueuer is not None
        assert self._enqueuer.exit_code is None, self._enqueuer.log_end
        self._enqueuer.signal(signal.SIGTERM)
        self._enqueuer.wait(LONGEST_COMMAND)

    def enqueued(self) -> dict[int, tuple[int, float]]:
        """Return what was acknowledged: the number and the seconds it took, by job."""
        found = {}
        for line in self._lines():
            if line[0].isdigit():
                job, number, seconds = line.split()
                found[int(job)] = int(number), float(seconds)
        return found

    def refusals(self) -> list[str]:
        """Return what went wrong when enqueueing: lines that are neither a job nor about the code."""
        return [line for line in self._lines() if line[0] not in "#0123456789"]

    def end(self) -> None:
        self._processes.kill()

    def _lines(self) -> list[str]:
        """The last line may still be on its way."""
        return [line for line in self._acknowledgements.split("\n")[:-1] if line]

    @property
    def _acknowledgements(self) -> str:
        return "" if self._enqueuer is None else self._enqueuer.log

    def _environment(self, tree: Path) -> dict[str, str]:
        ours = {
            "DATABASE_URL": self.url,
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            "PYTHONPATH": str(tree),
            "PULSE": json.dumps(PULSE),
            "DEBUG": "0",
        }
        return os.environ | ours


@contextmanager
def scratch_database() -> Iterator[str]:
    """Make a database beside those of the tests; yield how to reach it."""
    address = urlsplit(database_url())
    name = f"upgrade_{os.getpid()}"
    with psycopg.connect(address._replace(path="/postgres").geturl(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield address._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
