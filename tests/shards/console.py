"""What the tests of the admin over several shards share."""

from __future__ import annotations

from typing import Any

import pytest

from pulse_django.operations.preview import Selection
from pulse_django.shards import moving

SHARDED: Any = [
    pytest.mark.session("dropping its second database ends connections of the pooler"),
    pytest.mark.one_server("its second database is one that Citus does not know"),
]


def moved(source: str, to: str, **selected: Any) -> None:
    """Move all jobs that can be moved."""
    moving.move(Selection(**selected).jobs(source), to)
