from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workflows.tasks import BROKEN, SAW


@pytest.fixture(autouse=True)
def _nothing_seen_or_broken() -> Iterator[None]:
    """Forget what the tasks wrote down, and which of them fail."""
    SAW.clear()
    BROKEN.clear()
    yield
    BROKEN.clear()
