"""The benchmark runs and prints what it promises. What it measures is nobody's business here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KEYS = {"claim_settle_per_s", "floor_per_s", "claim_settle_vs_floor", "enqueue_many_per_s", "bulk_create_per_s"}


def has_pgbench() -> bool:
    return bool(shutil.which("pgbench") or list(Path("/usr/lib/postgresql").glob("*/bin/pgbench")))


@pytest.mark.skipif(not has_pgbench(), reason="the floor is measured with pgbench, and it is not installed")
def test_the_core_benchmark_prints_its_figures() -> None:
    arguments = ["--jobs", "300", "--rows", "100", "--rounds", "1"]
    command = [sys.executable, str(ROOT / "benchmarks" / "core.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert set(figures) >= KEYS
    assert all(figures[key] > 0 for key in KEYS)
