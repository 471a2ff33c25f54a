"""The model of the protocol: the design holds, rules that are removed are missed, and no switch goes unmentioned."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CHECK = ROOT / "model/check.py"
MODEL = "".join((ROOT / f"model/{name}.pml").read_text() for name in ("lease", "needs"))
PAGE = (ROOT / "docs/explanation/model.md").read_text()
SIZES = {"THREADS", "MAX_ATTEMPTS"}
SWITCHES = set(re.findall(r"(?:\bOFF\(|defined\(|#ifn?def )([A-Z_]+)", MODEL)) - SIZES
INVARIANTS = set(re.findall(r"(\w+) = true", MODEL)) & set(re.findall(r"hold\((\w+)", MODEL)) | {"finishes"}


@pytest.fixture(scope="module")
def check() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("model_check", CHECK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def spin() -> None:
    if shutil.which("spin") is None:
        if os.environ.get("PULSE_NEEDS_SPIN") == "1":
            pytest.fail("spin is missing")
        pytest.skip("spin is missing: apt-get install spin")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHECK), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment}
    )


@pytest.mark.usefixtures("spin")
def test_the_design_holds_and_is_missed_without_its_rules() -> None:
    done = run("design", "STATUS_ONLY_FENCE", "LIVE+NO_WATCHDOG+THREADS=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as expected") == 4  # three lines and the sum


@pytest.mark.usefixtures("spin")
def test_a_trail_tells_step_by_step_what_goes_wrong() -> None:
    done = run("--trail", "REAP_READS_THEN_WRITES")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = done.stdout.splitlines()
    assert steps[0].endswith("claims the job")
    assert "Watchdog: reaps attempt 1" in steps
    assert steps[-1] == "REAP_READS_THEN_WRITES: terminal_once"


@pytest.mark.usefixtures("spin")
def test_another_invariant_than_the_expected_one_is_wrong(
    check: types.ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(check.VARIANTS, "lie", check.variant("DEAD_WITHOUT_REASON", "one_success"))
    assert check.main(["lie"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_without_spin_one_line_says_what_to_install(tmp_path: Path) -> None:
    done = run("design", PATH=str(tmp_path))
    assert done.returncode == 2
    assert re.fullmatch(r"spin is missing\..*apt-get install spin.*\n", done.stderr)


def test_every_switch_of_the_model_is_checked_and_explained(check: types.ModuleType) -> None:
    assert len(SWITCHES) > 25
    used = {switch.partition("=")[0] for one in check.VARIANTS.values() for switch in one.switches}
    assert used - SIZES == SWITCHES
    assert {switch for switch in SWITCHES if f"`{switch}`" not in PAGE} == set()


def test_every_invariant_breaks_in_some_variant_and_is_explained(check: types.ModuleType) -> None:
    assert len(INVARIANTS) > 15
    assert {one.expected for one in check.VARIANTS.values()} - {check.HOLDS} == INVARIANTS
    assert {name for name in INVARIANTS if f"`{name}`" not in PAGE} == set()
