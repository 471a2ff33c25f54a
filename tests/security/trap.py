"""A module that nobody may import because of what stands in a row: it writes down that somebody did."""

from __future__ import annotations

import os
from pathlib import Path

if path := os.environ.get("PULSE_TRAP"):
    with Path(path).open("a") as file:
        file.write("imported\n")


def spring() -> None:
    """What a pickle or a name in a row might call."""
