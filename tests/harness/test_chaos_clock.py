"""The clock of a tormented worker, which the judge has to see through."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from chaos.clock import Clock

HOUR = timedelta(hours=1)


def test_what_a_clock_showed_while_it_was_wrong_is_told_as_it_really_was(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock", None)
    right = _passing()
    clock.jump_to(HOUR.total_seconds())
    ahead = _passing()
    clock.jump_to(-HOUR.total_seconds())
    behind = _passing()
    clock.jump_to(0.0)
    again = _passing()
    assert clock.really(right) == right
    assert clock.really(ahead + HOUR) == ahead
    assert clock.really(behind - HOUR) == behind
    assert clock.really(again) == again
    assert clock.really(ahead - HOUR) == ahead - HOUR, "it never showed that"


def _passing() -> datetime:
    """An instant with some time before and after it: clocks have ticks."""
    time.sleep(0.001)
    now = datetime.now(UTC)
    time.sleep(0.001)
    return now
