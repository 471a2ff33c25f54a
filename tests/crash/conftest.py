"""The fixtures that start real workers, and a proxy to stand between them and the database."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.crash.workers import workers
from tests.proxy import BlackHole

__all__ = ["workers"]


@pytest.fixture
def proxy(pulse_db: None) -> Iterator[BlackHole]:
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # a short path: sockets have little room
        proxy = BlackHole(Path(folder), connection.settings_dict)
        yield proxy
        proxy.close()
