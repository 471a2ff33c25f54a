"""Notices that the code has changed, for development."""

from __future__ import annotations

import time
from pathlib import Path

from django.utils.autoreload import iter_all_python_module_files

INTERVAL = 1.0  # seconds between two looks


class Changes:
    def __init__(self) -> None:
        self.found: Path | None = None
        self._looked_at = time.monotonic()
        self._seen = self._look()

    def are_there(self) -> bool:
        """Say whether a file of a loaded module is newer than when this began."""
        now = time.monotonic()
        if self.found is None and now - self._looked_at >= INTERVAL:
            self._looked_at = now
            seen = self._look()
            self.found = next((path for path, at in seen.items() if at != self._seen.get(path, at)), None)
        return self.found is not None

    @staticmethod
    def _look() -> dict[Path, float]:
        return {path: path.stat().st_mtime for path in iter_all_python_module_files() if path.exists()}
