"""Every example of the how-to pages runs in a project that was made from the README alone, with an app called shop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testproject.new_project import ROOT, NewProject

HOW_TO = ROOT / "docs/how-to"
PAGES = [page.stem for page in sorted(HOW_TO.glob("*.md")) if "```python" in page.read_text()]


@pytest.fixture(scope="module")
def went_wrong(shared_project: NewProject) -> dict[str, str]:
    """What went wrong on which page: all of them in one process. The app has the models that the pages speak of."""
    models = (ROOT / "testproject/shop/models.py").read_text()
    shared_project.write("shop/models.py", models)
    shared_project.manage("makemigrations", "shop", "-v", "0")
    shared_project.manage("migrate", "-v", "0")
    shared_project.write("runpages.py", (Path(__file__).parent / "pages.py").read_text())
    done = shared_project.shell(f"import runpages; runpages.main({str(HOW_TO)!r})")
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(went_wrong: dict[str, str], page: str) -> None:
    assert went_wrong[page] == ""
