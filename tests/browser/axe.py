"""axe-core in the browser: what it finds on a page that keeps people from using it.

``npm ci`` in ``tests/browser`` installs it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

SCRIPT = Path(__file__).parent / "node_modules/axe-core/axe.min.js"
GRAVE = ("critical", "serious")
RUN = "() => axe.run(document, {resultTypes: ['violations']})"


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    rule: str
    selector: str
    html: str

    def __str__(self) -> str:
        return f"{self.rule} {self.selector} {self.html[:160]}"


def axe_script() -> str:
    """Return the script, or skip: a run that must check has ``PULSE_NEEDS_AXE``."""
    if SCRIPT.exists():
        return SCRIPT.read_text()
    if os.environ.get("PULSE_NEEDS_AXE") == "1":
        pytest.fail("axe-core is missing: npm ci in tests/browser")
    pytest.skip("axe-core is missing: npm ci in tests/browser")


def violations(page: Page, script: str) -> list[Violation]:
    """Return what is grave. The debugging protocol brings the script in: the page's own policy stays strict."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(script)
    found: dict[str, Any] = page.evaluate(RUN)
    assert found["testEngine"]["name"] == "axe-core"
    return sorted(
        Violation(rule["id"], " ".join(map(str, node["target"])), node["html"])
        for rule in found["violations"]
        if rule["impact"] in GRAVE
        for node in rule["nodes"]
    )
