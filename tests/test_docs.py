"""What the documents say is so: links lead somewhere, examples run, the diagram is the transition table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pulse_django.models import Job
from pulse_django.states import MOVES, Status, Verb

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_internal_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    assert set(re.findall(r"\((\d{4}-[^)]+\.md)\)", index)) == {page.name for page in (ROOT / "docs/adr").glob("0*.md")}


@pytest.mark.usefixtures("pulse_db")
def test_the_readmes_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    [example] = [block for block in blocks if "Job.objects" in block]
    exec(example, {})
    assert Job.objects.get().status == Status.COMPLETED


def test_the_state_diagram_is_the_transition_table() -> None:
    page = (ROOT / "docs/explanation/leases.md").read_text()
    drawn = {
        (verb, origin, target)
        for origin, target, verbs in re.findall(r"^ +(\w+|\[\*\]) --> (\w+|\[\*\]): (.+)$", page, re.MULTILINE)
        for verb in re.findall(r"\w+", re.sub(r"\(.*?\)", "", verbs))
        if origin != "[*]"
    }
    # A job that is asked to cancel stays RUNNING: said in words below the diagram.
    said_in_words = {(Verb.REQUEST_CANCEL.value, "RUNNING", "RUNNING")}
    moves = {
        (verb.value, origin.value, target.value if target else "[*]")
        for verb, table in MOVES.items()
        for origin, targets in table.items()
        for target in targets
    }
    assert drawn | said_in_words == moves
