"""Projects made from the README: one that all tests share, and empty ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testproject.new_project import NewProject
from tests.fresh.databases import own_database


@pytest.fixture(scope="package")
def shared_project(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[NewProject]:
    """A project made from the README alone, migrated. Tests share it: leave its settings alone."""
    with own_database() as database:
        project = NewProject(tmp_path_factory.mktemp("readme"), database)
        project.follow_the_readme()
        project.manage("migrate", "-v", "0")
        yield project


@pytest.fixture
def readme_project(shared_project: NewProject) -> NewProject:
    """The shared project with an empty queue."""
    shared_project.ask("DELETE FROM pulse_django_attempt")
    shared_project.ask("DELETE FROM pulse_django_job")
    return shared_project


@pytest.fixture
def new_project(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Callable[[], NewProject]]:
    """Make projects with an empty database, to which nothing has been added yet."""
    with ExitStack() as databases:
        folder: Callable[[], Path] = lambda: tmp_path_factory.mktemp("new")  # noqa: E731
        yield lambda: NewProject(folder(), databases.enter_context(own_database()))
