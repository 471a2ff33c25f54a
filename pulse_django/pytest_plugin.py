"""These fixtures are available as soon as the package is installed. They also allow the databases with jobs.

A ``django_db`` mark with ``databases`` has precedence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

FIXTURES = {"pulse_drain", "pulse_run", "assert_enqueued", "assert_idempotent"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Allow the databases of jobs in a test that uses these fixtures, unless its mark lists the databases."""
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
    """``pulse_drain()`` runs all due jobs. The fixture includes the test database."""
    from .testing import drain

    return drain


@pytest.fixture
def pulse_run(db: None) -> Callable[..., Any]:
    """``pulse_run(job)`` runs one job."""
    from .testing import run_job

    return run_job


@pytest.fixture
def assert_enqueued(db: None) -> Callable[..., Any]:
    """``assert_enqueued(task, *args, **kwargs)`` returns the waiting job, or fails."""
    from .testing import assert_enqueued

    return assert_enqueued


@pytest.fixture
def assert_idempotent(db: None) -> Callable[..., Any]:
    """``assert_idempotent(task, *args, **kwargs)`` fails if a second run changes the database."""
    from .testing import assert_idempotent

    return assert_idempotent
