"""Keys of limits and shares that are paused: their lanes are left out of claims."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import models, router

from pulse_django.store.transactions import run_joined
from pulse_django.words.lane_keys import key_of

if TYPE_CHECKING:
    from pulse_django.models import PausedKey  # noqa: F401 - named in the base class below

# A later end stays: whoever was told the longer time knows better.
_PAUSE = """
INSERT INTO pulse_django_pausedkey AS paused (lane_key, paused_until, reason, paused_by)
VALUES (%(lane_key)s, clock_timestamp() + %(seconds)s::float8 * interval '1 second', %(reason)s, %(by)s)
ON CONFLICT (lane_key) DO UPDATE SET
    paused_until = excluded.paused_until, reason = excluded.reason, paused_by = excluded.paused_by,
    paused_at = clock_timestamp()
WHERE paused.paused_until IS NOT NULL
    AND (excluded.paused_until IS NULL OR paused.paused_until < excluded.paused_until)
RETURNING lane_key
"""
_RESUME = "DELETE FROM pulse_django_pausedkey WHERE lane_key::text = %s RETURNING lane_key"
_FORGET = "DELETE FROM pulse_django_pausedkey WHERE paused_until <= statement_timestamp() RETURNING lane_key"


class PausedKeyManager(models.Manager["PausedKey"]):
    """``PausedKey.objects``: pause a key of a limit or a share, and resume it. ``lane_keys`` spells them."""

    def pause(self, lane_key: str, *, for_: timedelta | None = None, reason: str = "", by: str = "") -> bool:
        """Start no job of the key, for a time or until it is resumed. Runs go on.

        Return whether it was not paused for longer already.
        """
        if key_of(lane_key) is None:
            raise ValueError(f"{lane_key!r} has no key: close the limit instead")
        values = {
            "lane_key": lane_key,
            "seconds": None if for_ is None else for_.total_seconds(),
            "reason": reason,
            "by": by,
        }
        return bool(run_joined(self._alias, _PAUSE, values))

    def resume(self, lane_key: str) -> bool:
        """Let jobs of the key start again. Return whether it was paused."""
        return bool(run_joined(self._alias, _RESUME, [lane_key]))

    def forget_ended(self) -> list[str]:
        """Delete pauses that are over. Claims do not wait for it."""
        return [lane_key for (lane_key,) in run_joined(self._alias, _FORGET, [])]

    @property
    def _alias(self) -> str:
        return self._db or router.db_for_write(self.model)
