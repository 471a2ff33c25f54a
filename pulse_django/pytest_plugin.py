"""pytest fixtures for projects that test their tasks; installed with the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


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
