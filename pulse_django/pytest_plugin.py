"""They are there as soon as the package is installed, and bring the databases of the project's jobs.

A ``django_db`` mark that names ``databases`` counts more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

FIXTURES = {"pulse_drain", "pulse_run", "assert_enqueued", "assert_idempotent"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let a test that uses a fixture of ours use the databases of the jobs, unless its mark says which it may use."""
    if FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        return
    from django.db import DEFAULT_DB_ALIAS

    from .shards.placement import shards

    mark = item.get_closest_marker("django_db") or pytest.mark.django_db.mark
    databases = {DEFAULT_DB_ALIAS, *shards()}
    if databases != {DEFAULT_DB_ALIAS} and "databases" not in mark.kwargs:
        named = {**mark.kwargs, "databases": sorted(databases)}
        item.add_marker(pytest.mark.django_db(*mark.args, **named), append=False)


@pytest.fixture
def pulse_drain(db: None) -> Callable[..., Any]:
    """``pulse_drain()`` runs everything that is due; the test's database is at hand."""
    from .testing import drain

    return drain


@pytest.fixture
def pulse_run(db: None) -> Callable[..., Any]:
    """``pulse_run(job)`` runs one job."""
    from .testing import run_job

    return run_job


@pytest.fixture
def assert_enqueued(db: None) -> Callable[..., Any]:
    """``assert_enqueued(task, *args, **kwargs)`` returns the job that waits, or fails."""
    from .testing import assert_enqueued

    return assert_enqueued


@pytest.fixture
def assert_idempotent(db: None) -> Callable[..., Any]:
    """``assert_idempotent(task, *args, **kwargs)`` fails when a repeated run leaves another database."""
    from .testing import assert_idempotent

    return assert_idempotent
