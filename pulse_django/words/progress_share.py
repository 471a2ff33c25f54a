"""How much of a job is done, from what its handler reported."""

from __future__ import annotations

import math
from typing import Any


def share_of(progress: Any) -> float | None:
    """Return how much of the work is done, from 0 to 1, if the handler reported both numbers."""
    if not isinstance(progress, dict):
        return None
    done, total = progress.get("done"), progress.get("total")
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in (done, total)):
        return None
    try:
        share = float(done) / float(total)  # type: ignore[arg-type]  # numbers
    except (OverflowError, ZeroDivisionError):  # JSON holds numbers that no float does
        return None
    return None if math.isnan(share) else min(max(share, 0.0), 1.0)
