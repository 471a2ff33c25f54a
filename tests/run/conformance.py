"""Fetch Django's source distribution, run its tests of the Tasks framework on PulseBackend, and compare.

    python -m tests.run.conformance

Passes when exactly the tests named in EXPECTED fail, each for the reason given there. Needs Django 6.0 or newer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import django

ROOT = Path(__file__).parent.parent.parent

SYNC_IN_ASYNC = "calls the database from an async test without a thread, which Django refuses for any database backend"
DUMMY_CLASS = "asserts that the backend is an instance of DummyBackend"
DUMMY_MEMORY = "changes a result in DummyBackend's memory and expects to read the change back"

EXPECTED = {
    "TasksOnPulse.test_enqueue_task_async": SYNC_IN_ASYNC,
    "TasksOnPulse.test_get_missing_result": SYNC_IN_ASYNC,
    "TasksOnPulse.test_refresh_result": SYNC_IN_ASYNC,
    "TasksOnPulse.test_get_backend": DUMMY_CLASS,
    "TasksOnPulse.test_using_correct_backend": DUMMY_CLASS,
    "BackendOnPulse.test_enqueue_task_async": SYNC_IN_ASYNC,
    "BackendOnPulse.test_get_missing_result": SYNC_IN_ASYNC,
    "BackendOnPulse.test_refresh_result_async": SYNC_IN_ASYNC,
    "BackendOnPulse.test_using_correct_backend": DUMMY_CLASS,
    "BackendOnPulse.test_refresh_result": DUMMY_MEMORY,
}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        tests = fetch(Path(folder))
        done = run(tests)
    failures = re.findall(r"^(?:FAILED|ERROR|SUBFAILED).*suite\.py::(\w+)::(\w+)", done.stdout, re.MULTILINE)
    failed = {".".join(names) for names in failures}
    if failed != EXPECTED.keys():
        print(done.stdout[-10_000:] + done.stderr[-3_000:])
    for name in sorted(failed - EXPECTED.keys()):
        print(f"UNEXPECTED FAILURE  {name}")
    for name in sorted(EXPECTED.keys() - failed):
        print(f"EXPECTED TO FAIL AND PASSED  {name}: strike it from the list")
    ran = re.search(r"(\d+) passed", done.stdout)
    as_expected = failed == EXPECTED.keys()
    print(f"{ran.group(1) if ran else 0} of Django's tests pass, {len(failed)} fail, as expected: {as_expected}")
    return 0 if ran and as_expected else 1


def fetch(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--no-binary", "django", f"django=={django.__version__}", "-d", str(folder)], check=True)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz") / "tests"


def run(tests: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rfE",
        "--tb=line",
        "-p",
        "no:cacheprovider",
        "tests/run/conformance_suite.py",
    ]
    environment = os.environ | {"DJANGO_TESTS": str(tests)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
