"""Leave secrets out of reprs, which logs and errors show.

Dataclasses say ``field(repr=False)``; named tuples use this.
"""

from __future__ import annotations

from typing import Any


def without(carrier: Any, *hidden: str) -> str:
    """Spell a named tuple as Python would, but for these fields."""
    shown = ", ".join(f"{name}={getattr(carrier, name)!r}" for name in carrier._fields if name not in hidden)
    return f"{type(carrier).__name__}({shown})"
