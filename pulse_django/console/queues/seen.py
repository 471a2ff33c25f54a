"""The pauses that a page showed, as its form carries them: one of each shard, so that nothing newer is overwritten."""

from __future__ import annotations

from collections.abc import Mapping

from pulse_django.console.periods import instant_of
from pulse_django.execution.placement import has_several_shards, shards
from pulse_django.store.queues import Pause

NOT_PAUSED = "none"


def spelt(pauses: Mapping[str, Pause]) -> str:
    """Spell the pauses by shard. That of a single database stands alone."""
    texts = {alias: NOT_PAUSED if one.paused_at is None else one.paused_at.isoformat() for alias, one in pauses.items()}
    if not has_several_shards():
        return "".join(texts.values())
    return " ".join(f"{shards()[alias]}={text}" for alias, text in texts.items())


def read(text: str, alone: str) -> dict[str, Pause]:
    """Read them by shard; empty: the form does not say, and may have been shown any.

    ``alone`` is the database, if it is a single one.
    """
    if not has_several_shards():
        pause = _pause(text)
        return {} if pause is None else {alone: pause}
    aliases = {str(number): alias for alias, number in shards().items()}
    found = {}
    for part in text.split():
        number, _, said = part.partition("=")
        if (pause := _pause(said)) is None or number not in aliases:
            return {}
        found[aliases[number]] = pause
    return found


def _pause(text: str) -> Pause | None:
    if text == NOT_PAUSED:
        return Pause(None)
    paused_at = instant_of(text)
    return None if paused_at is None else Pause(paused_at)
