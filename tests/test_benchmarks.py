"""The benchmarks run and print what they promise. What they measure is nobody's business here."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RECOVERY_GOALS = {
    "kill to reap, max",
    "kills over 3 s",
    "death to requeue, reported and observed apart",
    "lease end to reap, p99",
    "lease end to reap, max",
    "child's death to settle, p95",
    "300 reaped",
    "claim p99, ratio",
    "claim p99, ratio, rounds taken together",
    "deadlocks beside claims",
    "deadlocks among watchdogs",
}
WAYS = ("untouched", "killed", "frozen", "cut off")
MAY_BE_ZERO_OR_NULL = {"drain_2", "drain_async_1", "idle_statements_per_s", "pgqueuer_1", "pickup_polling_ms_p99"}


def has_pgbench() -> bool:
    return bool(shutil.which("pgbench") or list(Path("/usr/lib/postgresql").glob("*/bin/pgbench")))


needs_pgbench = pytest.mark.skipif(
    not has_pgbench(), reason="the floor is measured with pgbench, and it is not installed"
)


reads_proc = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="it reads Linux's /proc")


def said_by(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def figures_of(script: str, *arguments: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(said_by(f"benchmarks/{script}", *arguments))
    return figures


@needs_pgbench
def test_the_core_benchmark_prints_its_figures() -> None:
    figures = figures_of("core.py", "--jobs", "300", "--rows", "100", "--rounds", "1")
    of_enqueue, of_claims = (
        "enqueue_many_per_s bulk_create_per_s",
        "claim_settle_per_s floor_per_s claim_settle_vs_floor",
    )
    assert all(figures[key] > 0 for key in f"{of_enqueue} {of_claims}".split())


@needs_pgbench
@reads_proc
def test_the_worker_benchmark_prints_its_figures() -> None:
    parts = "drain_1,floor,pickup,idle,heartbeat"  # the others are measured in the same way
    tiny = ["--jobs", "200", "--rounds", "1", "--pickups", "3", "--idle-seconds", "0.2"]
    figures = figures_of("worker.py", "--only", parts, *tiny)
    of_drain = "drain_1 floor_1 floor_2 statements_per_job wal_bytes_per_job"
    of_others = "pickup_ms_p50 pickup_ms_p99 idle_pss_mb heartbeat_1000_ms"
    assert all(figures[key] > 0 for key in f"{of_drain} {of_others}".split())
    may_be_zero_or_null = {"drain_2", "drain_async_1", "idle_statements_per_s", "pgqueuer_1", "pickup_polling_ms_p99"}
    assert set(figures) >= may_be_zero_or_null


@reads_proc
def test_the_table_of_a_small_host_has_a_row_for_each_process() -> None:
    assert len(said_by("-m", "benchmarks.small_host", "--jobs", "20", "--calm", "0").splitlines()) == 2 + 4 + 4


@reads_proc
def test_the_recovery_benchmark_holds_its_figures_against_their_goals(tmp_path: Path) -> None:
    out = tmp_path / "recovery.json"
    tiny = ["--quick", "--kills", "1", "--expired", "300", "--json", str(out)]
    said = said_by("benchmarks/recovery.py", *tiny)
    figures = json.loads(out.read_text())["figures"]
    assert {name for name, figure in figures.items() if figure["goal"] is not None} == RECOVERY_GOALS
    assert all(figures[name]["verdict"] in ("met", "NOT met") and name in said for name in RECOVERY_GOALS)


@reads_proc
def test_the_soak_keeps_its_samples_and_judges_them(tmp_path: Path) -> None:
    tiny = [
        "--minutes",
        "0.1",
        "--warm-up",
        "0.01",
        "--sample",
        "0.5",
        "--drain",
        "0.3",
        "--keep",
        "1",
        "--share",
        "0.1",
    ]
    said = said_by("benchmarks/soak.py", *tiny, "--out", str(tmp_path))
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["end"]["enqueued"] > 0
    assert results["end"]["unfinished"] == 0
    last = results["samples"][-1]
    assert set(last["memory"]) == {"keeper", "fork server", "child 1", "child 2"}
    assert last["bytes"]["pulse_django_job_hot"] > 0
    assert last["claims"]["p99_ms"] > 0
    assert last["waits"]["ended_per_s"] > 0
    for what in ("memory of keeper", "pulse_django_attempt", "pulse_job_lane", "claim statement, p99"):
        assert what in said
    picture = tmp_path / "soak.svg"
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("there is no matplotlib to draw it with")
    said_by("benchmarks/soak_plots.py", str(tmp_path / "results.json"), str(picture))
    assert "</svg>" in picture.read_text()


def test_the_benchmark_of_paused_tasks_prints_its_figures() -> None:
    said = said_by("benchmarks/paused_tasks.py", "--paused", "300", "--rounds", "1")
    assert "600 jobs are set aside" in said
    assert said.count("beside, in one queue") == 4


def test_the_benchmark_of_the_console_opens_every_page() -> None:
    pages = figures_of("console.py", "--jobs", "3000", "--waiting", "300", "--times", "2")["pages"]
    assert {"jobs", "dead letters by error", "dead letters of one error", "a dead job", "board"} <= pages.keys()
    assert all(page["median_ms"] > 0 and page["new_connection_ms"] > 0 for page in pages.values())
    assert {name: page["statements"] for name, page in pages.items() if page["statements"] > 12} == {}
    unchanged = {name: page["unchanged_statements"] for name, page in pages.items() if "unchanged_ms" in page}
    assert {"board", "a dead job", "a worker", "a task, hour"} <= unchanged.keys()
    assert set(unchanged.values()) == {3}, "the session, the user, and whether anything has changed"


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["--jobs", "1500", "--rounds", "1"], ["1 servers: ", "3 servers: ", "ratio: "]),
        (
            ["--jobs", "20000", "--task", "sleep", "--outage", "1", "--calm", "1"],
            [f"shard_1 {way} for " for way in WAYS],
        ),
    ],
)
def test_the_benchmark_of_shards_prints_its_figures(arguments: list[str], lines: list[str]) -> None:
    said = said_by("-m", "benchmarks.shards", "--share", "0", *arguments)
    assert all(line in said for line in lines)
    assert said.count("; 0 leases lost") == (8 if "--outage" in arguments else 0)


def test_the_benchmark_of_the_outlets_prints_its_figures() -> None:
    figures = figures_of("outlets.py", "--jobs", "200", "--rounds", "1")
    for way in ("none", "metrics_and_alerts", "all_one_trace_in_100", "all_every_trace"):
        assert figures[way]["jobs_per_s"] > 0
    assert {"slower_by", "slower_by_range"} <= set(figures["all_every_trace"])


@needs_pgbench
@reads_proc
def test_the_benchmark_of_the_peers_measures_ours_and_the_floor(tmp_path: Path) -> None:
    tiny = ["--quick", "--jobs", "200", "--pickups", "3", "--idle", "0.2", "--calm", "0.1", "--bulk", "100"]
    chosen = ["--only", "pulse,floor", "--measures", "drain,enqueue,cost,pickup,idle"]
    said_by("-m", "benchmarks.peers.run", *tiny, *chosen, "--out", str(tmp_path))
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["is_finished"]
    assert results["failures"] == []
    found = {(entry["peer"], entry["measure"], entry["variant"]) for entry in results["measurements"]}
    drains = {
        ("pulse", "drain", f"{mode}, {count}") for mode in ("sync", "async") for count in ("1 process", "2 processes")
    }
    assert found >= drains | {
        ("floor", "drain", "sync, 1 process"),
        ("floor", "enqueue", "many"),
        ("floor", "pickup", "1 process"),
        ("pulse", "enqueue", "one"),
        ("pulse", "enqueue", "many"),
    }
    assert {("pulse", what, "1 process") for what in ("cost", "pickup", "idle")} <= found
    assert all(entry["figures"].get("jobs_per_s", 1) > 0 for entry in results["measurements"])
    said = said_by("benchmarks/peers/report.py", str(tmp_path / "results.json"))
    assert "### Drain of a backlog" in said
    assert "Everything that was asked for was measured." in said
