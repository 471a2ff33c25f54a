"""One look at everything that may grow in a soak: memory, relations, dead rows, backlog, and how long claims take."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import MIB
from benchmarks.scratch import execute
from benchmarks.waits import percentile
from testproject.harness.processes import StartedProcess

Sample = dict[str, Any]
ROLES = ("keeper", "fork server")
LARGEST_LOG = 8 * MIB * MIB  # bytes; a line for each job would fill the disk

_SIZES = """
SELECT class.relname, CASE class.relkind WHEN 'r' THEN pg_table_size(class.oid) ELSE pg_relation_size(class.oid) END
FROM pg_class AS class
LEFT JOIN pg_index AS index ON index.indexrelid = class.oid
WHERE COALESCE(index.indrelid, class.oid) IN ('pulse_django_job_hot'::regclass, 'pulse_django_attempt'::regclass)
UNION ALL
SELECT 'history', sum(pg_total_relation_size(relid)) FROM pg_partition_tree('pulse_django_job_over'::regclass)
"""
_ROWS = """
SELECT relname, n_live_tup, n_dead_tup, autovacuum_count FROM pg_stat_user_tables
WHERE relid IN ('pulse_django_job_hot'::regclass, 'pulse_django_attempt'::regclass)
"""
_COUNTS = """
SELECT
    (SELECT count(*) FROM pulse_django_job WHERE status IN ('PENDING', 'RETRYING')),
    (SELECT count(*) FROM pulse_django_job WHERE status = 'RUNNING'),
    (SELECT last_value FROM pulse_django_token),
    (SELECT last_value FROM pulse_django_job_id_seq),
    pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8
"""
# Of the runs that ended since the last look: from due to claimed.
_WAITS = """
SELECT
    max(finished_at), count(*), count(*) FILTER (WHERE outcome <> 'SUCCEEDED'),
    percentile_disc(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY EXTRACT(epoch FROM started_at - due_at)::float8)
FROM pulse_django_ledger WHERE finished_at > %s
"""


class Sampler:
    """Looks now and then; what was counted is told as what came since the look before."""

    def __init__(self, worker: StartedProcess, claims: Path, log: Path) -> None:
        self._worker, self._claims, self._log = worker, claims, log
        self._began = self._looked_at = time.monotonic()
        self._read = 0
        [[self._looked_until]] = execute("SELECT clock_timestamp()")
        self._counted = self._counts()
        self.errors: list[str] = []

    def look(self) -> Sample:
        now = time.monotonic()
        took, self._looked_at = now - self._looked_at, now
        before, self._counted = self._counted, self._counts()
        backlog, running, claimed, enqueued, wal = self._counted
        self._note_errors()
        return {
            "at": round(now - self._began, 2),
            "memory": memory_of(self._worker),
            "bytes": {name: int(size) for name, size in execute(_SIZES)},
            "rows": {
                name: {"live": live, "dead": dead, "vacuums": vacuums} for name, live, dead, vacuums in execute(_ROWS)
            },
            "backlog": backlog,
            "running": running,
            "claimed_per_s": round((claimed - before[2]) / took, 1),
            "enqueued_per_s": round((enqueued - before[3]) / took, 1),
            "wal_bytes_per_s": round((wal - before[4]) / took),
            "claims": self._new_claims(),
            "waits": self._new_waits(took),
        }

    def _counts(self) -> list[float]:
        return list(execute(_COUNTS)[0])

    def _new_claims(self) -> dict[str, float] | None:
        """Read what workers have noted since; the last line may still be on its way."""
        if not self._claims.exists():
            return None
        with self._claims.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self._read += len(complete)
        took = sorted(float(line.split()[1]) * 1000 for line in complete.splitlines())
        if not took:
            return None
        return {
            "count": len(took),
            "p50_ms": round(percentile(took, 0.5), 3),
            "p99_ms": round(percentile(took, 0.99), 3),
            "max_ms": round(took[-1], 3),
        }

    def _new_waits(self, took: float) -> dict[str, float] | None:
        [[last, count, unlucky, shares]] = execute(_WAITS, [self._looked_until])
        if not count:
            return None
        self._looked_until = last
        return {
            "ended_per_s": round(count / took, 1),
            "failed_per_s": round(unlucky / took, 2),
            "p50_ms": round(shares[0] * 1000, 2),
            "p99_ms": round(shares[1] * 1000, 2),
        }

    def _note_errors(self) -> None:
        """Keep what is wrong of the log, and let go of the rest before it fills the disk."""
        if self._log.stat().st_size > LARGEST_LOG:
            self.errors += errors_in(self._log)
            os.truncate(self._log, 0)  # its writers append


def errors_in(log: Path) -> list[str]:
    with log.open(errors="replace") as lines:
        return [line.rstrip() for line in lines if " ERROR " in line or " CRITICAL " in line]


def memory_of(worker: StartedProcess) -> dict[str, dict[str, float]]:
    """Return the MiB of each process of a worker, by its role; a child's number is its place among them."""
    found = {}
    for place, pid in enumerate(worker.family()):
        name = ROLES[place] if place < len(ROLES) else f"child {place - len(ROLES) + 1}"
        try:
            found[name] = {"pid": pid} | mib_of(pid)
        except OSError:
            continue  # it has just been replaced
    return found


def mib_of(pid: int) -> dict[str, float]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines[1:])}
    return {name.lower(): round(sizes[name] / MIB, 3) for name in ("Rss", "Pss")}
