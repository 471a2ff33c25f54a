"""What the benchmarks' handlers leave behind: every call is counted, whoever makes it."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

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
