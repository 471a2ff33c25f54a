"""PgQueuer, draining as many no-op jobs with its own worker in the same database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.scratch import database_url, execute, settle_down

SCRIPT = Path(__file__).with_name("pgqueuer_drain.py")
BATCHES, DRIVERS = (50, 100, 200, 500, 1000), ("connection", "pool")
MOST_TO_TUNE = 10_000  # jobs
LONGEST_DRAIN = 1_800.0
# Its log has a row for each pick and each end. Both instants are those at which their transactions began.
_EVIDENCE = """
SELECT
    (SELECT count(*) FROM pgqueuer), count(*) FILTER (WHERE status = 'successful'),
    extract(epoch FROM max(created) FILTER (WHERE status = 'successful')
        - min(created) FILTER (WHERE status = 'picked'))::float8
FROM pgqueuer_log
"""


class PgQueuer:
    def __init__(self, python: str, batch: int | None) -> None:
        self._python, self._chosen, self.batch, self.driver = python, batch, batch or 0, DRIVERS[0]
        self.version = self._run("version").strip()

    def tune(self, jobs: int) -> dict[tuple[str, int], float]:
        """Find how it is fastest: its way to the database, and its batch size unless that was chosen."""
        batches = (self._chosen,) if self._chosen else BATCHES
        rates = {
            (driver, batch): self._drain(min(jobs, MOST_TO_TUNE), driver, batch, 1)
            for batch in batches
            for driver in DRIVERS
        }
        self.driver, self.batch = max(rates, key=rates.__getitem__)
        return rates

    def drain(self, jobs: int, *, processes: int) -> float:
        """Return jobs a second, from its first pick to its last completion."""
        return self._drain(jobs, self.driver, self.batch, processes)

    def _drain(self, jobs: int, driver: str, batch: int, processes: int) -> float:
        self._run("fill", database_url("postgresql"), str(jobs))
        settle_down("pgqueuer", "pgqueuer_log")
        command = [self._python, str(SCRIPT), "drain", database_url("postgresql"), str(batch), driver]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        workers = [subprocess.Popen(command, **pipes) for _ in range(processes)]  # type: ignore[call-overload]
        for worker in workers:
            if not worker.stdout.readline():
                raise SystemExit(f"PgQueuer could not begin: {worker.stderr.read()}")
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
        for worker in workers:
            _, said = worker.communicate(timeout=LONGEST_DRAIN)
            if worker.returncode:
                raise SystemExit(f"PgQueuer ended with {worker.returncode}: {said}")
        [[left, done, seconds]] = execute(_EVIDENCE)
        if left or done != jobs:
            raise SystemExit(f"PgQueuer completed {done} of {jobs} jobs, {left} are left")
        return float(jobs / seconds)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([self._python, str(SCRIPT), *arguments], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"PgQueuer, {arguments[0]}: {done.stderr}")
        return done.stdout


def find_pgqueuer(python: str | None, batch: int | None) -> PgQueuer | None:
    """Return the rival if that Python has it; without one, if ours has it."""
    chosen = python or sys.executable
    has_it = subprocess.run([chosen, "-c", "import pgqueuer"], capture_output=True).returncode == 0
    if has_it:
        return PgQueuer(chosen, batch)
    if python:
        raise SystemExit(f"{python} has no PgQueuer")
    return None
