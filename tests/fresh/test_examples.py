"""Every example of the how-to pages runs in a project that was made from the README alone, with an app called shop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fresh.project import ROOT, Project

HOW_TO = ROOT / "docs/how-to"
PAGES = [page.stem for page in sorted(HOW_TO.glob("*.md")) if "```python" in page.read_text()]


@pytest.fixture(scope="module")
def went_wrong(readme_project: Project) -> Iterator[dict[str, str]]:
    """What went wrong on which page: all of them in one process. The app has the models that the pages speak of."""
    models = (ROOT / "testproject/shop/models.py").read_text()
    readme_project.write("shop/models.py", models)
    readme_project.manage("makemigrations", "shop", "-v", "0")
    readme_project.manage("migrate", "-v", "0")
    readme_project.write("runpages.py", (Path(__file__).parent / "pages.py").read_text())
    done = readme_project.shell(f"import runpages; runpages.main({str(HOW_TO)!r})")
    yield json.loads(done.stdout.splitlines()[-1])
    readme_project.ask("DELETE FROM pulse_django_attempt")
    readme_project.ask("DELETE FROM pulse_django_job")


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(went_wrong: dict[str, str], page: str) -> None:
    assert went_wrong[page] == ""
