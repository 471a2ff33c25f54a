"""A proxy to stand between real workers and the database."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.proxy import BlackHole


@pytest.fixture
def proxy(pulse_db: None) -> Iterator[BlackHole]:
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # a short path: sockets have little room
        proxy = BlackHole(Path(folder), connection.settings_dict)
        yield proxy
        proxy.close()
