"""The benchmarks run and print what they promise. What they measure is nobody's business here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
KEYS = {"claim_settle_per_s", "floor_per_s", "claim_settle_vs_floor", "enqueue_many_per_s", "bulk_create_per_s"}
WORKER_KEYS = {
    "drain_1",
    "floor_1",
    "floor_2",
    "statements_per_job",
    "wal_bytes_per_job",
    "pickup_ms_p50",
    "pickup_ms_p99",
    "idle_pss_mb",
    "heartbeat_1000_ms",
}
RECOVERY_GOALS = {
    "kill to reap, max",
    "kills over 3 s",
    "lease end to reap, p99",
    "lease end to reap, max",
    "child's death to settle, p95",
    "300 reaped",
    "claim p99, ratio",
    "claim p99, ratio, rounds taken together",
    "deadlocks beside claims",
    "deadlocks among watchdogs",
}
MAY_BE_ZERO_OR_NULL = {"drain_2", "drain_async_1", "idle_statements_per_s", "pgqueuer_1", "pickup_polling_ms_p99"}


def has_pgbench() -> bool:
    return bool(shutil.which("pgbench") or list(Path("/usr/lib/postgresql").glob("*/bin/pgbench")))


needs_pgbench = pytest.mark.skipif(
    not has_pgbench(), reason="the floor is measured with pgbench, and it is not installed"
)


def figures_of(script: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@needs_pgbench
def test_the_core_benchmark_prints_its_figures() -> None:
    figures = figures_of("core.py", "--jobs", "300", "--rows", "100", "--rounds", "1")
    assert set(figures) >= KEYS
    assert all(figures[key] > 0 for key in KEYS)


@needs_pgbench
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="it reads Linux's /proc")
def test_the_worker_benchmark_prints_its_figures() -> None:
    parts = "drain_1,floor,pickup,idle,heartbeat"  # the others are measured in the same way
    tiny = ["--jobs", "200", "--rounds", "1", "--pickups", "3", "--idle-seconds", "0.2"]
    figures = figures_of("worker.py", "--only", parts, *tiny)
    assert set(figures) >= WORKER_KEYS | MAY_BE_ZERO_OR_NULL
    assert all(figures[key] > 0 for key in WORKER_KEYS)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="it reads Linux's /proc")
def test_the_recovery_benchmark_holds_its_figures_against_their_goals(tmp_path: Path) -> None:
    out = tmp_path / "recovery.json"
    tiny = ["--quick", "--kills", "1", "--expired", "300", "--json", str(out)]
    command = [sys.executable, str(ROOT / "benchmarks" / "recovery.py"), *tiny]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())["figures"]
    assert {name for name, figure in figures.items() if figure["goal"] is not None} == RECOVERY_GOALS
    assert all(figures[name]["verdict"] in ("met", "NOT met") and name in done.stdout for name in RECOVERY_GOALS)
