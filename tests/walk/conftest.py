"""The fixture that starts real workers."""

from __future__ import annotations

from tests.crash.workers import workers

__all__ = ["workers"]
