"""The report of the peers' benchmark: what was measured stands in it, and so does what was not, with the reason."""

from __future__ import annotations

import importlib.util
import struct
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.faults import each_of

REPORT = Path(__file__).parent.parent.parent / "benchmarks/peers/report.py"


@pytest.fixture(scope="module")
def report() -> types.ModuleType:
    """Load it alone: its package would set up a benchmark's Django."""
    spec = importlib.util.spec_from_file_location("benchmark_report", REPORT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def peer(title: str, **more: Any) -> dict[str, Any]:
    return {"title": title, "settings": f"{title}'s settings", "version": "1.0", "reason": None, "without": {}} | more


def drained(name: str, number: int, rate: float) -> dict[str, Any]:
    figures = {"jobs_per_s": rate, "wal_bytes_per_job": 1_000.0}
    return {"peer": name, "measure": "drain", "variant": "sync, 1 process", "round": number, "figures": figures}


def results(**more: Any) -> dict[str, Any]:
    about = {
        "command": "python -m benchmarks.peers.run",
        "commit": "abc1234",
        "begun_at": "then",
        "ended_at": "later",
        "load_at_begin": 0.5,
        "niceness": 0,
        "load_at_end": 2.0,
        "postgresql": "18.4",
        "postgresql_settings": {"fsync": "on"},
        "redis": None,
        "statements_from": "the server's log",
        "python": "3.11.7",
        "machine": "Linux",
        "processors": 2,
        "memory_gib": 24,
        "rounds": 3,
        "measures": ["drain", "recovery"],
    }
    measured = [
        drained("slow", 1, 90.0),
        *(drained("fast", n, rate) for n, rate in enumerate((900.0, 1_100.0, 1_000.0))),
    ]
    return {
        "about": about,
        "peers": {"slow": peer("Slow"), "fast": peer("Fast")},
        "measurements": measured,
        "failures": [],
        "is_finished": True,
    } | more


def told(report: types.ModuleType, *runs: dict[str, Any]) -> str:
    text: str = report.markdown(report.combined(runs))
    return text


def test_a_figure_is_the_median_with_its_range_and_the_best_comes_first(report: types.ModuleType) -> None:
    text = told(report, results())
    assert "| Fast | 1,000 (900 to 1,100) |" in text
    assert "| Slow | 90 |" in text
    assert text.index("| Fast | 1,000") < text.index("| Slow | 90 |")


def test_what_was_not_measured_is_reported_with_the_reason(report: types.ModuleType) -> None:
    """Who was not installed, what failed, what a peer lacks where it was asked for, and a run that was broken off."""
    gone = peer("Gone", version=None, reason="ERROR: no matching distribution")
    lacking = peer("Slow", without={"drain, async": "it has none", "enqueue, many": "no bulk"})
    failures = [
        {"peer": "slow", "measure": "recovery", "variant": "defaults", "reason": "not within 330 s"},
        {"peer": "slow", "measure": "drain", "variant": "sync", "reason": "a | b <class 'X'> `c` [d](e)"},
    ]
    peers = {"slow": lacking, "fast": peer("Fast"), "gone": gone}
    unfinished = results(peers=peers, failures=failures, is_finished=False)
    del unfinished["about"]["ended_at"], unfinished["about"]["load_at_end"]
    text = told(report, unfinished)
    assert "was broken off" in text
    assert "| Gone | everything | ERROR: no matching distribution |" in text
    assert "| Gone | 1.0 |" not in text
    assert "| Slow | recovery, defaults | not within 330 s |" in text
    _, _, section = text.partition("### After SIGKILL")
    assert "| Slow | not within 330 s |" in section.partition("###")[0]
    assert "| Slow | drain, async | it has none |" in text
    assert "no bulk" not in text
    for line in (line for line in text.splitlines() if "class" in line):
        assert "<" not in line, "a stranger's error cannot break the table"
    [line] = [line for line in text.splitlines() if "class" in line and "drain, sync" in line]
    assert line.replace("\\|", "").count("|") == 4


def test_what_was_measured_again_replaces_what_was_said_before_and_nothing_else(report: types.ModuleType) -> None:
    recovered = {"peer": "fast", "measure": "recovery", "variant": "defaults", "round": 1, "figures": {"seconds": 31.0}}
    failed = {"peer": "slow", "measure": "drain", "variant": "sync", "reason": "too slow"}
    first = results(measurements=[*results()["measurements"], recovered], failures=[failed])
    again = results(measurements=[drained("slow", 1, 95.0)])
    again["about"] |= {"measures": ["drain"], "commit": "def5678"}
    text = told(report, first, again)
    assert "| Slow | 95 |" in text
    assert "| Fast | 31 |" in text, "what was not measured again stays"
    assert "too slow" not in text
    assert "1,000 (900" not in text
    assert "abc1234" in text
    assert "def5678" in text


NUMBERS = [
    (12_345.6, "12,346"),
    (99.96, "100.0"),
    (1.234, "1.23"),
    (0.0, "0"),
    (3.0, "3"),  # processes
    (0.0123, "0.012"),  # statements a job
]


@each_of(*NUMBERS)
def test_numbers_have_the_digits_that_count(report: types.ModuleType, *, value: Any, text: Any) -> None:
    assert report.number(value) == text


def test_the_report_replaces_what_stands_between_its_marks(report: types.ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_into(page, "new")
    assert page.read_text() == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    ours = (REPORT.parent.parent.parent / "docs/explanation/benchmarks.md").read_text()
    assert ours.count(report.BEGIN) == ours.count(report.END) == 1


APPS = Path(__file__).parent.parent.parent / "benchmarks/peers/apps"
CALLER = """
import os, threading, witness

def many():
    for _ in range(2_000):
        witness.call()

threads = [threading.Thread(target=many) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if child := os.fork():
    os.waitpid(child, 0)
else:  # begins at nothing, in a file of its own
    witness.call()
    os.kill(os.getpid(), 9)
"""


def test_calls_of_threads_and_of_a_killed_fork_are_counted(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(APPS), "BENCH_CALLS": str(tmp_path)}
    subprocess.run([sys.executable, "-c", CALLER], env=environment, check=True)
    records = sorted(struct.unpack("=qqq", path.read_bytes()) for path in tmp_path.iterdir())
    assert [calls for calls, _, _ in records] == [1, 8_000]
    assert all(0 < first <= last for _, first, last in records)
    assert records[1][2] <= records[0][1]
