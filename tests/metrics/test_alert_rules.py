"""The alert rules of the documentation, as Prometheus judges them: each fires in its incident, and only then."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults import all_faults
from tests.metrics.alert_cases import CASES, WELL, Case

RULES = Path(__file__).parent.parent.parent / "docs/monitoring/prometheus-rules.yml"
BY_NAME: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("PULSE_NEEDS_PROMTOOL") == "1":
            pytest.fail("promtool is missing")
        pytest.skip("promtool is missing: apt-get install prometheus")
    return found


def expected(case: Case) -> list[dict[str, Any]]:
    if case.fires is None:
        return []
    words = {"summary": case.summary, "description": case.description}
    annotations = BY_NAME[case.alert]["annotations"] | words
    return [{"exp_labels": case.fires, "exp_annotations": annotations}]


def group(name: str, series: dict[str, str], tests: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": tests,
    }


def judge(promtool: str, folder: Path, groups: list[dict[str, Any]]) -> str:
    """Return what promtool says of all groups, each with its name. Empty: all is as expected."""
    asked = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": groups}
    (folder / "test.yml").write_text(yaml.safe_dump(asked))
    done = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_a_rule_fires_in_its_incident_and_in_nothing_that_is_like_it(promtool: str, tmp_path: Path) -> None:
    groups = []
    for case in CASES:
        test = {"alertname": case.alert, "eval_time": f"{case.at}m", "exp_alerts": expected(case)}
        groups.append(group(f"{case.alert}: {case.when}", case.series, [test]))
    told = judge(promtool, tmp_path, groups)
    assert not told, told


def test_all_rules_are_silent_when_all_is_well(promtool: str, tmp_path: Path) -> None:
    tests = [
        {"alertname": name, "eval_time": f"{minute}m", "exp_alerts": []} for minute in (1, 30, 60) for name in BY_NAME
    ]
    told = judge(promtool, tmp_path, [group("all is well", WELL, tests)])
    assert not told, told


def test_prometheus_takes_the_rules(promtool: str) -> None:
    subprocess.run([promtool, "check", "rules", str(RULES)], check=True, capture_output=True, timeout=60)


def test_every_rule_has_an_incident_and_something_like_it() -> None:
    assert {case.alert for case in CASES if case.fires is not None} == set(BY_NAME)
    assert {case.alert for case in CASES if case.fires is None} == set(BY_NAME)


def test_a_case_has_the_series_that_its_rule_asks_for() -> None:
    """Without them a rule is silent whatever happens."""
    with all_faults() as about:
        for case in CASES:
            with about(f"{case.alert}: {case.when}"):
                asked = set(re.findall(r"pulse_\w+", BY_NAME[case.alert]["expr"])) - {"pulse_queue_paused"}
                assert {name.partition("{")[0] for name in case.series} >= asked
